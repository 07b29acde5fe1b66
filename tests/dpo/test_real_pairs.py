"""DPO on the real model: SmolLM2-135M-Instruct learns to tell the right call from another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from helpers import read_lines, write_lines

CACHE = Path(os.environ.get("RLT_CACHE") or Path.home() / ".cache/rlt")
"""Where the converted weights are kept between runs; `work` changes the home folder."""


@pytest.mark.timeout(900)
def test_the_accuracy_on_held_out_pairs_rises(
    cli: Cli, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLT_CACHE", str(CACHE))
    shared = ROOT / "../shared/data/toolalpaca.dpo.jsonl"
    assert shared.exists(), f"{shared} is missing: the test data belongs beside the repository"
    rows = read_lines(shared)
    data = write_lines(work / "train.jsonl", rows[:-12])
    held_out = write_lines(work / "held_out.jsonl", rows[-12:])
    result = cli("run", "--plugin", "dpo", "--engine", "local", "--data", data, "--eval-data",
                 held_out, "--steps", 4, "--eval-every", 0, "--prompts-per-step", 4, "--lr", 2e-4,
                 "--max-tokens", 8, "--out", "pairs")  # fmt: skip
    assert result.code == 0, result.err
    lines = read_lines(Path("runs/pairs/metrics.jsonl"))
    before, after = (line for line in lines if line.get("split") == "eval")
    assert before["accuracy"] == 0.5, "the policy still is the reference"
    assert after["accuracy"] > 0.7
    assert after["loss"] < before["loss"]
    assert after["margin"] > before["margin"]
