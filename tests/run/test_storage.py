"""What a run keeps, what it deletes, and what happens when the disk does not play along."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from conftest import Cli
from helpers import read_lines
from rlt import run_directory
from rlt.run_directory import JsonLines, RunDirectory


def saved_steps(run: str) -> list[int]:
    return sorted(
        int(path.name.removeprefix("step-"))
        for path in Path(f"runs/{run}/weights").glob("*/weights/step-*")
    )


def test_the_newest_and_three_before_it_are_kept(train: Cli, rows: Path) -> None:
    arguments = ("--plugin", "sdft", "--data", rows, "--save-every", 1, "--out", "k")
    assert train(*arguments, "--steps", 12).code == 0
    assert saved_steps("k") == [9, 10, 11, 12]
    assert [c.step for c in RunDirectory(Path("runs/k")).ledger()] == [9, 10, 11, 12]


def test_keep_0_keeps_all(train: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--save-every", 1, "--steps", 6, "--keep", 0,
          "--out", "all")  # fmt: skip
    assert saved_steps("all") == [1, 2, 3, 4, 5, 6]


def test_checkpoints_are_listed_and_pruned(train: Cli, cli: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--save-every", 1, "--steps", 4, "--out", "p")
    assert len(cli("checkpoints", "p").out.splitlines()) == 4
    pruned = cli("checkpoints", "p", "--prune", "--keep", 1)
    assert (pruned.code, len(pruned.out.splitlines())) == (0, 2)
    assert saved_steps("p") == [3, 4]
    assert train("--out", "p", "--resume", "auto", "--steps", 5).code == 0


def test_runs_are_listed(train: Cli, cli: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "one")
    listed = cli("runs").out
    assert listed.startswith("one  sdft  ")
    assert "2/2 steps" in listed


def test_commands_on_a_run_that_is_not_there_say_so(cli: Cli) -> None:
    for command in ("checkpoints", "verify"):
        result = cli(command, "nothing")
        assert result.code == 2
        assert "runs/nothing holds no run" in result.err


def test_a_run_is_verified_and_tampering_is_found(train: Cli, cli: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 4, "--save-every", 2, "--out", "v")
    assert cli("verify", "v").out == "all is as it should be\n"
    metrics, ledger = Path("runs/v/metrics.jsonl"), Path("runs/v/rows.jsonl")
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([lines[0], lines[0], lines[2], lines[3]]))
    used = read_lines(ledger)
    used[0]["row"], used[1]["row"] = used[1]["row"], used[0]["row"]
    ledger.write_text("".join(json.dumps(line) + "\n" for line in used))
    result = cli("verify", "v")
    assert result.code == 1
    assert "step 0 is there 2 times" in result.out
    assert "step 1 is missing" in result.out
    assert "the rows of step 0 are not those of the run's order" in result.out


def test_two_different_runs_are_told_apart(train: Cli, cli: Cli, rows: Path) -> None:
    for name, lr in (("a", 1e-3), ("b", 2e-3)):
        train("--plugin", "sdft", "--data", rows, "--steps", 2, "--lr", lr, "--out", name)
    result = cli("verify", "a", "b")
    assert result.code == 1
    assert "the configurations differ" in result.out
    assert "metrics.jsonl:1: lr is '0.001' and '0.002'" in result.out
    assert "the weights after 2 steps differ" in result.out


def test_a_full_disk_ends_the_run_with_a_checkpoint_where_there_is_room(
    train: Cli, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = os.write, []

    def failing(descriptor: int, data: bytes) -> int:
        if b'"step": 2' in data and b"mean_reward" in data:
            full.append(True)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(run_directory.os, "write", failing)
    result = train("--plugin", "sdft", "--data", rows, "--steps", 5, "--out", "full")
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert "cannot write runs/full/metrics.jsonl: No space left on device" in last
    assert "the weights after 3 steps are in tinker://" in last


def test_a_metrics_file_removed_under_the_run_is_noticed(train: Cli, rows: Path) -> None:
    Path("vandal.py").write_text(
        "import rlt\n@rlt.hookimpl(trylast=True)\ndef on_step(run, record):\n"
        "    if record.step == 1: run.directory.metrics.path.unlink()\n"
    )
    result = train("--plugin", "sdft", "--plugin", "vandal.py", "--data", rows, "--steps", 5,
                   "--out", "gone")  # fmt: skip
    assert result.code == 1
    assert "metrics.jsonl was removed or cut" in result.err.splitlines()[-1]


def test_a_directory_that_cannot_be_written_is_said_before_anything_starts(
    train: Cli, rows: Path
) -> None:
    Path("runs").write_text("a file in the way")
    result = train("--plugin", "sdft", "--data", rows, "--out", "x")
    assert result.code == 2
    assert "cannot write" in result.err


def test_appends_are_whole_lines_behind_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "lo')
    lines = JsonLines(path)
    lines.append({"step": 2})
    assert [line["step"] for line in lines] == [0, 2]


def test_text_that_is_no_unicode_is_still_json(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "lines.jsonl")
    lines.append({"text": "\ud800 é"})
    assert list(lines) == [{"text": "\ud800 é"}]


def test_a_line_torn_inside_a_character_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes('{"a": 1}\n{"b": "é'.encode()[:-1])
    lines = JsonLines(path)
    assert list(lines) == [{"a": 1}]
    lines.append({"c": 2})
    assert list(lines) == [{"a": 1}, {"c": 2}]


def test_a_hosted_prune_that_fails_marks_nothing_as_deleted(
    train: Cli, cli: Cli, rows: Path
) -> None:
    train("--plugin", "sdft", "--data", rows, "--save-every", 1, "--steps", 4, "--keep", 0,
          "--out", "h")  # fmt: skip
    config = Path("runs/h/config.json")
    config.write_text(config.read_text().replace('"engine": "local"', '"engine": "tinker"'))
    before = Path("runs/h/checkpoints.jsonl").read_bytes()
    result = cli("checkpoints", "h", "--prune", "--keep", 0)
    assert result.code == 2
    assert "TINKER_API_KEY" in result.err
    assert Path("runs/h/checkpoints.jsonl").read_bytes() == before


def test_weights_that_no_ledger_knows_are_pruned_too(train: Cli, cli: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "o")
    orphan = next(Path("runs/o/weights").glob("*/weights")) / "step-000099"
    orphan.mkdir()
    assert "which no ledger knows" in cli("checkpoints", "o", "--prune").err
    assert not orphan.exists()


def test_one_broken_run_does_not_hide_the_others(train: Cli, cli: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 1, "--out", "good")
    Path("runs/bad").mkdir()
    Path("runs/bad/config.json").write_text("{")
    listed = cli("runs")
    assert listed.code == 0
    assert "broken: " in listed.out
    assert "good" in listed.out
