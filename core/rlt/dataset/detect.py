"""Which type a file has, told from its first rows, with the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlt.dataset.shapes import FOREIGN, Shape
from rlt.dataset.spelling import closest
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError
from rlt.types import JSON

LOOKED_AT = 200
"""How many rows are enough to tell."""


@dataclass(frozen=True)
class Guess:
    """What a file seems to hold: one of our types, or another tool's format."""

    kind: DatasetType | None
    why: str
    shape: Shape | None = None
    count: int = 0
    """How many of the rows that were looked at fit."""


def guess(lines: Sequence[bytes], types: Iterable[DatasetType]) -> Guess:
    """Tell the type of a file from its first `lines`."""
    rows, known = _objects(lines[:LOOKED_AT]), list(types)
    fits = [(_fitting(rows, kind), _weight(kind), kind) for kind in known]
    count, _, kind = max(fits, key=lambda fit: fit[:2], default=(0, (0, 0), None))
    shape, alike = _foreign(rows, known)
    if shape and alike >= count:
        return Guess(None, f"{alike} of the first {len(rows)} rows are {shape.label}", shape, alike)
    if kind and count:
        keys = " and ".join(key for key in kind.properties if key in kind.required)
        return Guess(kind, f"{count} of the first {len(rows)} rows have {keys}", count=count)
    return _nearest(rows, known)


def _objects(lines: Iterable[bytes]) -> list[JSON]:
    found: list[JSON] = []
    for line in lines:
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _fitting(rows: Sequence[JSON], kind: DatasetType) -> int:
    return sum(kind.required <= row.keys() for row in rows) if kind.required else 0


def _weight(kind: DatasetType) -> tuple[int, int]:
    """Prefer the type that says more: a row with a completion is one, whatever else it has."""
    return len(kind.required & kind.texts.keys()), len(kind.required)


def _foreign(rows: Sequence[JSON], known: Sequence[DatasetType]) -> tuple[Shape | None, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        if not any(kind.required and kind.required <= row.keys() for kind in known):
            counts.update(shape.label for shape in FOREIGN if shape.matches(row))
    if not counts:
        return None, 0
    label, count = counts.most_common(1)[0]
    return next(shape for shape in FOREIGN if shape.label == label), count


def _nearest(rows: Sequence[JSON], known: Sequence[DatasetType]) -> Guess:
    """No row is complete: take the type whose keys most resemble those that are there."""
    keys = Counter(key for row in rows for key in row)
    scores = [(sum(_likeness(key, keys) for key in kind.required), kind) for kind in known]
    score, kind = max(scores, key=lambda each: each[0], default=(0.0, None))
    if kind and score > 0:
        return Guess(kind, "no row is complete, and their keys are most like it")
    if kind is None:
        raise UsageError("no dataset type is registered; `rlt plugins` says what is broken")
    return Guess(kind, "no row says which; name it with --type")


def _likeness(key: str, keys: Counter[str]) -> float:
    if key in keys:
        return float(keys[key])
    return 0.5 * sum(count for other, count in keys.items() if closest(other, [key]) == key)
