"""SFT from the command line, on the embedded engine with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, write_lines

CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>'
TRACE = {
    "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 and 3?"}],
    "completion": [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "5", "name": "add", "tool_call_id": "1"},
        {"role": "assistant", "content": "It is 5."},
    ],
}


@pytest.fixture
def recorder(work: Path) -> Path:
    """An observer that writes down what was trained on."""
    path = work / "recorder.py"
    path.write_text(
        """
import json
import rlt

@rlt.hookimpl
def on_step(run, record):
    with open(run.directory.path / "datums.jsonl", "a") as file:
        for datum in record.batch.datums:
            inputs = {k: v.to_numpy().tolist() for k, v in datum.loss_fn_inputs.items()}
            file.write(json.dumps(inputs) + "\\n")
"""
    )
    return path


def learnt(run: str, tokenizer: Any) -> list[str]:
    """The text of every token with weight, datum by datum."""
    lines = read_lines(Path(f"runs/{run}/datums.jsonl"))
    pairs = [zip(x["target_tokens"], x["weights"], strict=True) for x in lines]
    return [tokenizer.decode([token for token, weight in each if weight]) for each in pairs]


def test_it_learns_the_demonstrations(train: Cli, rows: Path, held_out: Path) -> None:
    result = train("--plugin", "sft", "--data", rows, "--eval-data", held_out, "--steps", 6,
                   "--prompts-per-step", 3, "--lr", 1e-3, "--out", "s")  # fmt: skip
    assert result.code == 0, result.err
    lines = read_lines(Path("runs/s/metrics.jsonl"))
    steps = [x for x in lines if "split" not in x]
    evals = [x for x in lines if "split" in x]
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert evals[-1]["loss"] < evals[0]["loss"]
    assert all(x["n_datums"] == 3 for x in steps)


def test_every_assistant_turn_is_learnt_with_its_end_and_nothing_else(
    train: Cli, work: Path, recorder: Path, tokenizer: Any
) -> None:
    data = write_lines(work / "trace.jsonl", [TRACE])
    train("--plugin", "sft", "--plugin", recorder, "--data", data, "--steps", 1, "--out", "all")
    assert learnt("all", tokenizer) == [CALLED + "It is 5.<|im_end|>"]


def test_or_only_the_last_one(train: Cli, work: Path, recorder: Path, tokenizer: Any) -> None:
    data = write_lines(work / "trace.jsonl", [TRACE])
    train("--plugin", "sft", "--plugin", recorder, "--data", data, "--steps", 1, "--out", "last",
          "-o", "turns=last")  # fmt: skip
    assert learnt("last", tokenizer) == ["It is 5.<|im_end|>"]


def test_a_row_that_does_not_fit_is_dropped_and_counted(train: Cli, rows: Path) -> None:
    lines = [*read_lines(rows)[:2], {"prompt": "Go on.", "completion": "and on " * 600}]
    write_lines(rows, lines)
    result = train("--plugin", "sft", "--data", rows, "--steps", 1, "--prompts-per-step", 3,
                   "--out", "long")  # fmt: skip
    assert result.code == 0, result.err
    assert "3 read = 2 trained + 1 dropped (1 too-long)" in result.out


def test_what_cannot_be_rendered_is_dropped_and_named(train: Cli, rows: Path) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    write_lines(rows, [*read_lines(rows)[:1], {"prompt": picture, "completion": "A cat."}])
    result = train("--plugin", "sft", "--data", rows, "--steps", 1, "--prompts-per-step", 2,
                   "--out", "picture")  # fmt: skip
    assert "rows.jsonl:2" in result.err
    assert "image_url is not text" in result.err
    assert "1 dropped (1 unrenderable)" in result.out


def test_real_tool_traces_are_learnt(train: Cli, work: Path, repository: Path) -> None:
    shared = repository / "../shared/data/toolalpaca.sdft.jsonl"
    assert shared.exists(), f"{shared} is missing: the test data belongs beside the repository"
    # without their functions they fit a tiny model's context; a later row is invalid
    rows = [{k: v for k, v in row.items() if k != "tools"} for row in read_lines(shared)[:8]]
    data = write_lines(work / "traces.jsonl", rows)
    result = train("--plugin", "sft", "--data", data, "--steps", 1, "--prompts-per-step", 4,
                   "--out", "real")  # fmt: skip
    assert result.code == 0, result.err
    outcomes = [x["dropped"] for x in read_lines(Path("runs/real/rows.jsonl"))]
    assert len(outcomes) == 4 and set(outcomes) <= {None, "too-long"}
    assert None in outcomes


def test_the_built_in_example_runs(train: Cli) -> None:
    assert train("--plugin", "sft", "--steps", 1, "--out", "e").code == 0
    assert json.loads(Path("runs/e/metrics.jsonl").read_text())["n_datums"] == 1
