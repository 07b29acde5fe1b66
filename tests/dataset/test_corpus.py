"""Each bad file of the corpus has its rule at its line and column, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlt.dataset.rules import RULES

CORPUS = Path(__file__).parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_has_its_findings_where_they_are(name: str, inspected: Callable) -> None:
    kind, findings = EXPECTED[name]
    report = inspected(CORPUS / f"{name}.jsonl")
    assert [[f.rule, f.line, f.column] for f in report.findings] == findings
    assert report.files[0].type == kind


def test_every_file_is_expected_and_at_least_sixty_are_bad() -> None:
    assert {path.stem for path in CORPUS.glob("*.jsonl")} == set(EXPECTED)
    assert sum(bool(findings) for _, findings in EXPECTED.values()) >= 60


def test_every_rule_about_files_has_a_bad_file() -> None:
    seen = {rule for _, findings in EXPECTED.values() for rule, _, _ in findings}
    assert set(RULES) - seen == {"leak", "too-long", "nothing-to-train"}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_snippet_is_what_stands_at_the_column(name: str, inspected: Callable) -> None:
    path = CORPUS / f"{name}.jsonl"
    lines = path.read_bytes().split(b"\n")
    for finding in inspected(path).findings:
        if finding.snippet and finding.snippet.isascii() and "\\" not in finding.snippet:
            text = lines[finding.line - 1].decode()[finding.column - 1 :]
            assert text.startswith(finding.snippet.rstrip("…"))
