"""What makes a rewrite unfit to learn from.

A check is a function that takes a `Rewrite` and returns why it is unfit, in a word or two, or None.
They are asked in order and the first reason counts. A plugin adds its own to a run's list:

    from rlt_sdft.checks import Rewrite, checks

    def shouting(rewrite: Rewrite) -> str | None:
        return "shouting" if rewrite.answer.isupper() else None

    @rlt.hookimpl
    def on_start(run):
        checks(run).append(shouting)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import rlt
from rlt_sdft.calls import same_tool_calls, tool_calls

LEAKS = (
    "you are the teacher",
    "demo:",
    "expert demonstration",
    "on-policy style",
    "reference answer",
    "your response",
    "my response",
    "your own response",
    "now it's your turn",
)
"""Words of the teacher's instructions (the last five are Yang et al.'s) that no answer contains."""

REFUSALS = (
    "i'm sorry",
    "i am sorry",
    "i cannot",
    "i can't",
    "i am unable",
    "i'm unable",
    "as an ai",
)

LONGEST = 4
"""How many times as long as its demonstration a rewrite may be."""
SHORT = 200
"""Characters that even the shortest demonstration counts as."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_LAST_NUMBER = re.compile(rf"({_NUMBER.pattern})[^\w\n]*$")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What the teacher made of a row's demonstration."""

    row: rlt.Row
    demonstration: str
    """The demonstrated turn, as the model writes it, its thought too."""
    text: str
    """All that the teacher said, its thought too."""
    finished: bool = True
    """Whether it ended its turn; it was cut at `--max-tokens` otherwise."""

    @property
    def answer(self) -> str:
        """What was said after thinking."""
        return _after_thinking(self.text)

    @property
    def shown(self) -> str:
        """What is demonstrated after thinking."""
        return _after_thinking(self.demonstration)

    @property
    def calls_tools(self) -> bool:
        """Whether the demonstrated turn has tool calls of its own, apart from its text."""
        completion = self.row.data.get("completion")
        turns = completion if isinstance(completion, list) else []
        said = [turn for turn in turns if turn.get("role") == "assistant"]
        return bool(said and said[-1].get("tool_calls"))


Check = Callable[[Rewrite], str | None]


def empty(rewrite: Rewrite) -> str | None:
    """Nothing was said."""
    return None if rewrite.answer.strip() else "empty"


def unfinished(rewrite: Rewrite) -> str | None:
    """It was cut at `--max-tokens`, so that nobody knows how it would have ended."""
    return None if rewrite.finished else "unfinished"


def leaked(rewrite: Rewrite) -> str | None:
    """Words of the teacher's instructions came through that the demonstration does not say."""
    said, shown = rewrite.text.lower(), rewrite.demonstration.lower()
    return "leaked" if any(words in said and words not in shown for words in LEAKS) else None


def refused(rewrite: Rewrite) -> str | None:
    """It opens with a refusal where the demonstration does not."""
    said, shown = _opening(rewrite.answer), _opening(rewrite.shown)
    return "refused" if said.startswith(REFUSALS) and not shown.startswith(REFUSALS) else None


def changed_call(rewrite: Rewrite) -> str | None:
    """A tool call was lost, changed or added."""
    same = same_tool_calls(rewrite.shown, rewrite.answer, expected=rewrite.calls_tools)
    return None if same else "tool-call"


def changed_number(rewrite: Rewrite) -> str | None:
    """The demonstration ends in a number, and the last number of the rewrite is another."""
    if rewrite.calls_tools or tool_calls(rewrite.shown):
        return None  # numbers are arguments then, in any order
    return None if same_final_number(rewrite.shown, rewrite.answer) else "number"


def too_long(rewrite: Rewrite) -> str | None:
    """It is more than `LONGEST` times as long as the demonstration, or as `SHORT` characters."""
    most = LONGEST * max(len(rewrite.shown), SHORT)
    return "too-long" if len(rewrite.answer) > most else None


CHECKS: list[Check] = [
    empty, unfinished, leaked, refused, changed_call, changed_number, too_long,
]  # fmt: skip
"""What every run begins with."""


class _Checks(list[Check]):
    def __init__(self) -> None:
        super().__init__(CHECKS)


def checks(run: rlt.Run) -> list[Check]:
    """Return the run's own list of checks; change it in `on_start`."""
    return run.state(_Checks)


def rejection(rewrite: Rewrite, asked: list[Check]) -> str | None:
    """Return why a rewrite is unfit, or None when every check passes.

    :raises rlt.PluginError: when a check returns something else than a reason or None.
    """
    for check in asked:
        reason = check(rewrite)
        if reason is None:
            continue
        if not (isinstance(reason, str) and reason.strip() and reason.isprintable()):
            name = getattr(check, "__name__", repr(check))
            home = getattr(check, "__module__", "?")
            raise rlt.PluginError(
                f"the check {name!r} of {home} returned {reason!r}, not a reason of one "
                "line or None"
            )
        return reason
    return None


def same_final_number(demonstration: str, rewrite: str) -> bool:
    """Say whether the last number agrees, where the demonstration ends in one."""
    expected = _LAST_NUMBER.search(demonstration.strip())
    if not expected:
        return True
    found = _NUMBER.findall(rewrite)
    return bool(found) and _value(found[-1]) == _value(expected[1])


def _after_thinking(text: str) -> str:
    return text.rpartition("</think>")[2]


def _opening(text: str) -> str:
    return text.strip().lower().replace("\u2019", "'")


def _value(number: str) -> float:
    return float(number.replace(",", ""))
