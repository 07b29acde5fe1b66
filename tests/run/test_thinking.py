"""A reasoning model's template through the command line: thoughts off, on, and refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli, Result
from helpers import read_lines, write_lines

PLAIN = {"prompt": "1 + 2?", "completion": "3"}
THOUGHTFUL = {
    "prompt": "1 + 2?",
    "completion": [{"role": "assistant", "content": "3", "reasoning_content": "Count on."}],
}


@pytest.fixture
def reasoning(cli: Cli, tiny_model: Path, tokenizer: Any, work: Path) -> Callable[..., Result]:
    """Run sft on the tiny model under Nemotron's format."""
    shutil.copytree(tiny_model, work / "model")
    (work / "model/chat_template.jinja").unlink(missing_ok=True)
    template = ROOT / "tests/rendering/templates/nemotron.jinja"
    changed = type(tokenizer).from_pretrained(tiny_model)
    changed.chat_template = template.read_text()
    changed.save_pretrained(work / "model")

    def run(row: dict[str, Any], *arguments: object) -> Result:
        write_lines(work / "a.jsonl", [row])
        return cli("run", "--plugin", "sft", "--data", "a.jsonl", "--engine", "local", "--model",
                   "model/", "--steps", 1, "--rank", 4, "--max-tokens", 8, "--out", "t",
                   *arguments)  # fmt: skip

    return run


def test_thoughts_are_off_by_default_and_that_is_said(reasoning: Callable[..., Result]) -> None:
    result = reasoning(PLAIN)
    assert result.code == 0, result.err
    assert "thinking is off" in result.err


def test_thoughts_are_learnt_when_they_are_on(
    reasoning: Callable[..., Result], tokenizer: Any
) -> None:
    result = reasoning(THOUGHTFUL, "--thinking", "on")
    assert result.code == 0, result.err
    assert "thinking is off" not in result.err
    (line,) = read_lines(Path("runs/t/metrics.jsonl"))
    learnt = tokenizer.encode("Count on.\n</think>\n3<|im_end|>", add_special_tokens=False)
    assert line["n_tokens"] == len(learnt)


@pytest.mark.parametrize(
    ("row", "thinking", "said"),
    [(THOUGHTFUL, "auto", "--thinking on"), (PLAIN, "on", "needs its thought")],
)
def test_a_row_that_does_not_fit_is_dropped_with_the_way_out(
    reasoning: Callable[..., Result], row: dict[str, Any], thinking: str, said: str
) -> None:
    result = reasoning(row, "--thinking", thinking)
    assert said in result.err
    assert result.code == 1
    assert "all rows of 1 steps were dropped" in result.err.splitlines()[-1]


def test_a_model_without_thoughts_cannot_switch_them_on(train: Cli, rows: Path) -> None:
    result = train("--plugin", "sft", "--data", rows, "--thinking", "on", "--out", "t")
    assert result.code == 2
    assert "--thinking on" in result.err.splitlines()[-1]
    assert not Path("runs/t/metrics.jsonl").exists()


def test_check_counts_with_the_same_choice(reasoning: Callable[..., Result], cli: Cli) -> None:
    reasoning(THOUGHTFUL)
    assert cli("check", "a.jsonl", "--model", "model/").code == 1
    assert cli("check", "a.jsonl", "--model", "model/", "--thinking", "on").code == 0
