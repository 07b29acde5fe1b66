"""Findings for a person, for a program, and for a code host: three writers with one interface.

All of them write as they go or spool to a temporary file, so a million findings need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TextIO

from rlt.dataset.report.as_json import JsonReport
from rlt.dataset.report.as_sarif import SarifReport
from rlt.dataset.report.as_text import TextReport
from rlt.dataset.report.summary import FileSummary, Report

FORMATS: Mapping[str, Callable[[TextIO], Report]] = {
    "text": TextReport,
    "json": JsonReport,
    "sarif": SarifReport,
}

__all__ = ["FORMATS", "FileSummary", "Report"]
