"""Pairs that carry their prompt inside, as TRL's implicit format and OpenAI's do.

In messages the prompt is what both conversations begin with. In strings it is what they begin with
up to the last "Assistant:" (the way of HH-RLHF), or else, as TRL does it, the longest common start.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from rlt.dataset.shapes.example import Example, Shape, Text, Unconvertible, rest_of
from rlt.dataset.shapes.messages import as_turns, modern
from rlt.types import JSON

_ANSWER = "\n\nAssistant:"


def read_implicit(row: JSON) -> Example:
    """Read a row with `chosen` and `rejected` but no `prompt`."""
    prompt, chosen, rejected = common_start(row["chosen"], row["rejected"])
    rest = rest_of(row, "chosen", "rejected", "tools")
    return Example(prompt, chosen=chosen, rejected=rejected, tools=row.get("tools"), rest=rest)


def read_openai(row: JSON) -> Example:
    """Read a row of OpenAI's preference format."""
    given = row["input"]
    if not isinstance(given, dict):
        raise Unconvertible("its input is not an object with messages")
    return Example(
        [modern(turn) for turn in as_turns(given.get("messages"))],
        chosen=as_turns(row["preferred_output"]),
        rejected=as_turns(row["non_preferred_output"]),
        tools=given.get("tools"),
        rest=rest_of(row, "input", "preferred_output", "non_preferred_output"),
    )


def common_start(chosen: Any, rejected: Any) -> tuple[Text, Text, Text]:
    """Take the prompt out of a pair."""
    if isinstance(chosen, list) and isinstance(rejected, list):
        as_turns(chosen), as_turns(rejected)
        size = min(_alike(chosen, rejected), len(chosen) - 1, len(rejected) - 1)
    elif isinstance(chosen, str) and isinstance(rejected, str):
        size = _alike(chosen, rejected)
        marker = chosen.rfind(_ANSWER, 0, size)
        size = marker + len(_ANSWER) if marker >= 0 else len(chosen[:size].rstrip(" "))
    else:
        raise Unconvertible("chosen and rejected are not both strings or both messages")
    if size < 1:
        raise Unconvertible("chosen and rejected have no common start, so there is no prompt")
    return chosen[:size], chosen[size:], rejected[size:]


def _alike(chosen: Sequence[Any], rejected: Sequence[Any]) -> int:
    """Count the entries that both begin with."""
    both = zip(chosen, rejected, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))


IMPLICIT = Shape(
    "TRL preference rows (`chosen` and `rejected` without a `prompt`)",
    lambda row: "chosen" in row and "rejected" in row and "prompt" not in row,
    read_implicit,
    "dpo",
)
OPENAI = Shape(
    "OpenAI preference rows (`preferred_output`)",
    lambda row: {"input", "preferred_output", "non_preferred_output"} <= row.keys(),
    read_openai,
    "dpo",
)
