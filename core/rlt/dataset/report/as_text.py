"""Findings for a person, in the form that editors and terminals make clickable."""

from __future__ import annotations

from typing import TextIO

from rlt.dataset.findings import Finding
from rlt.dataset.report.histogram import histogram
from rlt.dataset.report.summary import FileSummary


class TextReport:
    """Writes each finding as it comes."""

    def __init__(self, out: TextIO) -> None:
        """Write to `out`."""
        self._out = out

    def finding(self, finding: Finding) -> None:
        """Write `path:line:col: error[rule] /pointer: message`, the snippet and the help."""
        place = f"{finding.path}:{finding.line}:{finding.column}"
        pointer = f" {finding.pointer}" if finding.pointer else ""
        self._line(f"{place}: {finding.severity}[{finding.rule}]{pointer}: {finding.message}")
        if finding.snippet:
            self._line(f"    | {finding.snippet}")
        if finding.suggestion:
            self._line(f"    = help: {finding.suggestion}")

    def file(self, summary: FileSummary) -> None:
        """Write the numbers of a file."""
        if summary.hidden:
            self._line(f"… and {_count(summary.hidden, 'finding')} more (--max-findings)")
        kind = summary.type or "no type of rlt's"
        kind += f" ({summary.why})" if summary.why else ""
        self._line(
            f"{summary.path}: {kind}: {_count(summary.rows, 'row')}, {summary.valid:,} valid, "
            f"{_count(summary.errors, 'error')}, {_count(summary.warnings, 'warning')}"
        )
        for line in histogram(summary.tokens) if summary.tokens else ():
            self._line(line)

    def end(self) -> None:
        """Write nothing more."""

    def _line(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        self._out.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
