"""Why a run does not start with a file, in one line."""

from __future__ import annotations

from collections import Counter

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
            raise UsageError(f"{first.path}: the file holds no rows; write one JSON object a line")
        total = self._counts.total()
        text = f"{first.path}:{first.line}:{first.column}: {first.message}"
        text += f" ({first.suggestion})" if first.suggestion else ""
        text += f" [{first.rule}, {self._kind.name} row]"
        if total > 1:
            rules = ", ".join(f"{rule} {n:,}" for rule, n in self._counts.most_common())
            text += f"; {total:,} errors in all ({rules})"
        raise UsageError(f"{text}; `rlt check {self._path}` lists them all")
