"""Findings for a code host: SARIF 2.1.0, which GitHub and others show beside the lines."""

from __future__ import annotations

import json
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import TextIO
from urllib.parse import quote

from rlt.dataset.findings import Finding
from rlt.dataset.report.summary import FileSummary
from rlt.dataset.rules import RULES
from rlt.types import JSON

_IN_MEMORY = 1 << 22
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_INDEX = {rule: i for i, rule in enumerate(RULES)}


class SarifReport:
    """Spools the results; one run for all files."""

    def __init__(self, out: TextIO) -> None:
        """Write to `out`, at the end."""
        self._out = out
        self._artifacts: list[JSON] = []
        self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8")  # noqa: SIM115
        self._empty = True

    def finding(self, finding: Finding) -> None:
        """Keep a finding for the end."""
        self._spool.write("\n" if self._empty else ",\n")
        self._spool.write(json.dumps(_result(finding)))
        self._empty = False

    def file(self, summary: FileSummary) -> None:
        """Keep a file's place and hash."""
        place = {"uri": _uri(summary.path)}
        numbers = {key: getattr(summary, key) for key in ("type", "rows", "valid")}
        self._artifacts.append(
            {"location": place, "hashes": {"sha-256": summary.sha256}, "properties": numbers}
        )

    def end(self) -> None:
        """Write everything."""
        head = {
            "tool": {"driver": _driver()},
            "columnKind": "unicodeCodePoints",
            "artifacts": self._artifacts,
        }
        self._out.write(f'{{"$schema": "{_SCHEMA}", "version": "2.1.0", "runs": [')
        self._out.write(json.dumps(head)[:-1] + ', "results": [')
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._out)
        self._spool.close()
        self._out.write("]}]}\n")


def _driver() -> JSON:
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.summary},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in RULES.values()
    ]
    return {"name": "rlt check", "version": _version(), "rules": rules}


def _version() -> str:
    try:
        return version("rlt")
    except PackageNotFoundError:
        return "0"


def _result(finding: Finding) -> JSON:
    text = finding.message + (f" ({finding.suggestion})" if finding.suggestion else "")
    region: JSON = {"startLine": finding.line, "startColumn": finding.column}
    if finding.snippet:
        region["snippet"] = {"text": finding.snippet}
    location: JSON = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}
    }
    if finding.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.pointer}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": _INDEX[finding.rule],
        "level": finding.severity,
        "message": {"text": text},
        "locations": [location],
    }


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/").encode("utf-8", "surrogateescape"))
