"""A mistake costs one line: exit 2, nothing trained, nothing overwritten."""

from __future__ import annotations

import fcntl
import json
import os
import re
from importlib import util
from pathlib import Path

import pytest

from conftest import Cli
from helpers import write_lines


@pytest.fixture
def files(work: Path, rows: Path) -> Path:
    (work / "empty.jsonl").write_text("")
    (work / "blank.jsonl").write_text("\n\n")
    write_lines(work / "none.jsonl", [{"prompt": 1}, {"completion": "x"}])
    good = {"prompt": "a", "completion": "b"}
    write_lines(work / "missing.jsonl", [good, {"prompt": "a"}, good])
    (work / "broken.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": \n')
    (work / "wrong.toml").write_text("stepz = 3\n")
    (work / "odd.toml").write_text("out = 3\n")
    return work


SDFT = ("--plugin", "sdft")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SDFT, "--data", "nowhere.jsonl"), r"nowhere.jsonl.*no such file"),
        ((*SDFT, "--data", "."), r"\. is a directory|directory"),
        ((*SDFT, "--data", "empty.jsonl"), r"empty.jsonl.*no rows|empty"),
        ((*SDFT, "--data", "blank.jsonl"), r"blank.jsonl.*no rows|empty"),
        ((*SDFT, "--data", "none.jsonl"), r"none.jsonl:1:\d+: "),
        ((*SDFT, "--data", "missing.jsonl"), r"missing.jsonl:2:1: .*completion"),
        ((*SDFT, "--data", "broken.jsonl"), r"broken.jsonl:2:\d+: "),
        ((*SDFT, "--data", "rows.jsonl", "--eval-data", "empty.jsonl"), r"empty.jsonl"),
        (("--plugin", "sdfd", "--data", "rows.jsonl"), r"no plugin is called 'sdfd'.*'sdft'"),
        (("--data", "rows.jsonl"), r"--plugin NAME"),
        (("--plugin", "gone.py", "--data", "rows.jsonl"), r"gone.py: no such file"),
        ((*SDFT, *SDFT, "--data", "rows.jsonl"), r"sdft is given twice"),
        ((*SDFT, "-o", "cheks=off"), r"cheks.*did you mean 'checks'"),
        ((*SDFT, "-o", "checks"), r"expected key=value"),
        ((*SDFT, "-o", "checks=maybe"), r"checks=maybe.*'on', 'off'"),
        ((*SDFT, "--stepz", 3), r"--stepz"),
        ((*SDFT, "--steps", 0), r"--steps must be at least 1, not 0"),
        ((*SDFT, "--steps", "many"), r"--steps"),
        ((*SDFT, "--lr", "nan"), r"--lr must be a number above 0"),
        ((*SDFT, "--config", "wrong.toml"), r"no 'stepz'; did you mean 'steps'"),
        ((*SDFT, "--config", "odd.toml"), r"--out must be a string, not 3"),
        ((*SDFT, "--data", "rows.jsonl", "--data", "rows.jsonl"), r"--data.*give one file"),
        ((*SDFT, "--log", "no/x", "--data", "rows.jsonl", "--steps", 1), r"--log no/x"),
        ((*SDFT, "--data", "-", "--eval-data", "-"), r"only one of --data and --eval-data"),
        ((*SDFT, "--out", ".."), r"--out '\.\.' is no name"),
        ((*SDFT, "--seed", 2**70), r"--seed must be below"),
        ((*SDFT, "--data", "rows.jsonl", "--prompts-per-step", 7), r"has only 6 rows"),
        ((*SDFT, "--resume", "auto"), r"--resume auto needs --out"),
        ((*SDFT, "--resume", "auto", "--out", "never"), r"runs/never holds no run"),
        ((*SDFT, "--resume", "somewhere"), r"auto or a tinker:// path"),
    ],
)  # fmt: skip
def test_it_is_one_line_and_nothing_is_left(
    train: Cli, files: Path, arguments: tuple[object, ...], message: str
) -> None:
    result = train(*arguments)
    assert result.code == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("rlt: ")
    assert re.search(message, line), line
    assert not (files / "runs").exists()


def test_the_hosted_service_needs_a_key(cli: Cli, rows: Path) -> None:
    result = cli("run", *SDFT, "--data", rows, "--engine", "tinker")
    assert result.code == 2
    assert "TINKER_API_KEY" in result.err
    assert not Path("runs").exists()


def test_an_address_where_nobody_listens_is_said_at_once(cli: Cli, rows: Path) -> None:
    result = cli("run", *SDFT, "--data", rows, "--base-url", "http://127.0.0.1:9")
    assert result.code == 2
    assert "no Tinker server answers at http://127.0.0.1:9" in result.err


def test_a_model_that_is_not_here_is_said_without_the_network(cli: Cli, rows: Path) -> None:
    result = cli("run", *SDFT, "--data", rows, "--engine", "local", "--model", "nobody/nothing")
    assert result.code == 2
    assert "nobody/nothing" in result.err
    assert not Path("runs").exists()


def test_a_missing_extra_is_named_with_its_cure(
    cli: Cli, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = lambda name: None if name == "peft" else util.find_spec(name)  # noqa: E731
    monkeypatch.setattr("rlt.local.models.find_spec", present)
    result = cli("run", *SDFT, "--data", rows, "--engine", "local")
    assert result.code == 2
    assert "peft" in result.err
    assert "rlt[local]" in result.err


def test_a_run_is_never_started_over_another(train: Cli, rows: Path) -> None:
    arguments = (*SDFT, "--data", rows, "--steps", 1, "--out", "mine")
    assert train(*arguments).code == 0
    before = {p: p.read_bytes() for p in Path("runs/mine").rglob("*") if p.is_file()}
    result = train(*arguments)
    assert result.code == 2
    assert "already holds a run" in result.err
    assert {p: p.read_bytes() for p in Path("runs/mine").rglob("*") if p.is_file()} == before


def test_a_directory_in_use_is_left_alone(train: Cli, rows: Path) -> None:
    Path("runs/busy").mkdir(parents=True)
    lock = os.open("runs/busy/.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    result = train(*SDFT, "--data", rows, "--out", "busy")
    os.close(lock)
    assert result.code == 2
    assert "in use by another process" in result.err
    assert sorted(p.name for p in Path("runs/busy").iterdir()) == [".lock"]


def test_a_log_of_another_run_is_not_mixed_with_this_one(train: Cli, rows: Path) -> None:
    Path("old.jsonl").write_text('{"step": 0}\n')
    result = train(*SDFT, "--data", rows, "--log", "old.jsonl")
    assert result.code == 2
    assert Path("old.jsonl").read_text() == '{"step": 0}\n'


def test_an_error_is_json_too_when_logs_are(train: Cli) -> None:
    result = train(*SDFT, "--data", "nowhere.jsonl", "--log-format", "json")
    line = json.loads(result.err)
    assert (line["level"], line["exit_code"]) == ("error", 2)


def test_a_password_in_an_address_is_not_shown(cli: Cli, rows: Path) -> None:
    url = "http://user:hidden@127.0.0.1:9"
    result = cli("run", *SDFT, "--data", rows, "--base-url", url)
    assert result.code == 2
    assert "hidden" not in result.err


def test_words_like_json_and_debug_are_only_words(train: Cli) -> None:
    result = train(*SDFT, "--data", "nowhere.jsonl", "--out", "debug", "--log", "json")
    assert result.err.startswith("rlt: ")
    assert len(result.err.splitlines()) == 1
