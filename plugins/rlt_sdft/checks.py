"""What makes a rewrite unfit to learn from.

A check is a function of (demonstration, rewrite) texts that returns whether the rewrite passes.
They are asked in order and the first that fails names the reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

Check = Callable[[str, str], bool]

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

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_LAST_NUMBER = re.compile(rf"({_NUMBER.pattern})[^\w\n]*$")
_CALLS = (
    re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL),
    re.compile(r"Action:\s*(\S+\s*Action Input:\s*\{.*?\})\s*(?=Action:|\n\n|$)", re.DOTALL),
)


def not_empty(_demonstration: str, rewrite: str) -> bool:
    """Something was said."""
    return bool(rewrite.strip())


def no_leak(demonstration: str, rewrite: str) -> bool:
    """No word of the teacher's instructions came through, unless the demonstration says it too."""
    said, shown = rewrite.lower(), demonstration.lower()
    return not any(words in said and words not in shown for words in LEAKS)


def no_refusal(demonstration: str, rewrite: str) -> bool:
    """It does not open with a refusal where the demonstration does not."""
    said = rewrite.strip().lower().replace("\u2019", "'")
    return demonstration.strip().lower().startswith(REFUSALS) or not said.startswith(REFUSALS)


def same_tool_calls(demonstration: str, rewrite: str) -> bool:
    """The same calls are made: names and arguments, however they are spaced or ordered."""
    return tool_calls(demonstration) == tool_calls(rewrite)


def same_final_number(demonstration: str, rewrite: str) -> bool:
    """Where the demonstration ends in a number, so does the last number of the rewrite agree."""
    expected = _LAST_NUMBER.search(demonstration.strip())
    if not expected:
        return True
    found = _NUMBER.findall(rewrite)
    return bool(found) and _value(found[-1]) == _value(expected[1])


CHECKS: dict[str, Check] = {
    "empty": not_empty,
    "leaked": no_leak,
    "refused": no_refusal,
    "tool-call": same_tool_calls,
    "number": same_final_number,
}
"""Reason -> check, in the order they are asked."""

UNFINISHED = "unfinished"
"""The reason of a rewrite that was cut at --max-tokens: it never ended its turn."""


def rejection(demonstration: str, rewrite: str, *, finished: bool) -> str | None:
    """Return why a rewrite is unfit, or None when every check passes."""
    for reason, check in CHECKS.items():
        if not check(demonstration, rewrite):
            return reason
    return None if finished else UNFINISHED


def tool_calls(text: str) -> Counter[str]:
    """Return the tool calls that a text makes, in a normal form, with how often."""
    found: Sequence[str] = [call for pattern in _CALLS for call in pattern.findall(text)]
    return Counter(map(_normal, found))


def _normal(call: str) -> str:
    try:
        return json.dumps(json.loads(call), sort_keys=True)
    except ValueError:
        return " ".join(call.split())


def _value(number: str) -> float:
    return float(number.replace(",", ""))
