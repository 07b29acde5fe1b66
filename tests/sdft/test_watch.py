"""A run says once, and only with reason, that its self-distillation is going wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, write_lines
from rlt_sdft.watch import Watch

FEW = "few rewrites pass the checks"
SAME = "rewrites of different rows are the same"
RISE = "demonstrations become less likely"


@pytest.fixture
def warnings(train: Cli, rows: Path) -> Callable[..., list[str]]:
    """Run sdft and return which of the three signs it warned of, as often as it did."""

    def call(*arguments: object) -> list[str]:
        result = train("--plugin", "sdft", "--data", rows, "--out", "w", *arguments)
        assert result.code == 0, result.err
        found = [line for line in result.err.splitlines() if "[warning" in line]
        return [sign for line in found for sign in (FEW, SAME, RISE) if sign in line]

    return call


@pytest.fixture
def said() -> tuple[Any, list[str]]:
    """A run that keeps what it is warned of, and what it kept."""
    kept: list[str] = []
    log = SimpleNamespace(warning=lambda sign, **_: kept.append(sign))
    return SimpleNamespace(log=log, options={"teacher": "base"}), kept


def rewrites(passed: int, failed: int) -> list[dict[str, Any]]:
    faults = [None] * passed + ["number"] * failed
    return [{"row": str(i), "rewrite": str(i), "fault": fault} for i, fault in enumerate(faults)]


def test_a_healthy_run_warns_of_nothing(warnings: Callable[..., list[str]]) -> None:
    assert warnings("--steps", 6, "--prompts-per-step", 3, "-o", "demo_every=1") == []
    readings = [line["demo_nll"] for line in read_lines(Path("runs/w/metrics.jsonl"))]
    assert readings[-1] < readings[0]


# ---- rewrites of different rows


def test_a_teacher_that_sees_no_demonstration_rewrites_every_row_alike(
    warnings: Callable[..., list[str]],
) -> None:
    assert warnings("--steps", 4, "--prompts-per-step", 3, "--temperature", 0,
                    "-o", "teacher_prompt=Say A") == [SAME]  # fmt: skip


def test_a_large_group_hides_no_row(warnings: Callable[..., list[str]]) -> None:
    assert warnings("--steps", 1, "--prompts-per-step", 3, "--group-size", 20, "--temperature", 0,
                    "-o", "teacher_prompt=Say A").count(SAME) == 1  # fmt: skip


def test_the_same_again_for_two_rows_is_no_sign(
    warnings: Callable[..., list[str]], rows: Path
) -> None:
    write_lines(rows, read_lines(rows)[:2])
    assert warnings("--steps", 4, "--prompts-per-step", 2, "--group-size", 4, "--temperature", 0,
                    "-o", "teacher_prompt=Say A") == []  # fmt: skip


# ---- rewrites that pass


def test_it_takes_forty_rewrites_to_say_that_few_pass(warnings: Callable[..., list[str]]) -> None:
    """The tiny model's never end in the demonstration's number."""
    each_step = ("--prompts-per-step", 3, "--group-size", 13, "--temperature", 1)
    assert warnings("--steps", 1, *each_step) == []
    assert warnings("--steps", 3, *each_step, "--out", "longer") == [FEW]


@pytest.mark.parametrize(
    ("then", "now", "warned"),
    [
        ((40, 0), (13, 27), [FEW]),  # below a third of its best
        ((40, 0), (14, 26), []),
        ((8, 32), (3, 37), []),  # never good, but it does not fall
        ((4, 36), (2, 38), [FEW]),  # one in twenty
    ],
)
def test_a_share_is_few_beside_the_best_or_by_itself(
    said: tuple[Any, list[str]], then: tuple[int, int], now: tuple[int, int], warned: list[str]
) -> None:
    run, found = said
    watch = Watch()
    for passed, failed in (then, now, now):
        watch.rewrites(run, rewrites(passed, failed))
    assert found == warned


def test_a_step_is_judged_as_a_whole_however_large_its_group(said: tuple[Any, list[str]]) -> None:
    run, found = said
    Watch().rewrites(run, rewrites(80, 40))
    assert not found


# ---- demonstrations


def test_a_student_that_stands_still_is_no_sign(
    warnings: Callable[..., list[str]], rows: Path
) -> None:
    """The same demonstrations are read each time, whatever the rows of the step."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    write_lines(rows, [{"prompt": w, "completion": f"{w} " * (i + 1)} for i, w in enumerate(words)])
    assert RISE not in warnings("--steps", 10, "-o", "demo_every=1", "--lr", 1e-9)
    readings = [line["demo_nll"] for line in read_lines(Path("runs/w/metrics.jsonl"))]
    assert readings == pytest.approx([readings[0]] * 10, abs=1e-4)


def test_a_student_that_runs_away_finds_the_demonstrations_less_likely(
    warnings: Callable[..., list[str]],
) -> None:
    every_row = ("--prompts-per-step", 6, "--temperature", 1, "-o", "demo_every=1")
    assert RISE not in warnings("--steps", 3, *every_row, "-o", "checks=off", "--lr", 0.1)
    found = warnings("--steps", 6, *every_row, "-o", "checks=off", "--lr", 0.1, "--out", "longer")
    assert found.count(RISE) == 1


def test_three_rises_in_a_row_are_a_sign_and_less_is_none(said: tuple[Any, list[str]]) -> None:
    run, found = said
    watch = Watch()
    for nll in (1.0, 2.0, 3.0, None, 3.0, 3.001, 3.002, 3.003, 3.0, 4.0, 5.0):
        watch.reading(run, nll)
    assert not found
    for nll in (6.0, 7.0):  # said once
        watch.reading(run, nll)
        assert found == [RISE]


@pytest.mark.parametrize(
    ("mode", "every", "steps"),
    [("rewrite", 2, [0, 2]), ("topk", 2, [0, 2]), ("rewrite", 0, []), ("sampled", 0, [])],
)
def test_demonstrations_are_read_when_it_is_due(
    warnings: Callable[..., list[str]], mode: str, every: int, steps: list[int]
) -> None:
    assert warnings("--steps", 3, "--temperature", 1, "-o", f"mode={mode}", "-o", "k=4",
                    "-o", f"demo_every={every}") == []  # fmt: skip
    lines = read_lines(Path("runs/w/metrics.jsonl"))
    assert [line["step"] for line in lines if "demo_nll" in line] == steps
