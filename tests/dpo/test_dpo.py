"""DPO from the command line, on the embedded engine with a tiny model."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conftest import ROOT, Cli
from helpers import read_lines, without_times, write_lines
from rlt.local.layout import checkpoint_folder
from rlt.run_directory import RunDirectory

NUMBERS = {"loss", "accuracy", "margin", "reward_chosen", "reward_rejected"}
LOG_2 = math.log(2)

CUSTOM = '''
"""DPO by the SDK's forward_backward_custom: torch finds the gradient."""
import torch
import rlt
import rlt_dpo
from rlt_dpo.logprobs import References
from rlt_dpo.pairs import pairs
from rlt.rendering import datum

PLUGIN = rlt_dpo.PLUGIN
STATE = {}

@rlt.hookimpl
async def make_datums(run, rows):
    made, outcomes = pairs(run, rows)
    STATE["references"] = await run.state(References).of(run, made)
    STATE["options"] = run.options
    return rlt.Batch([datum(side) for pair in made for side in pair.sides], outcomes)

@rlt.hookimpl
def compute_loss():
    def loss(datums, logprobs):
        options, total = STATE["options"], 0.0
        masks = [torch.tensor(d.loss_fn_inputs["weights"].to_numpy()) for d in datums]
        sums = [(mask * lp).sum() for mask, lp in zip(masks, logprobs)]
        if options["normalise"] == "length":
            sums = [x / mask.sum() for x, mask in zip(sums, masks)]
        for i, (chosen, rejected) in enumerate(STATE["references"]):
            if options["normalise"] == "length":
                chosen, rejected = chosen / masks[2*i].sum(), rejected / masks[2*i+1].sum()
            s = (sums[2*i] - chosen) - (sums[2*i+1] - rejected)
            beta, e = options["beta"], options["label_smoothing"]
            if options["loss"] == "ipo":
                total = total + (s - 1 / (2 * beta)) ** 2
            else:
                log = torch.nn.functional.logsigmoid
                total = total - (1 - e) * log(beta * s) - e * log(-beta * s)
        return total / len(STATE["references"]), {}
    return rlt.Loss(custom=loss)
'''


def weights(run: str) -> dict[str, torch.Tensor]:
    newest = RunDirectory(Path("runs", run)).ledger()[-1]
    folder = checkpoint_folder(Path("runs", run, "weights"), newest.state)
    return load_file(folder / "adapter_model.safetensors")


def largest_difference(one: str, other: str) -> float:
    a, b = weights(one), weights(other)
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def metrics(run: str, *, split: str | None = None) -> list[dict[str, Any]]:
    return [x for x in read_lines(Path(f"runs/{run}/metrics.jsonl")) if x.get("split") == split]


def test_it_learns_the_pairs_and_reports_how_well(train: Cli, pairs: Path) -> None:
    result = train("--plugin", "dpo", "--data", pairs, "--eval-data", pairs, "--steps", 8,
                   "--eval-every", 4, "--lr", 1e-3, "--out", "d")  # fmt: skip
    assert result.code == 0, result.err
    first, *_, last = metrics("d")
    assert first.keys() >= NUMBERS
    assert first["loss"] == pytest.approx(LOG_2, abs=1e-4), "the policy still is the reference"
    assert first["n_datums"] == 8
    assert last["loss"] < 0.9 * first["loss"]
    assert last["margin"] > 0 == pytest.approx(first["margin"], abs=1e-4)
    evals = metrics("d", split="eval")
    assert [x["step"] for x in evals] == [0, 4, 8]
    assert evals[0].keys() >= NUMBERS
    assert evals[0]["accuracy"] == 0.5
    assert evals[-1]["accuracy"] == 1.0
    assert evals[-1]["loss"] < evals[0]["loss"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-o", "loss=ipo"],
        ["-o", "label_smoothing=0.2"],
        ["-o", "normalise=length"],
        ["-o", "loss=ipo", "-o", "normalise=length", "-o", "beta=0.5"],
    ],
    ids=["sigmoid", "ipo", "smoothed", "normalised", "ipo-normalised"],
)
def test_the_step_is_the_one_that_autograd_takes(
    train: Cli, pairs: Path, options: list[str], work: Path
) -> None:
    (work / "custom.py").write_text(CUSTOM)
    common = ("--data", pairs, "--steps", 2, "--lr", 1e-4, "--weight-decay", 0, *options)
    for plugin, name in (("dpo", "ours"), ("custom.py", "theirs")):
        result = train("--plugin", plugin, *common, "--out", name)
        assert result.code == 0, result.err
    assert metrics("ours")[-1]["loss"] == pytest.approx(metrics("theirs")[-1]["loss"], rel=1e-5)
    assert metrics("ours")[-1]["grad_norm"] == pytest.approx(
        metrics("theirs")[-1]["grad_norm"], rel=1e-5
    )
    assert largest_difference("ours", "theirs") < 1e-5


def test_the_gradient_does_not_depend_on_how_the_pairs_are_split(train: Cli, pairs: Path) -> None:
    for substeps in (1, 2, 3, 4):
        train("--plugin", "dpo", "--data", pairs, "--steps", 2, "--prompts-per-step", 8,
              "--substeps", substeps, "--lr", 1e-4, "--out", f"s{substeps}")  # fmt: skip
    norms = [metrics(f"s{n}")[-1]["grad_norm"] for n in (1, 2, 3, 4)]
    assert norms == pytest.approx([norms[0]] * 4, rel=1e-5)
    assert all(largest_difference("s1", f"s{n}") < 1e-5 for n in (2, 3, 4))


def test_a_pair_is_sent_whole_chosen_first_or_not_at_all(
    train: Cli, pairs: Path, observer: Path, tokenizer: Any
) -> None:
    rows = read_lines(pairs)[:3]
    rows[1]["rejected"] = "no " * 600  # longer than the context
    write_lines(pairs, rows)
    result = train("--plugin", "dpo", "--plugin", observer, "--data", pairs, "--steps", 1,
                   "--prompts-per-step", 3, "--out", "w")  # fmt: skip
    assert result.code == 0, result.err
    assert "3 read = 2 trained + 1 dropped (1 too-long)" in result.out
    sent = [tokenizer.decode(x["inputs"]) for x in read_lines(Path("runs/w/datums.jsonl"))]
    assert ["It is" in text for text in sent] == [True, False, True, False]
    assert all(x["weights"][-1] > 0 for x in read_lines(Path("runs/w/datums.jsonl"))[::2])
    assert all(x["weights"][-1] < 0 for x in read_lines(Path("runs/w/datums.jsonl"))[1::2])


def test_after_a_resume_the_reference_is_still_the_one_before_step_0(
    train: Cli, pairs: Path
) -> None:
    common = ("--plugin", "dpo", "--data", pairs, "--lr", 1e-3)
    train(*common, "--steps", 4, "--out", "whole")
    train(*common, "--steps", 2, "--out", "parts")
    assert train("--out", "parts", "--resume", "auto", "--steps", 4).code == 0
    assert without_times(metrics("parts")) == without_times(metrics("whole"))
    assert metrics("parts")[2]["loss"] < LOG_2 - 0.01, "against resumed weights it would be log 2"
    assert largest_difference("whole", "parts") == 0


def test_a_run_that_starts_from_other_weights_has_those_as_its_reference(
    train: Cli, pairs: Path
) -> None:
    common = ("--data", pairs, "--lr", 1e-3)
    rows = [{"prompt": x["prompt"], "completion": x["chosen"]} for x in read_lines(pairs)]
    demonstrations = write_lines(Path("sft.jsonl"), rows)
    train("--plugin", "sft", "--data", demonstrations, "--steps", 3, "--out", "sft", "--lr", 1e-3)
    state = read_lines(Path("runs/sft/checkpoints.jsonl"))[-1]["state"]
    started = ("--plugin", "dpo", *common, "--resume", state)
    assert train(*started, "--steps", 4, "--out", "whole").code == 0
    assert train(*started, "--steps", 2, "--out", "parts").code == 0
    assert metrics("whole")[0]["loss"] == pytest.approx(LOG_2, abs=1e-4)
    assert train("--out", "parts", "--resume", "auto", "--steps", 4).code == 0
    assert without_times(metrics("parts")) == without_times(metrics("whole"))


def test_it_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import rlt_dpo, rlt_sft, rlt_grpo"
    subprocess.run([sys.executable, "-c", code], check=True)
    for path in (ROOT / "plugins/rlt_dpo").glob("*.py"):
        assert "import torch" not in path.read_text()


def test_label_smoothing_with_ipo_is_refused_before_anything_starts(
    train: Cli, pairs: Path
) -> None:
    result = train("--plugin", "dpo", "--data", pairs, "-o", "loss=ipo", "-o",
                   "label_smoothing=0.1", "--out", "no")  # fmt: skip
    assert result.code == 2
    assert "ipo has none" in result.err
    assert not Path("runs/no").exists()


def test_the_built_in_example_runs(train: Cli) -> None:
    result = train("--plugin", "dpo", "--steps", 1, "--prompts-per-step", 1, "--out", "e")
    assert result.code == 0, result.err
    assert json.loads(Path("runs/e/metrics.jsonl").read_text())["n_datums"] == 2
