"""The one-file examples, run by path."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import rlt
from conftest import ROOT, Cli
from helpers import read_lines, write_lines

EXAMPLES = ROOT / "docs/examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("margin", [-3.0, 0.0, 0.4, 7.0])
def test_the_slope_of_simpo_is_autograds(margin: float) -> None:
    s = torch.tensor(margin, dtype=torch.float64, requires_grad=True)
    expected = -torch.nn.functional.logsigmoid(2.0 * s - 1.0)
    expected.backward()
    assert s.grad is not None
    value, slope = loaded("simpo").simpo(2.0, 1.0)(margin)
    assert value == pytest.approx(expected.item())
    assert slope == pytest.approx(s.grad.item())


def test_simpo_learns(train: Cli, work: Path) -> None:
    rows = [
        {"prompt": f"Say {n}.", "chosen": f"It is {n}.", "rejected": "The dog the dog"}
        for n in range(4)
    ]
    data = write_lines(work / "pairs.jsonl", rows)
    result = train("--plugin", EXAMPLES / "simpo.py", "--data", data, "--eval-data", data,
                   "--steps", 8, "--lr", 1e-3, "--out", "simpo")  # fmt: skip
    assert result.code == 0, result.err
    evals = [x for x in read_lines(Path("runs/simpo/metrics.jsonl")) if "split" in x]
    assert evals[-1]["loss"] < evals[0]["loss"]
    assert evals[-1]["margin"] > evals[0]["margin"]


def test_the_arithmetic_environment_answers_calls_and_leaves_the_score_to_grpo(
    train: Cli, work: Path
) -> None:
    data = write_lines(
        work / "sums.jsonl", [{"prompt": "What is 2 * 3?", "metadata": {"answer": "6"}}]
    )
    result = train("--plugin", "grpo", "--plugin", EXAMPLES / "arithmetic.py", "--data", data,
                   "--steps", 1, "--group-size", 2, "--out", "sums")  # fmt: skip
    assert result.code == 0, result.err
    assert len(read_lines(Path("runs/sums/samples.jsonl"))) == 2


def test_a_call_is_worked_out_and_an_answer_ends_the_episode() -> None:
    async def episode(action: str) -> tuple[bool, object]:
        row = rlt.Row({"prompt": "?", "metadata": {"answer": "1"}}, "id", "file", 1)
        environment = loaded("arithmetic").make_environment(row)
        await environment.reset(0)
        assert "calc(2 + 3)" in await environment.observe()
        await environment.act(action)
        return await environment.done(), (await environment.observe())[0]["content"]

    assert asyncio.run(episode("calc(17 * 23)")) == (False, "391")
    assert asyncio.run(episode("so calc( -1 + 3 )")) == (False, "2")
    assert asyncio.run(episode("It is 4."))[0] is True
