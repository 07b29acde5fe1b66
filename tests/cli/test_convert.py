"""`rlt convert` loses no row: it is written and passes `rlt check`, or rejected with the reason."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, write_lines

USER = {"role": "user", "content": "2 + 2?"}
FOUR = {"role": "assistant", "content": "4"}
FIVE = {"role": "assistant", "content": "5"}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c", "content": "4"}
ADD = {"type": "function", "function": {"name": "add"}}

CONVERSIONS: list[tuple[str, Any, str, Any]] = [
    ("openai", {"messages": [USER, FOUR]}, "sdft", {"prompt": [USER], "completion": [FOUR]}),
    (
        "openai-trace",
        {"messages": [USER, CALL, RESULT, FOUR], "tools": [ADD], "id": 7},
        "sdft",
        {"prompt": [USER], "completion": [CALL, RESULT, FOUR], "tools": [ADD], "id": 7},
    ),
    (
        "openai-function-call",
        {"messages": [USER, {"role": "assistant", "content": None,
                             "function_call": {"name": "add", "arguments": "{}"}},
                      {"role": "function", "name": "add", "content": "4"}, FOUR],
         "functions": [{"name": "add"}]},
        "sdft",
        {"prompt": [USER],
         "completion": [{"role": "assistant", "content": None, "tool_calls": [
             {"type": "function", "function": {"name": "add", "arguments": "{}"}}]},
             {"role": "tool", "name": "add", "content": "4"}, FOUR],
         "tools": [ADD]},
    ),
    ("openai-task", {"messages": [USER, FOUR]}, "environment",
     {"prompt": [USER], "metadata": {"answer": "4"}}),
    ("openai-pair",
     {"input": {"messages": [USER]}, "preferred_output": [FOUR], "non_preferred_output": [FIVE]},
     "dpo", {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}),
    ("sharegpt",
     {"system": "s", "conversations": [{"from": "human", "value": "2 + 2?"},
                                       {"from": "gpt", "value": "4"}]},
     "sdft",
     {"prompt": [{"role": "system", "content": "s"}, USER], "completion": [FOUR]}),
    ("sharegpt-tools",
     {"conversations": [{"from": "human", "value": "2 + 2?"},
                        {"from": "function_call", "value": '{"name": "add", "arguments": {}}'},
                        {"from": "observation", "value": "4"}, {"from": "gpt", "value": "4"}],
      "tools": '[{"name": "add"}]'},
     "sdft",
     {"prompt": [USER],
      "completion": [{"role": "assistant", "content": "", "tool_calls": [
          {"type": "function", "function": {"arguments": {}, "name": "add"}}]},
          {"role": "tool", "content": "4"}, FOUR],
      "tools": [ADD]}),
    ("sharegpt-pair",
     {"conversations": [{"from": "human", "value": "2 + 2?"}],
      "chosen": {"from": "gpt", "value": "4"}, "rejected": {"from": "gpt", "value": "5"}},
     "dpo", {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}),
    ("alpaca", {"instruction": "Add.", "input": "2 + 2", "output": "4"}, "sdft",
     {"prompt": "Add.\n\n2 + 2", "completion": "4"}),
    ("alpaca-history",
     {"instruction": "2 + 2?", "output": "4", "system": "s", "history": [["1?", "1"]]}, "sdft",
     {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1?"},
                 {"role": "assistant", "content": "1"}, USER], "completion": "4"}),
    ("trl-explicit", {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, "dpo",
     {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}),
    ("trl-conversational", {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}, "dpo",
     {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}),
    ("trl-implicit", {"chosen": [USER, FOUR], "rejected": [USER, FIVE]}, "dpo",
     {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}),
    ("trl-implicit-text", {"chosen": "2 + 2? It is 4", "rejected": "2 + 2? It is 5"}, "dpo",
     {"prompt": "2 + 2? It is", "chosen": " 4", "rejected": " 5"}),
    ("hh-rlhf",
     {"chosen": "\n\nHuman: 2 + 2?\n\nAssistant: It is 4",
      "rejected": "\n\nHuman: 2 + 2?\n\nAssistant: It is 5"}, "dpo",
     {"prompt": "\n\nHuman: 2 + 2?\n\nAssistant:", "chosen": " It is 4", "rejected": " It is 5"}),
    ("ultrafeedback", {"prompt": "2 + 2?", "chosen": [USER, FOUR], "rejected": [USER, FIVE]},
     "dpo", {"prompt": "2 + 2?", "chosen": [FOUR], "rejected": [FIVE]}),
    ("pair-to-demonstration", {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, "sdft",
     {"prompt": "2 + 2?", "completion": "4"}),
    ("unpaired", {"prompt": "2 + 2?", "completion": "4", "label": True}, "sdft",
     {"prompt": "2 + 2?", "completion": "4"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "target", "expected"), [c[1:] for c in CONVERSIONS], ids=[c[0] for c in CONVERSIONS]
)
def test_each_format_becomes_ours_and_passes_the_check(
    row: Any, target: str, expected: Any, cli: Cli, work: Path
) -> None:
    write_lines(work / "in.jsonl", [row])
    result = cli("convert", "in.jsonl", "--to", target, "-o", "out.jsonl")
    assert result.code == 0, result.err
    assert read_lines(work / "out.jsonl") == [expected]
    assert cli("check", "out.jsonl", "--type", target).code == 0


REJECTED: list[tuple[Any, str, str]] = [
    ({"messages": [USER]}, "sdft", "no assistant message"),
    ({"messages": [USER, FOUR, USER]}, "sdft", "ends with the user"),
    ({"messages": [USER, FOUR]}, "dpo", "no pair"),
    ({"messages": "hello"}, "sdft", "not a list"),
    ({"conversations": [{"from": "alien", "value": "x"}]}, "sdft", 'is from "alien"'),
    ({"instruction": "x"}, "sdft", "its output is missing"),
    ({"text": "x"}, "sdft", "no known format: text"),
    ({"prompt": "x", "completion": "y", "label": False}, "sdft", "one to avoid"),
    ({"prompt": "x", "completion": " "}, "sdft", "empty-text /completion"),
    ({"chosen": "a", "rejected": "b"}, "dpo", "no common start"),
    ([1], "sdft", "not-an-object"),
    ({"prompt": "x", "completion": ["y"]}, "environment", "does not end in text"),
    ({"prompt": "x", "completion": 7}, "environment", "does not end in text"),
    ({"instruction": "x", "output": "y", "history": 7}, "sdft", "not a list of pairs"),
]


@pytest.mark.parametrize(("row", "target", "reason"), REJECTED)
def test_a_row_that_cannot_be_converted_is_kept_with_the_reason(
    row: Any, target: str, reason: str, cli: Cli, work: Path
) -> None:
    write_lines(work / "in.jsonl", [{"prompt": "a", "completion": "b", "chosen": "b",
                                     "rejected": "c"}, row])  # fmt: skip
    result = cli("convert", "in.jsonl", "--to", target, "-o", "out.jsonl")
    assert result.code == 1
    (reject,) = read_lines(work / "out.rejects.jsonl")
    assert (reject["line"], reject["row"]) == (2, row)
    assert reason in reject["reason"]
    assert len(read_lines(work / "out.jsonl")) == 1
    assert "1 rows rejected, see out.rejects.jsonl" in result.err


def test_lines_that_are_no_json_or_no_text_are_kept_too(cli: Cli, work: Path) -> None:
    (work / "in.jsonl").write_bytes(b'{"messages": \n\xff\xfe\x00\n')
    (work / "in.jsonl").write_bytes(b'{"messages": ]\n{"a": "\xe9"}\n')
    assert cli("convert", "in.jsonl", "--to", "sdft", "--rejects", "r.jsonl").code == 1
    first, second = read_lines(work / "r.jsonl")
    assert first["text"] == '{"messages": ]'
    assert bytes.fromhex(second["bytes"]) == b'{"a": "\xe9"}'


def test_a_key_that_comes_twice_is_not_lost_on_the_way(cli: Cli, work: Path) -> None:
    text = '{"prompt": "a", "prompt": "b", "completion": "c"}'
    (work / "in.jsonl").write_text(text + "\n")
    cli("convert", "in.jsonl", "--to", "sdft")
    (reject,) = read_lines(work / "in.rejects.jsonl")
    assert reject["text"] == text
    assert reject["reason"].startswith("duplicate-key")


def test_repeated_rows_are_rejected_so_that_the_output_passes(cli: Cli, work: Path) -> None:
    write_lines(work / "in.jsonl", [{"messages": [USER, FOUR]}] * 2)
    assert cli("convert", "in.jsonl", "--to", "sdft", "-o", "out.jsonl").code == 1
    assert read_lines(work / "out.rejects.jsonl")[0]["reason"] == "duplicate-row: the same as row 1"
    assert cli("check", "out.jsonl").code == 0


def test_a_json_list_is_read_as_rows(cli: Cli, work: Path) -> None:
    rows = [{"instruction": f"Say {n}.", "input": "", "output": str(n)} for n in range(3)]
    (work / "alpaca.json").write_text(json.dumps(rows, indent=1))
    assert cli("convert", "alpaca.json", "--to", "sdft", "-o", "out.jsonl").code == 0
    assert read_lines(work / "out.jsonl")[2] == {"prompt": "Say 2.", "completion": "2"}


def test_parquet_keeps_types_and_gains_no_nulls(cli: Cli, work: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"messages": [USER, CALL, RESULT, FOUR], "score": 1.0, "n": 2**40},
        {"messages": [USER, FIVE], "meta": {"a": 1}},
    ]
    parquet.write_table(arrow.Table.from_pylist(rows, arrow.schema([
        ("messages", arrow.array([rows[0]["messages"]]).type), ("score", arrow.float64()),
        ("n", arrow.int64()), ("meta", arrow.struct([("a", arrow.int8()), ("b", arrow.string())])),
    ])), work / "in.parquet")  # fmt: skip
    assert cli("convert", "in.parquet", "--to", "sdft", "-o", "out.jsonl").code == 0
    first, second = read_lines(work / "out.jsonl")
    assert json.dumps([first["score"], first["n"]]) == "[1.0, 1099511627776]"
    assert first["prompt"] == [USER]
    assert first["completion"][0]["tool_calls"] == CALL["tool_calls"]
    assert second == {"prompt": [USER], "completion": [FIVE], "meta": {"a": 1}}


def test_parquet_columns_without_a_json_type_are_rejected(cli: Cli, work: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"prompt": ["a"], "completion": ["b"], "image": [b"\x00"]})
    parquet.write_table(table, work / "in.parquet")
    assert cli("convert", "in.parquet", "--to", "sdft", "-o", "out.jsonl").code == 1
    assert "no type for" in read_lines(work / "out.rejects.jsonl")[0]["reason"]


def test_standard_input_goes_to_standard_output(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"messages": [USER, FOUR]}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    result = cli("convert", "-", "--to", "sdft")
    assert json.loads(result.out) == {"prompt": [USER], "completion": [FOUR]}
    assert "1 rows converted to sdft from OpenAI chat rows" in result.err


def test_the_input_is_never_written_over(cli: Cli, work: Path) -> None:
    write_lines(work / "in.jsonl", [{"messages": [USER, FOUR]}])
    result = cli("convert", "in.jsonl", "--to", "sdft", "-o", "in.jsonl")
    assert (result.code, result.err) == (
        2, "rlt: in.jsonl is the input; write to another file\n")  # fmt: skip
    assert read_lines(work / "in.jsonl") == [{"messages": [USER, FOUR]}]


def test_nothing_is_written_over_without_force(cli: Cli, work: Path) -> None:
    write_lines(work / "in.jsonl", [{"messages": [USER, FOUR]}])
    write_lines(work / "out.jsonl", [{"mine": 1}])
    arguments = ("convert", "in.jsonl", "--to", "sdft", "-o", "out.jsonl")
    result = cli(*arguments)
    assert (result.code, result.err) == (
        2, "rlt: out.jsonl is there already; --force writes over it\n")  # fmt: skip
    assert read_lines(work / "out.jsonl") == [{"mine": 1}]
    assert cli(*arguments, "--force").code == 0
    assert len(read_lines(work / "out.jsonl")) == 1


def test_the_real_chat_rows_become_sdft(cli: Cli, work: Path, repository: Path) -> None:
    data = repository.parent / "shared" / "data" / "conversations.messages.jsonl"
    if not data.is_file():
        pytest.fail(f"the real data is not at {data}")
    assert cli("convert", data, "--to", "sdft", "-o", "out.jsonl").code == 0
    assert len(read_lines(work / "out.jsonl")) == 128
    assert cli("check", "out.jsonl").code == 0
