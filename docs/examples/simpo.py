"""SimPO: a variant of DPO in one file.

    rlt run --plugin docs/examples/simpo.py --data pairs.jsonl

Meng, Xia and Chen, "SimPO: Simple Preference Optimization with a Reference-Free Reward" (2024). The
reward is the mean log-probability of an answer's tokens, there is no reference, and the chosen
answer should win by a margin of gamma:

    L = -log sigmoid(beta * (mean log p(chosen) - mean log p(rejected)) - gamma)

A variant is such a function of a pair's margin with its slope; all else is `rlt_dpo`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import rlt
from rlt_dpo import Objective, PairLoss, log_sigmoid, step_batch, step_evaluation

PLUGIN = rlt.PluginInfo(
    summary="SimPO: preferences without a reference model.",
    dataset_type="dpo",
    options={
        "beta": {"type": "number", "exclusiveMinimum": 0, "default": 2.0},
        "gamma": {"type": "number", "minimum": 0, "default": 1.0},
    },
    defaults={"lr": 1e-5, "prompts_per_step": 4},
)


def simpo(beta: float, gamma: float) -> PairLoss:
    """Return the loss of a pair whose mean log-probabilities differ by s, and its slope."""

    def loss(s: float) -> tuple[float, float]:
        value = -log_sigmoid(beta * s - gamma)
        return value, -beta * (1 - math.exp(-value))  # d(-log sigmoid(x))/dx = sigmoid(x) - 1

    return loss


def objective(run: rlt.Run) -> Objective:
    """Put the loss together with what it is measured on."""
    beta, gamma = run.options["beta"], run.options["gamma"]
    return Objective(simpo(beta, gamma), beta, normalise=True, reference=False)


@rlt.hookimpl
async def make_datums(run: rlt.Run, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Score the step's pairs and write the loss's gradient into their weights."""
    return await step_batch(run, rows, objective(run))


@rlt.hookimpl
def compute_loss(batch: rlt.Batch) -> rlt.Loss:
    """Take the gradient by cross-entropy; report the preference loss."""
    return rlt.Loss("cross_entropy", read=lambda *_: float(batch.metrics["loss"]))


@rlt.hookimpl
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Measure the held-out pairs."""
    return await step_evaluation(run, rows, objective(run))
