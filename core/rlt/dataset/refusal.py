"""Why a run does not start with a file, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlt.dataset.detect import LOOKED_AT, guess
from rlt.dataset.findings import Finding
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError


class Refusal:
    """Collects the errors of one file: the first in full, the others as numbers."""

    def __init__(self, path: str, kind: DatasetType) -> None:
        """Start with none."""
        self._path = path
        self._kind = kind
        self._first: Finding | None = None
        self._counts: Counter[str] = Counter()
        self._sample: Sequence[bytes] = ()

    def look(self, lines: Sequence[bytes]) -> None:
        """Remember the first rows, which may show what the file really is."""
        self._sample = self._sample or lines[:LOOKED_AT]

    def add(self, finding: Finding) -> None:
        """Take note of an error."""
        self._first = self._first or finding
        self._counts[finding.rule] += 1

    def raise_if_any(self) -> None:
        """Raise a `UsageError` when there were errors."""
        first = self._first
        if first is None:
            return
        if first.rule == "no-rows":
            raise UsageError(f"{first.path}: {first.message}; {first.suggestion}")
        text = f"{first.path}:{first.line}:{first.column}: {first.message}"
        text += f" ({first.suggestion})" if first.suggestion else ""
        text += f" [{first.rule}, {self._kind.name} row]"
        total = self._counts.total()
        if total > 1:
            rules = ", ".join(f"{rule} {n:,}" for rule, n in self._counts.most_common())
            text += f"; {total:,} errors in all ({rules})"
        raise UsageError(f"{text}{self._likeness()}; `rlt check {self._path}` lists them all")

    def _likeness(self) -> str:
        """Name the type that the file seems to have instead, if it does."""
        from rlt.plugins import dataset_types  # noqa: PLC0415 - it imports us

        if "missing-field" not in self._counts:
            return ""
        told = guess(self._sample, dataset_types())
        if told.shape:
            fix = f"rlt convert {self._path} --to {self._kind.name}"
            return f"; these look like {told.shape.label}, see `{fix}`"
        other = told.kind and told.count and told.kind.name != self._kind.name
        return f"; these look like {told.kind.name} rows" if told.kind and other else ""
