"""A resumed run goes on as if it had never stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli
from helpers import read_lines, without_times


@pytest.fixture
def settings(rows: Path, held_out: Path) -> tuple[object, ...]:
    return ("--plugin", "sdft", "--data", rows, "--eval-data", held_out, "--eval-every", 2,
            "--save-every", 2, "--prompts-per-step", 4)  # fmt: skip


def adapter(run: str, step: int) -> bytes:
    line = next(x for x in read_lines(Path(f"runs/{run}/checkpoints.jsonl")) if x["step"] == step)
    model, kind, name = line["sampler"].removeprefix("tinker://").split("/")
    folder = Path(f"runs/{run}/weights") / model.replace(":", "_") / kind / name
    return (folder / "adapter_model.safetensors").read_bytes()


def test_it_equals_a_run_that_was_never_stopped(train: Cli, settings: tuple[object, ...]) -> None:
    assert train(*settings, "--steps", 5, "--out", "whole").code == 0
    assert train(*settings, "--steps", 3, "--out", "parts").code == 0
    assert train("--out", "parts", "--resume", "auto", "--steps", 5).code == 0
    for name in ("metrics.jsonl", "rows.jsonl", "samples.jsonl"):
        whole, parts = (
            [x for x in without_times(read_lines(Path("runs", run, name)))
             if (x.get("split"), x["step"]) != ("eval", 3)]
            for run in ("whole", "parts")
        )  # fmt: skip
        assert whole == parts, name
    assert adapter("whole", 5) == adapter("parts", 5)


def test_auto_takes_the_newest_entry_and_sets_later_lines_aside(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 4, "--out", "run")
    ledger = Path("runs/run/checkpoints.jsonl")
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:1]))
    result = train("--out", "run", "--resume", "auto", "--steps", 4)
    assert result.code == 0, result.err
    assert "resuming" in result.err
    steps = [x["step"] for x in read_lines(Path("runs/run/metrics.jsonl")) if "split" not in x]
    assert steps == [0, 1, 2, 3]
    aside = read_lines(Path("runs/run/metrics.superseded.jsonl"))
    assert [x["step"] for x in aside if "split" not in x] == [2, 3]


def test_a_printed_path_finds_its_run_by_itself(train: Cli, settings: tuple[object, ...]) -> None:
    first = train(*settings, "--steps", 2, "--out", "run")
    path = next(x.split()[1] for x in first.out.splitlines() if x.startswith("checkpoint"))
    assert train("--resume", path, "--steps", 3).code == 0
    steps = [x["step"] for x in read_lines(Path("runs/run/rows.jsonl"))]
    assert steps == [0] * 4 + [1] * 4 + [2] * 4


def test_a_path_that_no_ledger_knows_starts_a_new_run_and_says_so(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 2, "--out", "old")
    path = read_lines(Path("runs/old/checkpoints.jsonl"))[-1]["state"]
    Path("runs/old/checkpoints.jsonl").unlink()
    result = train(*settings, "--steps", 1, "--out", "new", "--resume", path)
    assert result.code == 0, result.err
    assert "none of this run's: a new run starts from them at step 0" in result.err
    old = read_lines(Path("runs/old/metrics.jsonl"))[-1]
    new = read_lines(Path("runs/new/metrics.jsonl"))[0]
    assert old["split"] == new["split"] == "eval"
    assert new["loss"] == old["loss"], "the weights are those that were saved"


def test_a_checkpoint_that_is_gone_falls_back_to_the_one_before(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 4, "--out", "run")
    newest = next(Path("runs/run/weights").glob("*/weights/step-000004"))
    newest.rename(newest.with_name("elsewhere"))
    result = train("--out", "run", "--resume", "auto", "--steps", 5)
    assert result.code == 0, result.err
    assert "trying the one before" in result.err
    steps = [x["step"] for x in read_lines(Path("runs/run/metrics.jsonl")) if "split" not in x]
    assert steps == [0, 1, 2, 3, 4]


def test_a_run_without_a_checkpoint_yet_begins_again(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 2, "--out", "run")
    Path("runs/run/checkpoints.jsonl").unlink()
    result = train("--out", "run", "--resume", "auto", "--steps", 1)
    assert result.code == 0, result.err
    steps = [x["step"] for x in read_lines(Path("runs/run/metrics.jsonl")) if "split" not in x]
    assert steps == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rank", 8), "--rank 8: the run being resumed has 4"),
        (("--seed", 1), "--seed 1: the run being resumed has 0"),
        (("--data", "other.jsonl"), "not the data that the run began with"),
    ],
)
def test_what_would_make_it_another_run_is_refused(
    train: Cli, settings: tuple[object, ...], arguments: tuple[object, ...], message: str
) -> None:
    train(*settings, "--steps", 1, "--out", "run")
    Path("other.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 4)
    before = Path("runs/run/metrics.jsonl").read_bytes()
    result = train("--out", "run", "--resume", "auto", "--steps", 2, *arguments)
    assert result.code == 2
    assert message in result.err
    assert Path("runs/run/metrics.jsonl").read_bytes() == before


def test_a_changed_learning_rate_is_taken_and_said(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 1, "--out", "run")
    result = train("--out", "run", "--resume", "auto", "--steps", 2, "--lr", "1e-4")
    assert result.code == 0
    assert "setting=lr" in result.err
    assert read_lines(Path("runs/run/metrics.jsonl"))[-2]["lr"] == 1e-4


def test_the_saved_configuration_holds_no_secret(
    train: Cli, settings: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-very-secret")
    train(*settings, "--steps", 1, "--out", "run")
    saved = Path("runs/run/config.json").read_text()
    assert "very-secret" not in saved
    assert json.loads(saved)["engine"] == "local"


def test_a_run_from_other_weights_begins_again_from_them(
    train: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 2, "--out", "old")
    path = read_lines(Path("runs/old/checkpoints.jsonl"))[-1]["state"]
    Path("runs/old/checkpoints.jsonl").unlink()
    assert train(*settings, "--steps", 1, "--out", "new", "--resume", path).code == 0
    first = without_times(read_lines(Path("runs/new/metrics.jsonl")))
    Path("runs/new/checkpoints.jsonl").unlink()  # as if killed before the first save
    assert train("--out", "new", "--resume", "auto").code == 0
    assert without_times(read_lines(Path("runs/new/metrics.jsonl"))) == first


def test_a_second_resume_keeps_what_the_first_one_changed(
    train: Cli, cli: Cli, settings: tuple[object, ...]
) -> None:
    train(*settings, "--steps", 1, "--out", "run")
    train("--out", "run", "--resume", "auto", "--steps", 3, "--lr", "1e-4")
    ledger = Path("runs/run/checkpoints.jsonl")
    ledger.write_text(ledger.read_text().splitlines(keepends=True)[0])
    result = train("--out", "run", "--resume", "auto")
    assert result.code == 0, result.err
    steps = [x for x in read_lines(Path("runs/run/metrics.jsonl")) if "split" not in x]
    assert [(x["step"], x["lr"]) for x in steps] == [(0, 5e-4), (1, 1e-4), (2, 1e-4)]
    saved = json.loads(Path("runs/run/config.json").read_text())
    assert saved["resumed"][0] == {"steps": 3, "lr": [5e-4, 1e-4]}
    assert cli("verify", "run").code == 0


def test_the_printed_command_survives_a_shell(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--steps", 1, "--out", "my run")
    assert "rlt run --out 'my run' --resume auto" in result.out


@pytest.mark.parametrize("hook", ["on_evaluate(run, record)", "on_step(run, record)"])
def test_a_stop_always_saves_what_was_done(
    train: Cli, settings: tuple[object, ...], hook: str
) -> None:
    Path("stop.py").write_text(
        f"import rlt\n@rlt.hookimpl\ndef {hook}:\n"
        "    step = record['step'] if isinstance(record, dict) else record.step + 1\n"
        "    if step == 3: run.stop('enough')\n"
    )
    result = train(*settings, "--plugin", "stop.py", "--steps", 9, "--save-every", 5,
                   "--eval-every", 3, "--out", "run")  # fmt: skip
    assert result.code == 0, result.err
    assert [x["step"] for x in read_lines(Path("runs/run/checkpoints.jsonl"))] == [3]


def test_a_log_of_another_run_is_never_rewound(train: Cli, settings: tuple[object, ...]) -> None:
    train(*settings, "--steps", 2, "--out", "a", "--log", "a.jsonl")
    train(*settings, "--steps", 2, "--out", "b")
    before = Path("a.jsonl").read_bytes()
    result = train("--out", "b", "--resume", "auto", "--steps", 3, "--log", "a.jsonl")
    assert result.code == 2
    assert Path("a.jsonl").read_bytes() == before


def test_a_run_of_an_older_version_that_had_fewer_settings_goes_on(
    train: Cli, settings: tuple[object, ...]
) -> None:
    assert train(*settings, "--steps", 1, "--out", "old").code == 0
    path = Path("runs/old/config.json")
    saved = json.loads(path.read_text())
    del saved["config"]["thinking"]
    path.write_text(json.dumps(saved))
    result = train("--out", "old", "--resume", "auto", "--steps", 2)
    assert result.code == 0, result.err
    assert [line["step"] for line in read_lines(Path("runs/old/metrics.jsonl"))
            if "split" not in line] == [0, 1]  # fmt: skip


def test_weights_that_are_not_there_leave_no_run_behind(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sft", "--data", rows, "--out", "new", "--resume",
                   "tinker://nobody/weights/nothing")  # fmt: skip
    assert result.code == 2
    assert not Path("runs").exists()
