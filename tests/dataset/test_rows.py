"""Rows come back exactly as the file holds them, one at a time, whatever carries them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from pathlib import Path

import pytest
import zstandard

from rlt.dataset import DatasetType, DatasetTypes, open_rows
from rlt.errors import RunError, UsageError

LINES = [
    b'{"completion": "b", "prompt": "a", "n": 1.0, "big": 123456789012345678901234567890}',
    '{"prompt": "日本語", "completion": "🙂", "metadata": {"z": null, "a": [1]}}'.encode(),
    b'{"prompt": "c",   "completion": "d"}',
]
CLEAN = b"\n".join(LINES) + b"\n"


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_content_keeps_its_types_its_keys_and_their_order(
    tmp_path: Path, sdft: DatasetType
) -> None:
    rows = open_rows(write(tmp_path / "a.jsonl", CLEAN), sdft)
    assert [row.data for row in rows] == [json.loads(line) for line in LINES]
    assert list(rows[0].data) == ["completion", "prompt", "n", "big"]
    assert json.dumps(rows[0].data["n"]) == "1.0"
    assert rows[0].data["big"] == 123456789012345678901234567890


def test_no_row_gets_a_key_that_only_another_row_has(tmp_path: Path, sdft: DatasetType) -> None:
    rows = open_rows(write(tmp_path / "a.jsonl", CLEAN), sdft)
    assert "metadata" not in rows[2].data


@pytest.mark.parametrize(
    "content",
    [
        CLEAN,
        CLEAN.rstrip(b"\n"),
        b"\xef\xbb\xbf" + CLEAN.replace(b"\n", b"\r\n"),
        b"\n\n" + CLEAN.replace(b"\n", b"\n \t\n"),
        gzip.compress(CLEAN),
        gzip.compress(CLEAN[:50]) + gzip.compress(CLEAN[50:]),
        zstandard.compress(CLEAN),
        zstandard.compress(CLEAN[:9]) + zstandard.compress(CLEAN[9:]),
    ],
    ids=["plain", "no-final-newline", "bom-crlf", "blank", "gz", "two-gz", "zst", "two-zst"],
)
def test_every_form_of_a_file_has_the_same_rows_with_the_same_ids(
    content: bytes, tmp_path: Path, sdft: DatasetType
) -> None:
    clean = open_rows(write(tmp_path / "clean.jsonl", CLEAN), sdft)
    rows = open_rows(write(tmp_path / "other", content), sdft)
    assert [(row.data, row.id) for row in rows] == [(row.data, row.id) for row in clean]
    assert rows.sha256 == hashlib.sha256(content).hexdigest()


def test_a_row_knows_its_line_in_the_file(tmp_path: Path, sdft: DatasetType) -> None:
    path = write(tmp_path / "a.jsonl", b"\n" + LINES[0] + b"\n\n\n" + LINES[1] + b"\n" + LINES[2])
    assert [row.where for row in open_rows(path, sdft)] == [f"{path}:{n}" for n in (2, 5, 6)]


def test_standard_input_is_spooled(monkeypatch: pytest.MonkeyPatch, sdft: DatasetType) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CLEAN)))
    rows = open_rows("-", sdft)
    assert rows[2].data == {"prompt": "c", "completion": "d"}
    assert rows[0].where == "<stdin>:1"


def test_rows_are_read_when_asked_for_in_any_order(tmp_path: Path, sdft: DatasetType) -> None:
    lines = [json.dumps({"prompt": f"p{i}", "completion": "x" * (i % 50 + 1)}) for i in range(9000)]
    rows = open_rows(write(tmp_path / "a.jsonl", "\n".join(lines).encode()), sdft)
    assert len(rows) == 9000
    for index in (8999, 0, 4321, -1):
        assert rows[index].data["prompt"] == f"p{range(9000)[index]}"
    with pytest.raises(IndexError):
        rows[9000]


def test_a_file_that_changes_during_a_run_is_noticed(tmp_path: Path, sdft: DatasetType) -> None:
    path = tmp_path / "a.jsonl"
    rows = open_rows(write(path, CLEAN), sdft)
    path.write_bytes(CLEAN + CLEAN)
    with pytest.raises(RunError, match="has changed"):
        rows[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a: the file holds no rows"),
        (b"\n\n", r"a: the file holds no rows"),
        (LINES[0] + b'\n{"prompt": "a"}\n', r'a:2:1: "completion" is missing .*rlt check .*a'),
        (b'{"prompt": 1}\n' * 3, r"a:1:1: .*6 errors in all \(missing-field 3, wrong-type 3\)"),
        (LINES[0] + b"\n{]\n", r"a:2:2: expecting property name.*json-syntax"),
        (b'{"prompt":"a","completion":"b","prompt":"c"}', r"a:1:32: .*comes twice"),
        (b'{"prompt":"a","metadata":{}}', r"missing.*these look like environment rows"),
        (b'{"messages":[]}', r"these look like OpenAI chat rows.*rlt convert .*--to sdft"),
        (gzip.compress(CLEAN)[:-9], r"its gzip data is cut off"),
        (zstandard.compress(CLEAN * 999)[:-9], r"its zstandard data is cut off"),
        (b"\x1f\x8b garbage", r"its gzip data is damaged"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused_in_one_line(
    content: bytes, message: str, tmp_path: Path, sdft: DatasetType
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        open_rows(write(tmp_path / "a", content), sdft)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_refused(tmp_path: Path, sdft: DatasetType) -> None:
    with pytest.raises(UsageError, match="no such file"):
        open_rows(str(tmp_path / "gone.jsonl"), sdft)
    with pytest.raises(UsageError, match="is a directory"):
        open_rows(str(tmp_path), sdft)
    with pytest.raises(UsageError, match="cannot read"):
        open_rows("a\0b", sdft)


def test_warnings_do_not_refuse_a_file_but_are_kept(tmp_path: Path, sdft: DatasetType) -> None:
    content = b'{"prompt": "a", "completion": "b", "tool": []}\n' * 2
    rows = open_rows(write(tmp_path / "a", content), sdft)
    assert [finding.rule for finding in rows.warnings] == ["misspelt-field"] * 2


def test_a_type_from_a_plugin_is_read_like_ours(tmp_path: Path, types: DatasetTypes) -> None:
    types("ranking", {"required": ["items"], "properties": {"items": {"type": "array"}}})
    rows = open_rows(write(tmp_path / "a", b'{"items": [1, 2]}'), types["ranking"])
    assert rows[0].data == {"items": [1, 2]}
