"""Pairs to learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import write_lines


@pytest.fixture
def pairs(work: Path) -> Path:
    """Eight pairs of answers of different lengths."""
    return write_lines(
        work / "pairs.jsonl",
        [
            {
                "prompt": f"Say the number {n}.",
                "chosen": f"It is {n}.",
                "rejected": "I cannot tell you which number that is" + "!" * (n % 3),
            }
            for n in range(8)
        ],
    )


@pytest.fixture
def observer(work: Path) -> Path:
    """An observer that writes down the datums of every step, for every optimizer step."""
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
            line = {"step": record.step, "inputs": datum.model_input.to_ints(), **inputs}
            file.write(json.dumps(line) + "\\n")
"""
    )
    return path
