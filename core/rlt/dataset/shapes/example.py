"""What all formats have in common: a prompt, an answer or a pair, tools, and what else there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt.types import JSON

Text = str | list[JSON]
"""A string or messages."""


class Unconvertible(Exception):  # noqa: N818 - it is an outcome, not a fault
    """A row has no counterpart in the wanted type; the message is the reason."""


@dataclass
class Example:
    """One row, whatever format it came in."""

    prompt: Text
    completion: Text | None = None
    chosen: Text | None = None
    rejected: Text | None = None
    tools: Any = None
    rest: JSON = field(default_factory=dict)
    """Other keys; they pass through untouched."""


@dataclass(frozen=True)
class Shape:
    """One format."""

    label: str
    """Its name in a message."""

    matches: Callable[[JSON], bool]
    read: Callable[[JSON], Example]
    target: str
    """The type of ours that fits it best."""


def rest_of(row: JSON, *known: str) -> JSON:
    """Return what a format does not know of a row."""
    return {key: value for key, value in row.items() if key not in known}


def demonstration(example: Example) -> JSON:
    """Make an sdft row."""
    answer = example.completion if example.completion is not None else example.chosen
    if answer is None:
        raise Unconvertible("there is no completion to learn from")
    return _row(example, {"completion": answer})


def pair(example: Example) -> JSON:
    """Make a dpo row."""
    if example.chosen is None or example.rejected is None:
        raise Unconvertible("there is no pair of a chosen and a rejected answer")
    return _row(example, {"chosen": example.chosen, "rejected": example.rejected})


def task(example: Example) -> JSON:
    """Make an environment row; a known answer goes into the metadata, for a verifier."""
    metadata = example.rest.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Unconvertible("its metadata is not an object")
    answer = example.completion if example.completion is not None else example.chosen
    if answer is None and not metadata:
        raise Unconvertible("there is neither metadata nor an answer to verify against")
    if answer is not None and "answer" not in metadata:
        metadata = {**metadata, "answer": _last_words(answer)}
    return _row(example, {"metadata": metadata})


def _last_words(answer: Text) -> str:
    if isinstance(answer, str):
        return answer
    last = answer[-1] if isinstance(answer, list) and answer else None
    content = last.get("content") if isinstance(last, dict) else None
    if not isinstance(content, str) or not content:
        raise Unconvertible(
            "its answer does not end in text, so there is nothing to verify against"
        )
    return content


def _row(example: Example, answer: JSON) -> JSON:
    row: JSON = {"prompt": example.prompt, **answer}
    if example.tools is not None:
        row["tools"] = example.tools
    return {**row, **{key: value for key, value in example.rest.items() if key not in row}}


TARGETS: Mapping[str, Callable[[Example], JSON]] = {
    "sdft": demonstration,
    "dpo": pair,
    "environment": task,
}
"""The types that can be converted to."""
