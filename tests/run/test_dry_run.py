"""`--dry-run` finds what a run would find first, shows what it would train on, leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Cli
from helpers import write_lines


def test_it_counts_and_shows_and_leaves_no_trace(train: Cli, rows: Path, work: Path) -> None:
    before = sorted(work.rglob("*"))
    result = train("--plugin", "sdft", "--data", rows, "--steps", 3, "--prompts-per-step", 2,
                   "--out", "d", "--log", "log.jsonl", "--dry-run")  # fmt: skip
    assert result.code == 0, result.err
    assert "3 steps of 2 reach" in result.out
    first = json.loads(rows.read_text().splitlines()[0])["prompt"]
    assert "<|im_start|>user" in result.out
    assert first.split()[0] in result.out
    assert sorted(work.rglob("*")) == before


def test_it_shows_the_first_row_that_the_run_would_take(train: Cli, rows: Path) -> None:
    arguments = ("--plugin", "sft", "--data", rows, "--steps", 1, "--seed", 3, "--out", "d")
    dry = train(*arguments, "--dry-run")
    assert train(*arguments).code == 0
    line = json.loads(Path("runs/d/rows.jsonl").read_text().splitlines()[0])["line"]
    assert json.loads(rows.read_text().splitlines()[line - 1])["prompt"] in dry.out


def test_a_row_that_would_be_dropped_is_named(train: Cli, work: Path) -> None:
    long = {"prompt": "Say much", "completion": "much " * 2000}
    each = ("--plugin", "sft", "--data", "a.jsonl", "--dry-run", "--steps")
    write_lines(work / "a.jsonl", [long, {"prompt": "Say little", "completion": "little"}])
    result = train(*each, 2)
    assert result.code == 0
    assert "a.jsonl:1" in result.err
    assert "1 of these rows" in result.out
    write_lines(work / "a.jsonl", [long])
    result = train(*each, 1)
    assert result.code == 2
    assert "refuses every row" in result.err.splitlines()[-1]


def test_a_prompt_that_leaves_no_room_for_a_sample_is_counted(train: Cli, rows: Path) -> None:
    each = ("--plugin", "sdft", "--data", rows, "--steps", 1, "--dry-run")
    result = train(*each, "--max-tokens", 500)
    assert result.code == 0, result.err
    assert "1 have no room for --max-tokens 500" in result.out
    result = train(*each, "--max-tokens", 9999)
    assert result.code == 2
    assert "leaves no room for a prompt" in result.err.splitlines()[-1]


def test_a_row_that_comes_twice_counts_once(train: Cli, rows: Path) -> None:
    count = len(rows.read_text().splitlines())
    result = train("--plugin", "sft", "--data", rows, "--steps", 3 * count, "--dry-run")
    assert f"reach {count} of them" in result.out


def test_only_folders_that_it_made_are_removed(train: Cli, rows: Path) -> None:
    Path("mine").mkdir()
    for out in ("mine/", "a/b/c"):
        result = train("--plugin", "sft", "--data", rows, "--out", out, "--dry-run")
        assert result.code == 0, result.err
    assert Path("mine").is_dir()
    assert not Path("a").exists()


def test_it_refuses_what_a_run_refuses(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "-o", "mod=topk", "--dry-run")
    assert result.code == 2
    assert "mod" in result.err.splitlines()[-1]
    assert train("--plugin", "sft", "--data", rows, "--steps", 1, "--out", "d").code == 0
    taken = train("--plugin", "sft", "--data", rows, "--out", "d", "--dry-run")
    assert taken.code == 2
    assert "already holds a run" in taken.err


def test_of_a_resumed_run_it_shows_what_is_left(train: Cli, rows: Path) -> None:
    assert train("--plugin", "sft", "--data", rows, "--steps", 1, "--out", "d").code == 0
    files = {path: path.stat().st_mtime_ns for path in Path("runs/d").iterdir() if path.is_file()}
    result = train("--out", "d", "--resume", "auto", "--steps", 3, "--dry-run")
    assert result.code == 0, result.err
    assert "2 steps of 1 reach 2 of them" in result.out
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_rows_of_a_plugin_without_text_are_only_counted(train: Cli) -> None:
    Path("numbers.py").write_text(
        "import rlt\nPLUGIN = rlt.PluginInfo()\n@rlt.hookimpl\ndef load_rows():\n"
        "    return [rlt.Row({'n': n}, str(n), 'x', n) for n in range(3)]\n"
        "@rlt.hookimpl\ndef make_datums(): pass\n"
    )
    result = train("--plugin", "numbers.py", "--steps", 2, "--dry-run")
    assert result.code == 0, result.err
    assert "3 read; 2 steps of 1 reach 2 of them" in result.out
