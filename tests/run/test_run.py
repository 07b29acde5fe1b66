"""A run from the command line, on the embedded engine with a tiny model."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import Cli
from helpers import read_lines, without_times

RECORDER = '''
"""An observer that writes down what was trained on."""
import json
import rlt

@rlt.hookimpl
def on_step(run, record):
    with open(run.directory.path / "datums.jsonl", "a") as file:
        for datum in record.batch.datums:
            inputs = datum.model_input.to_ints()
            targets = datum.loss_fn_inputs["target_tokens"].to_numpy().tolist()
            weights = datum.loss_fn_inputs["weights"].to_numpy().tolist()
            file.write(json.dumps({"step": record.step, "inputs": inputs, "targets": targets,
                                   "weights": weights}) + "\\n")
'''


@pytest.fixture
def recorder(work: Path) -> Path:
    path = work / "recorder.py"
    path.write_text(RECORDER)
    return path


def test_a_run_says_what_it_does_and_how_to_go_on(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "demo")
    assert result.code == 0, result.err
    for word in ("engine=local", "rows=6", "steps=2", "checks=on", "step=0", "step=1"):
        assert word in result.err
    assert "6 read = 2 trained + 0 dropped + 4 never reached" in result.out
    assert "checkpoint  tinker://" in result.out
    assert "resume      rlt run --out demo --resume auto" in result.out
    assert "sample      " in result.out


def test_a_metrics_line_has_a_finite_loss_and_counts_from_0(train: Cli, rows: Path) -> None:
    assert train("--plugin", "sdft", "--data", rows, "--steps", 3, "--out", "m").code == 0
    lines = read_lines(Path("runs/m/metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert math.isfinite(line["loss"])
        assert {"mean_reward", "n_datums"} <= line.keys()


def test_the_same_seed_gives_the_same_bytes_but_for_times(train: Cli, rows: Path) -> None:
    for name in ("one", "two"):
        arguments = ("--prompts-per-step", 3, "--group-size", 2, "--eval-data", rows)
        train("--plugin", "sdft", "--data", rows, "--steps", 3, "--out", name, *arguments)
    one, two = (Path("runs", name) for name in ("one", "two"))
    assert without_times(read_lines(one / "metrics.jsonl")) == without_times(
        read_lines(two / "metrics.jsonl")
    )
    assert (one / "samples.jsonl").read_bytes() == (two / "samples.jsonl").read_bytes()
    assert (one / "rows.jsonl").read_bytes() == (two / "rows.jsonl").read_bytes()


def test_another_seed_gives_another_order(train: Cli, rows: Path) -> None:
    for seed in (0, 1):
        train("--plugin", "sdft", "--data", rows, "--steps", 6, "--out", f"s{seed}", "--seed", seed)
    orders = [[line["line"] for line in read_lines(Path(f"runs/s{s}/rows.jsonl"))] for s in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == [1, 2, 3, 4, 5, 6]
    assert orders[0] != orders[1]


def test_the_held_out_loss_is_measured_before_during_and_after(
    train: Cli, rows: Path, held_out: Path
) -> None:
    train("--plugin", "sdft", "--data", rows, "--eval-data", held_out, "--steps", 4,
          "--eval-every", 2, "--out", "e")  # fmt: skip
    lines = read_lines(Path("runs/e/metrics.jsonl"))
    evals = [line for line in lines if line.get("split") == "eval"]
    assert [line["step"] for line in evals] == [0, 2, 4]
    assert evals[-1]["loss"] < evals[0]["loss"]
    assert all(line["n_datums"] == 2 for line in evals)


def test_checkpoints_are_named_by_completed_steps_and_none_is_at_0(train: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 5, "--save-every", 2, "--out", "c")
    ledger = read_lines(Path("runs/c/checkpoints.jsonl"))
    assert [line["step"] for line in ledger] == [2, 4, 5]
    assert ledger[0]["state"].endswith("/weights/step-000002")
    assert ledger[0]["sampler"].endswith("/sampler_weights/step-000002")


def test_without_data_it_says_that_this_is_no_training(train: Cli) -> None:
    result = train("--plugin", "sdft", "--steps", 1, "--out", "smoke")
    assert result.code == 0
    assert "smoke test, not training" in result.err


def test_what_was_sampled_is_what_is_trained_id_for_id(
    train: Cli, rows: Path, recorder: Path
) -> None:
    train("--plugin", "sdft", "--plugin", recorder, "--data", rows, "--steps", 2, "--out", "ids",
          "-o", "checks=off")  # fmt: skip
    samples = read_lines(Path("runs/ids/samples.jsonl"))
    datums = read_lines(Path("runs/ids/datums.jsonl"))
    assert len(samples) == len(datums) == 2
    for sample, datum in zip(samples, datums, strict=True):
        pairs = zip(datum["targets"], datum["weights"], strict=True)
        assert [token for token, weight in pairs if weight] == sample["tokens"]


def test_a_rejected_rewrite_is_replaced_by_the_demonstration(
    train: Cli, rows: Path, recorder: Path, tokenizer: object
) -> None:
    train("--plugin", "sdft", "--plugin", recorder, "--data", rows, "--steps", 1, "--out", "r")
    (line,) = read_lines(Path("runs/r/metrics.jsonl"))
    assert line["n_accepted"] == 0, "a random model cannot rewrite"
    assert sum(value for key, value in line.items() if key.startswith("rejected/")) == 1
    (sample,) = read_lines(Path("runs/r/samples.jsonl"))
    (datum,) = read_lines(Path("runs/r/datums.jsonl"))
    pairs = zip(datum["targets"], datum["weights"], strict=True)
    text = tokenizer.decode([t for t, w in pairs if w])  # type: ignore[attr-defined]
    assert text == sample["demonstration"] + "<|im_end|>"


def test_a_run_in_which_every_row_was_dropped_has_failed(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "d",
                   "-o", "fallback=drop")  # fmt: skip
    assert result.code == 1
    assert "nothing was trained: all rows of 2 steps were dropped" in result.err.splitlines()[-1]
    lines = read_lines(Path("runs/d/metrics.jsonl"))
    assert [(line["n_datums"], line["loss"]) for line in lines] == [(0, None), (0, None)]
    reasons = [line["dropped"].partition(":")[0] for line in read_lines(Path("runs/d/rows.jsonl"))]
    assert reasons == ["rejected", "rejected"]
    assert not Path("runs/d/checkpoints.jsonl").exists()


def test_raw_rendering_is_the_original_construction(
    train: Cli, rows: Path, recorder: Path, tokenizer: object
) -> None:
    train("--plugin", "sdft", "--plugin", recorder, "--data", rows, "--steps", 1, "--out", "raw",
          "-o", "render=raw", "-o", "checks=off", "-o", "reduction=sum")  # fmt: skip
    (sample,) = read_lines(Path("runs/raw/samples.jsonl"))
    (datum,) = read_lines(Path("runs/raw/datums.jsonl"))
    prompt = json.loads(rows.read_text().splitlines()[sample["line"] - 1])["prompt"]
    encoded = tokenizer.encode(prompt, add_special_tokens=False)  # type: ignore[attr-defined]
    assert [datum["inputs"][0], *datum["targets"]] == encoded + sample["tokens"]
    assert set(datum["weights"]) == {0.0, 1.0}


def test_the_log_option_gets_the_same_lines(train: Cli, rows: Path) -> None:
    train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "l", "--log", "copy.jsonl")
    assert Path("copy.jsonl").read_text() == Path("runs/l/metrics.jsonl").read_text()


def test_a_flag_wins_over_the_file_and_the_file_over_the_plugin(train: Cli, rows: Path) -> None:
    Path("run.toml").write_text(
        f'plugin = "sdft"\ndata = "{rows}"\nsteps = 9\nlr = 1e-3\ngroup-size = 2\n'
        '[options]\nchecks = "off"\n'
    )
    assert train("--config", "run.toml", "--steps", 1, "--out", "t").code == 0
    config = json.loads(Path("runs/t/config.json").read_text())["config"]
    assert (config["steps"], config["lr"], config["group_size"]) == (1, 1e-3, 2)
    assert config["options"]["checks"] == "off"
    assert config["options"]["fallback"] == "demo"


def test_json_logs_are_json_lines_the_engines_included(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--steps", 1, "--out", "j",
                   "--log-format", "json")  # fmt: skip
    events = [json.loads(line) for line in result.err.splitlines()]
    assert {"engine", "data", "run", "options", "step", "checkpoint"} <= {
        event["event"] for event in events
    }
    assert all({"level", "timestamp"} <= event.keys() for event in events)


def test_a_normal_run_warns_of_nothing(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--steps", 2, "--out", "quiet")
    assert "warning" not in result.err.lower(), result.err


def test_no_control_character_reaches_the_terminal(train: Cli, work: Path) -> None:
    data = {"prompt": "esc \u001b[31mred\u0007", "completion": "a\fb"}
    (work / "odd.jsonl").write_text(json.dumps(data) + "\n")
    result = train("--plugin", "sdft", "--data", "odd.jsonl", "--steps", 1, "--out", "odd")
    assert result.code == 0
    assert "prompt      esc \\x1b[31mred\\x07" in result.out
    assert all(character.isprintable() or character == "\n" for character in result.out)


def test_max_tokens_that_leave_no_room_are_refused(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--max-tokens", 100000)
    assert result.code == 2
    assert "--max-tokens 100000 leaves no room for a prompt" in result.err.splitlines()[-1]


def test_a_request_that_the_service_refuses_at_once_is_exit_2(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--rank", 1000000)
    assert result.code == 2
    assert result.err.splitlines()[-1] == (
        "rlt: the service refused a request: LoRA rank must be between 1 and 512, got 1000000"
    )


def test_held_out_rows_that_are_trained_on_are_noticed(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sdft", "--data", rows, "--eval-data", rows, "--steps", 1)
    assert "the held-out rows are the training rows" in result.err


def test_a_reader_that_has_seen_enough_is_no_failure(
    train: Cli, rows: Path, tiny_model: Path
) -> None:
    command = [sys.executable, "-c", "from rlt.cli import main; main()", "run", "--plugin", "sdft",
               "--engine", "local", "--model", tiny_model, "--data", rows, "--steps", "1",
               "--max-tokens", "4"]  # fmt: skip
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout
    run.stdout.close()
    assert run.wait(120) == 0


def test_runs_of_one_second_get_names_of_their_own(
    train: Cli, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlt import resume

    clock = SimpleNamespace(strftime=lambda _: "20300101-000000")
    monkeypatch.setattr(resume, "time", clock)
    for _ in range(3):
        assert train("--plugin", "sft", "--data", rows, "--steps", 1).code == 0
    names = sorted(path.name for path in Path("runs").iterdir())
    assert names == [f"sft-20300101-000000{end}" for end in ("", "-2", "-3")]
