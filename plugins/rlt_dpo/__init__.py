"""DPO: a model learns to prefer the better of two answers, without a reward model.

Rafailov et al., "Direct Preference Optimization" (2023): the log-probability of the chosen answer
should rise against that of the rejected one, both measured against the weights before step 0.
`Objective`, `step_batch` and `step_evaluation` are public: a variant is another function of a
pair's margin (see docs/examples/simpo.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import rlt
from rlt_dpo.objective import PairLoss, ipo, log_sigmoid, sigmoid
from rlt_dpo.step import Objective
from rlt_dpo.step import batch as step_batch
from rlt_dpo.step import evaluate as step_evaluation

__all__ = ["Objective", "PairLoss", "ipo", "log_sigmoid", "sigmoid", "step_batch",
           "step_evaluation"]  # fmt: skip

PLUGIN = rlt.PluginInfo(
    summary="Direct preference optimization: the model learns to prefer the better answer.",
    dataset_type="dpo",
    options={
        "beta": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.1,
            "description": "how strongly the model is held to the reference",
        },
        "loss": {
            "enum": ["sigmoid", "ipo"],
            "default": "sigmoid",
            "description": "the loss of a pair",
        },
        "label_smoothing": {
            "type": "number",
            "minimum": 0,
            "exclusiveMaximum": 0.5,
            "default": 0.0,
            "description": "the share of pairs taken to be the wrong way round (sigmoid only)",
        },
        "normalise": {
            "enum": ["none", "length"],
            "default": "none",
            "description": "length divides an answer's log-probability by its number of tokens",
        },
    },
    defaults={"lr": 1e-5, "prompts_per_step": 4},
    example={
        "prompt": "What is the capital of France?",
        "chosen": "The capital of France is Paris.",
        "rejected": "I do not know.",
    },
)


@rlt.hookimpl
def load_rows(run: rlt.Run) -> None:
    """Refuse options that do not go together, before anything starts; read no rows."""
    if run.options["loss"] == "ipo" and run.options["label_smoothing"]:
        raise rlt.UsageError("-o label_smoothing belongs to -o loss=sigmoid; ipo has none")


@rlt.hookimpl
async def make_datums(run: rlt.Run, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Score the step's pairs and write the loss's gradient into their weights."""
    return await step_batch(run, rows, _objective(run))


@rlt.hookimpl
def compute_loss(batch: rlt.Batch) -> rlt.Loss:
    """Take the gradient by cross-entropy; the step's `loss` is the preference loss."""
    return rlt.Loss("cross_entropy", read=lambda *_: float(batch.metrics["loss"]))


@rlt.hookimpl
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Measure loss, accuracy, margin and rewards on the held-out pairs."""
    return await step_evaluation(run, rows, _objective(run))


def _objective(run: rlt.Run) -> Objective:
    options = run.options
    beta = options["beta"]
    smoothed = sigmoid(beta, options["label_smoothing"])
    loss = ipo(beta) if options["loss"] == "ipo" else smoothed
    return Objective(loss, beta, normalise=options["normalise"] == "length")
