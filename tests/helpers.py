"""Small things that several tests do with files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEEPER = """
import json
import rlt

@rlt.hookimpl
def on_step(run, record):
    with open(run.directory.path / "datums.jsonl", "a") as file:
        for datum in record.batch.datums:
            line = {"inputs": datum.model_input.to_ints()}
            for name, tensor in datum.loss_fn_inputs.items():
                line[name] = tensor.to_numpy().tolist()
            file.write(json.dumps(line) + "\\n")
"""
"""An observer that writes every datum to `datums.jsonl`."""

TIMES = ("seconds", "time")


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]
