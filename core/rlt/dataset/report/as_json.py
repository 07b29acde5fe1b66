"""Findings for a program: one JSON object."""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import TextIO

from rlt.dataset.findings import Finding
from rlt.dataset.report.summary import FileSummary
from rlt.types import JSON

_IN_MEMORY = 1 << 22


class JsonReport:
    """Spools the findings, because the files come first and their numbers are known last."""

    def __init__(self, out: TextIO) -> None:
        """Write to `out`, at the end."""
        self._out = out
        self._files: list[JSON] = []
        self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8")  # noqa: SIM115
        self._empty = True

    def finding(self, finding: Finding) -> None:
        """Keep a finding for the end."""
        self._spool.write("\n    " if self._empty else ",\n    ")
        self._spool.write(json.dumps(as_json(finding)))
        self._empty = False

    def file(self, summary: FileSummary) -> None:
        """Keep the numbers of a file."""
        keys = ("path", "type", "rows", "valid", "errors", "warnings", "sha256")
        extra = {"tokens": summary.tokens} if summary.tokens else {}
        self._files.append({key: getattr(summary, key) for key in keys} | extra)

    def end(self) -> None:
        """Write everything."""
        files = ",\n    ".join(map(json.dumps, self._files))
        self._out.write(f'{{\n  "files": [\n    {files}\n  ],\n  "findings": [')
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._out)
        self._spool.close()
        self._out.write("\n  ]\n}\n")


def as_json(finding: Finding) -> JSON:
    """Return a finding as an object; the documented keys first."""
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "severity": finding.severity,
        "rule": finding.rule,
        "pointer": finding.pointer,
        "message": finding.message,
        "suggestion": finding.suggestion or None,
        "snippet": finding.snippet or None,
    }
