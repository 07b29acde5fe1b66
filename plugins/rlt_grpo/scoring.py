"""Rewards, and what happens when they cannot be had.

What a third party's verifier or environment raises is not a wrong answer: it is named with its row
and ends the run, or the sample is left out of its group. It never counts as a reward of 0.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TypeVar

import rlt

T = TypeVar("T")


class Fault(Exception):  # noqa: N818 - it is caught where a rollout ends, and told apart there
    """A verifier or an environment failed on a row."""


async def reward(run: rlt.Run, row: rlt.Row, completion: str) -> float:
    """Return what `score` gives for a completion.

    :raises Fault: when a plugin raises, or returns no finite number.
    :raises rlt.UsageError: when no plugin knows the row.
    """
    asked = run.hooks.call_async("score", run=run, row=row, completion=completion)
    value = await theirs(asked, "score")
    if value is None:
        raise rlt.UsageError(f"{row.where}: {UNSCORED}")
    return finite(value)


UNSCORED = (
    "nothing can score this row; give its metadata `answer`, `tests` or `lean_goal`, "
    "or select a plugin that implements score"
)


def finite(value: object) -> float:
    """Return a reward as a number.

    :raises Fault: when it is none, or not finite.
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise Fault(f"the reward is {value!r}, not a finite number")
    return float(value)


async def theirs(call: Awaitable[T], what: str) -> T:
    """Await a third party's code.

    :raises Fault: for whatever it raises but rlt's own errors, such as a service that is gone.
    """
    try:
        return await call
    except rlt.PluginError as error:
        raise Fault(str(error)) from error
    except rlt.RltError:
        raise
    except Exception as error:
        raise Fault(f"{what} raised {type(error).__name__}: {error}") from error
