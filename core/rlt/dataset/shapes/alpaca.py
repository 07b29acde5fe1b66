"""Alpaca: an `instruction`, perhaps an `input`, and an `output`, or a pair of them."""

from __future__ import annotations

from typing import Any

from rlt.dataset.shapes.example import Example, Shape, Text, Unconvertible, rest_of
from rlt.types import JSON

_KNOWN = ("instruction", "input", "output", "system", "history", "chosen", "rejected")


def read(row: JSON) -> Example:
    """Read a row with `instruction`."""
    prompt, rest = _prompt(row), rest_of(row, *_KNOWN)
    if "chosen" in row and "rejected" in row:
        chosen, rejected = _string(row, "chosen"), _string(row, "rejected")
        return Example(prompt, chosen=chosen, rejected=rejected, rest=rest)
    return Example(prompt, _string(row, "output"), rest=rest)


def _prompt(row: JSON) -> Text:
    """Put the input below the instruction; a system text or a history needs messages."""
    parts = [_string(row, "instruction"), _string(row, "input") if row.get("input") else ""]
    text = "\n\n".join(part for part in parts if part)
    before = _system(row.get("system")) + _history(row.get("history"))
    return [*before, {"role": "user", "content": text}] if before else text


def _system(value: Any) -> list[JSON]:
    return [{"role": "system", "content": value}] if value else []


def _history(value: Any) -> list[JSON]:
    turns: list[JSON] = []
    if value is not None and not isinstance(value, list):
        raise Unconvertible("its history is not a list of pairs")
    for pair in value or []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Unconvertible("its history is not a list of pairs")
        turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return turns


def _string(row: JSON, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise Unconvertible(f"its {key} is missing, or not a string")
    return value


SHAPE = Shape(
    "Alpaca rows (`instruction`)",
    lambda row: "instruction" in row and "prompt" not in row,
    read,
    "sdft",
)
