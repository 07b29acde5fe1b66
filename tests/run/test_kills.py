"""Killed at any moment, a run goes on as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from helpers import read_lines, without_times

HEAD = """
import os, rlt

PLUGIN = rlt.PluginInfo()
_at, _left = os.environ.get("KILL_AT", ":0").split(":")
_left = [int(_left)]

def _maybe(place):
    if place == _at:
        _left[0] -= 1
        if _left[0] == 0:
            os.kill(os.getpid(), 9)
"""
HOOK = """
@rlt.hookimpl({order}=True)
def {hook}({arguments}): _maybe("{place}")
"""
ARGUMENTS = {
    "load_rows": "run, split",
    "on_start": "run",
    "make_datums": "run, step, rows",
    "compute_loss": "run, step, batch",
    "on_step": "run, record",
    "on_checkpoint": "run, checkpoint",
    "evaluate": "run, rows",
    "on_evaluate": "run, record",
    "on_finish": "run, outcome",
}


def killer(order: str, prefix: str, *hooks: str) -> str:
    """A plugin that kills its process before (tryfirst) or after (trylast) the others' hooks."""
    return HEAD + "".join(
        HOOK.format(order=order, hook=hook, arguments=ARGUMENTS[hook], place=prefix + hook)
        for hook in hooks
    )


KILLER = killer("tryfirst", "", *ARGUMENTS)
LATE = killer("trylast", "after ", "on_step", "on_checkpoint", "on_evaluate")
BOUNDARIES = [
    "load_rows:1", "on_start:1", "evaluate:1", "on_evaluate:1", "make_datums:1",
    "after on_evaluate:1", "compute_loss:2", "on_step:2", "after on_step:3", "on_checkpoint:1",
    "after on_checkpoint:1", "make_datums:3", "compute_loss:1", "on_step:1", "on_checkpoint:2",
    "evaluate:1", "after on_step:1", "on_finish:1",
]  # fmt: skip


@dataclass
class Runner:
    """Runs command lines in forked processes."""

    process: subprocess.Popen[str]
    work: Path

    def start(self, arguments: Sequence[object], *, wait: bool = True, **env: str) -> int:
        """Return the wait status of the run, or its process id at once when not waiting."""
        command = {
            "arguments": [str(argument) for argument in arguments],
            "env": env,
            "cwd": str(self.work),
            "out": str(self.work / "out.txt"),
            "err": str(self.work / "err.txt"),
            "wait": wait,
        }
        assert self.process.stdin
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> int:
        assert self.process.stdout
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def zygote() -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests/zygote.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield process
    assert process.stdin
    process.stdin.close()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def runner(zygote: subprocess.Popen[str], work: Path) -> Runner:
    return Runner(zygote, work)


@pytest.fixture
def command(rows: Path, held_out: Path, tiny_model: Path, work: Path) -> list[object]:
    (work / "killer.py").write_text(KILLER)
    (work / "late.py").write_text(LATE)
    return ["run", "--plugin", "sdft", "--plugin", "killer.py", "--plugin", "late.py",
            "--engine", "local", "--model", tiny_model, "--data", rows, "--eval-data", held_out,
            "--steps", 13, "--save-every", 2, "--eval-every", 3, "--prompts-per-step", 4,
            "--max-tokens", 6, "--rank", 4, "--schedule", "cosine", "--keep", 2]  # fmt: skip


def files(run: str) -> dict[str, list[dict[str, object]]]:
    names = ("metrics.jsonl", "rows.jsonl", "samples.jsonl")
    return {name: without_times(read_lines(Path("runs", run, name))) for name in names}


def until_done(runner: Runner, name: str) -> None:
    status = runner.start(["run", "--out", name, "--resume", "auto"])
    assert os.waitstatus_to_exitcode(status) == 0, Path("err.txt").read_text()


@pytest.mark.timeout(600)
def test_killed_at_every_hook_and_at_random_times_it_equals_an_undisturbed_run(
    runner: Runner, command: list[object], cli: Cli
) -> None:
    assert runner.start([*command, "--out", "whole"]) == 0, Path("err.txt").read_text()
    kills = 0
    for place in BOUNDARIES:
        begun = Path("runs/parts/config.json").exists()
        how = (
            ["run", "--out", "parts", "--resume", "auto"] if begun else [*command, "--out", "parts"]
        )
        status = runner.start(how, KILL_AT=place)
        assert status == signal.SIGKILL, f"{place} was not reached: {status}"
        kills += 1
    numbers = random.Random(20261201)
    for _ in range(10):
        how = ["run", "--out", "random", "--resume", "auto"]
        if not Path("runs/random/config.json").exists():
            how = [*map(str, command), "--out", "random"]
        delay = f"{numbers.uniform(0.5, 2):.2f}"
        kills += runner.start(how, KILL_AFTER=delay) == signal.SIGKILL
    assert kills >= 20
    for name in ("parts", "random"):
        if not Path(f"runs/{name}/config.json").exists():
            assert runner.start([*command, "--out", name]) == 0
        until_done(runner, name)
        assert files(name) == files("whole")
        compared = cli("verify", "whole", name)
        assert (compared.code, compared.out) == (0, "the runs are equal\n")


@pytest.mark.timeout(300)
def test_a_run_that_was_moved_goes_on_where_it_is(runner: Runner, command: list[object]) -> None:
    assert runner.start([*command, "--out", "whole"]) == 0
    assert runner.start([*command, "--out", "old"], KILL_AT="on_step:6") == signal.SIGKILL
    Path("runs/old").rename("runs/new")
    until_done(runner, "new")
    assert files("new") == files("whole")


@pytest.mark.timeout(300)
def test_the_first_signal_saves_and_the_second_stops_at_once(
    runner: Runner, command: list[object], cli: Cli
) -> None:
    pid = runner.start([*command, "--steps", 5000, "--out", "sig"], wait=False)
    _until(lambda: len(_steps("sig")) >= 2)
    os.kill(pid, signal.SIGINT)
    assert os.waitstatus_to_exitcode(runner.read()) == 130
    last = Path("err.txt").read_text().splitlines()[-1]
    assert "go on with: rlt run --out sig --resume auto" in last
    ledger = read_lines(Path("runs/sig/checkpoints.jsonl"))
    assert max(x["step"] for x in ledger) == len(_steps("sig"))
    assert cli("verify", "sig").code == 0

    pid = runner.start(["run", "--out", "sig", "--resume", "auto"], wait=False)
    before, seen = len(_steps("sig")), len(Path("err.txt").read_text())
    _until(lambda: len(_steps("sig")) > before)
    os.kill(pid, signal.SIGTERM)
    _until(lambda: "once more to stop now" in Path("err.txt").read_text()[seen:])
    os.kill(pid, signal.SIGTERM)
    began = time.monotonic()
    assert os.waitstatus_to_exitcode(runner.read()) == 130
    assert time.monotonic() - began < 30
    done = len(_steps("sig"))
    assert runner.start(["run", "--out", "sig", "--resume", "auto", "--steps", done + 1]) == 0
    assert cli("verify", "sig").code == 0


@pytest.mark.timeout(300)
def test_a_half_written_checkpoint_falls_back_to_the_one_before(
    runner: Runner, command: list[object]
) -> None:
    assert runner.start([*command, "--out", "whole"]) == 0
    assert runner.start([*command, "--out", "half"], KILL_AT="on_step:12") == signal.SIGKILL
    ledger = read_lines(Path("runs/half/checkpoints.jsonl"))
    newest = [line["state"] for line in ledger if "state" in line][-1]
    model, kind, name = newest.removeprefix("tinker://").split("/")
    weights = Path("runs/half/weights") / model.replace(":", "_") / kind / name
    for file in weights.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    until_done(runner, "half")
    assert "trying the one before" in Path("err.txt").read_text()
    assert files("half") == files("whole")


def _steps(run: str) -> list[dict[str, object]]:
    path = Path("runs", run, "metrics.jsonl")
    lines = read_lines(path) if path.exists() else []
    return [line for line in lines if "split" not in line]


def _until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, Path("err.txt").read_text()
        time.sleep(0.02)
