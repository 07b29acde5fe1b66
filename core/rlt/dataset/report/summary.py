"""What a report is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rlt.dataset.findings import Finding
from rlt.types import JSON


@dataclass(frozen=True)
class FileSummary:
    """One file in numbers."""

    path: str
    type: str | None
    """The type it was checked as; None when it is in another tool's format."""

    why: str
    """How the type was told; empty when it was given."""

    rows: int
    valid: int
    """Rows without an error."""

    errors: int
    warnings: int
    hidden: int
    """Findings that `--max-findings` kept back."""

    sha256: str
    tokens: JSON | None = None
    """Token totals and lengths, when there was a model to count for."""


class Report(Protocol):
    """Where findings go."""

    def finding(self, finding: Finding) -> None:
        """Take one finding."""

    def file(self, summary: FileSummary) -> None:
        """Take the numbers of a file, after its findings."""

    def end(self) -> None:
        """Finish, after the last file."""
