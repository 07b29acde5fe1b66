"""The real data is what its README says, and what it does not say is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("gsm8k.environment", "environment", 400),
        ("gsm8k.sdft", "sdft", 300),
        ("tooluse.sdft", "sdft", 48),
        ("toolalpaca.dpo", "dpo", 60),
    ],
)
def test_a_clean_file_is_its_type_with_all_rows_valid(
    name: str, kind: str, rows: int, data: Path, inspected: Callable
) -> None:
    report = inspected(data / f"{name}.jsonl")
    summary = report.files[0]
    assert (summary.type, summary.rows, summary.valid) == (kind, rows, rows)
    assert report.findings == []


def test_chat_rows_are_named_and_one_command_mends_them(data: Path, inspected: Callable) -> None:
    path = data / "conversations.messages.jsonl"
    report = inspected(path)
    (finding,) = report.findings
    assert finding.rule == "other-format"
    assert "`messages`" in finding.message
    assert finding.suggestion.startswith(f"rlt convert {path} --to sdft")
    assert (report.files[0].rows, report.files[0].valid) == (128, 0)


def test_tool_traces_hold_placeholders_where_json_should_be(
    data: Path, inspected: Callable
) -> None:
    """ToolAlpaca wrote `${id from search}` into arguments, and called tools that are not there."""
    report = inspected(data / "toolalpaca.sdft.jsonl")
    assert (report.files[0].type, report.files[0].rows, report.files[0].valid) == ("sdft", 70, 45)
    assert Counter(report.rules) == {"bad-tool-arguments": 26, "undefined-tool": 5}
    first = report.findings[0]
    assert (first.line, first.column) == (11, 424)
    assert "${animeId from search" in first.message
