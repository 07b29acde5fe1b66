"""Rows of other tools become rows of ours, or rejects with the reason: none is lost.

Every row that is written has passed the checker of `rlt check`, and one that repeats an earlier one
has not, so the output passes as a whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rlt.dataset.check import Checker
from rlt.dataset.findings import shorten
from rlt.dataset.keys import keys_differ
from rlt.dataset.lines import Batch
from rlt.dataset.positions import Scan
from rlt.dataset.rules import RULES
from rlt.dataset.shapes import Unconvertible, shape_of
from rlt.dataset.shapes.example import TARGETS
from rlt.dataset.syntax import Fault, parse
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError
from rlt.types import JSON

Raw = tuple[int, bytes, str]
"""A row as it was found: its number in the input (a line, where there are lines), its JSON, and why
that is not the whole row (empty when it is)."""


@dataclass
class Conversion:
    """Turns rows into one of our types, and counts what became of them."""

    kind: DatasetType
    write: Callable[[bytes], object]
    """Takes a converted row, with its line feed."""

    reject: Callable[[bytes], object]
    """Takes a reject: JSON with the line, the reason and the row."""

    converted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Find the way to the wanted type."""
        if self.kind.name not in TARGETS:
            raise UsageError(f"cannot convert to {self.kind.name!r}; only to {', '.join(TARGETS)}")
        self._make = TARGETS[self.kind.name]
        self._checker = Checker("", self.kind, compare_rows=False)
        self._seen: dict[int, int] = {}

    def run(self, rows: Iterable[Raw]) -> None:
        """Convert every row."""
        for number, raw, flaw in rows:
            try:
                line = self._convert(number, raw, flaw)
            except Unconvertible as reason:
                self.reasons[_short(str(reason))] += 1
                self.reject(_dumps({"line": number, "reason": str(reason), **_original(raw)}))
            else:
                self.converted += 1
                self.write(line)

    def _convert(self, number: int, raw: bytes, flaw: str) -> bytes:
        if flaw:
            raise Unconvertible(flaw)
        row = _sound(raw)
        shape = shape_of(row)
        if shape is None:
            raise Unconvertible(f"its keys are those of no known format: {shorten(', '.join(row))}")
        line = _dumps(self._make(shape.read(row)))
        self._verify(line, number)
        self.shapes[shape.label] += 1
        return line

    def _verify(self, line: bytes, number: int) -> None:
        found = self._checker.feed(Batch([line], (number,), 0))
        errors = [finding for finding in found if finding.severity == "error"]
        if errors:
            first = errors[0]
            raise Unconvertible(f"{first.rule} {first.pointer}: {first.message}")
        before = self._seen.setdefault(hash(line), number)
        if before != number:
            raise Unconvertible(f"duplicate-row: the same as row {before}")


def _short(reason: str) -> str:
    """Count by rule what the checker has refused; its messages differ from row to row."""
    rule = reason.partition(":")[0].partition(" ")[0]
    return RULES[rule].summary if rule in RULES else reason


def _sound(raw: bytes) -> JSON:
    """Parse a row of which parsing loses nothing."""
    read = parse(raw)
    if isinstance(read, Fault):
        raise Unconvertible(f"{read.rule}: {read.message}")
    text, row = read
    if not keys_differ((raw,), (row,)):
        for problem, _ in Scan(text).found:
            raise Unconvertible(f"{problem.rule}: {problem.message}")
    return row


def _dumps(row: JSON) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row).encode() + b"\n"  # half a surrogate pair; the checker says so


def _original(raw: bytes) -> JSON:
    """Keep a rejected row so that nothing of it is lost: as JSON, text or, at worst, bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return {"bytes": raw.hex()}
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"text": text}
    return {"row": value} if json.dumps(value, ensure_ascii=False) == text else {"text": text}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def numbered(batches: Iterable[Batch]) -> Iterator[Raw]:
    """Go through the rows of a file of lines."""
    for batch in batches:
        yield from (
            (number, line, "") for number, line in zip(batch.numbers, batch.lines, strict=True)
        )
