"""The learning rate, the optimizer's settings and substeps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from conftest import Cli
from helpers import read_lines
from rlt.config import RunConfig
from rlt.schedule import learning_rate


def rates(**settings: object) -> list[float]:
    config = RunConfig(lr=1.0, **settings)  # type: ignore[arg-type]
    return [round(learning_rate(config, step), 6) for step in range(config.steps)]


def test_constant_is_constant() -> None:
    assert rates(steps=3) == [1, 1, 1]


def test_warmup_rises_to_the_rate() -> None:
    assert rates(steps=6, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_linear_falls_to_almost_nothing_at_the_horizon() -> None:
    assert rates(steps=4, schedule="linear") == [1, 0.75, 0.5, 0.25]


def test_cosine_is_half_way_down_in_the_middle() -> None:
    half = (1 + math.cos(math.pi / 2)) / 2
    assert rates(steps=5, schedule="cosine", warmup=1)[3] == round(half, 6)


def test_behind_the_horizon_it_stays() -> None:
    assert rates(steps=6, horizon=4, schedule="linear") == [1, 0.75, 0.5, 0.25, 0.25, 0.25]


def test_a_longer_resume_keeps_the_horizon(train: Cli, rows: Path) -> None:
    arguments = ("--plugin", "sdft", "--data", rows, "--schedule", "linear", "--lr", "1e-3")
    train(*arguments, "--steps", 2, "--out", "r")
    assert train("--out", "r", "--resume", "auto", "--steps", 4).code == 0
    found = [line["lr"] for line in read_lines(Path("runs/r/metrics.jsonl"))]
    assert found == pytest.approx([1e-3, 5e-4, 5e-4, 5e-4])


def test_any_number_of_substeps_gives_the_same_steps(train: Cli, rows: Path) -> None:
    losses = {}
    for parts in (1, 2, 3, 9):
        train("--plugin", "sdft", "--data", rows, "--steps", 3, "--prompts-per-step", 5,
              "--substeps", parts, "--out", f"s{parts}")  # fmt: skip
        lines = read_lines(Path(f"runs/s{parts}/metrics.jsonl"))
        losses[parts] = [(line["loss"], line["grad_norm"]) for line in lines]
    for parts in (2, 3, 9):
        for one, other in zip(losses[1], losses[parts], strict=True):
            assert other == pytest.approx(one, rel=1e-4)


def test_clipping_and_decay_reach_the_optimizer(train: Cli, rows: Path) -> None:
    arguments = ("--plugin", "sdft", "--data", rows, "--steps", 3)
    train(*arguments, "--out", "plain")
    for name, setting in (("clip", ("--grad-clip", 1e-9)), ("beta", ("--beta1", 0.0))):
        assert train(*arguments, "--out", name, *setting).code == 0
        plain, other = (read_lines(Path(f"runs/{run}/metrics.jsonl")) for run in ("plain", name))
        assert plain[0]["loss"] == other[0]["loss"]
        assert plain[2]["loss"] != other[2]["loss"]
