"""Rows that have a `prompt`: our own types, and TRL's with an explicit prompt."""

from __future__ import annotations

from typing import Any

from rlt.dataset.shapes.example import Example, Shape, Text, Unconvertible, rest_of
from rlt.dataset.shapes.messages import as_tools
from rlt.types import JSON

_KNOWN = ("prompt", "completion", "chosen", "rejected", "tools", "label")


def read(row: JSON) -> Example:
    """Read a row with `prompt`."""
    if row.get("label") is False and "completion" in row:
        raise Unconvertible("its label is false: the completion is one to avoid")
    known = _KNOWN if isinstance(row.get("label"), bool) else _KNOWN[:-1]
    prompt: Text = row["prompt"]
    return Example(
        prompt,
        _answer(prompt, row.get("completion")),
        _answer(prompt, row.get("chosen")),
        _answer(prompt, row.get("rejected")),
        tools=as_tools(row.get("tools")),
        rest=rest_of(row, *known),
    )


def _answer(prompt: Text, answer: Any) -> Any:
    """Take the prompt off an answer that repeats it (UltraFeedback writes whole conversations)."""
    if not isinstance(answer, list) or len(answer) < 2:
        return answer
    given = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    return answer[len(given) :] if answer[: len(given)] == given else answer


SHAPE = Shape("rows with a `prompt`", lambda row: "prompt" in row, read, "sdft")
