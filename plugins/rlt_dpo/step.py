"""A step of preference learning: forward, the loss's slope, and that slope as weights.

The service computes the gradient of sum_t -weight_t * log p(token_t). With weight_t = -dL/dlog p_t
that is the gradient of L, which is also what the SDK's `forward_backward_custom` does, with torch.
The weights do not change between the `forward` here and the step's backward pass, so the slope is
exact. L is a mean over the step's pairs: how the pairs are split over requests changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rlt
from rlt.rendering import datum
from rlt_dpo.logprobs import Both, References, policy
from rlt_dpo.objective import PairLoss
from rlt_dpo.pairs import Pair, pairs

if TYPE_CHECKING:
    from tinker import Datum


_TIE = 1e-3
"""Nats by which sampling and training may differ on one sequence under the same weights."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a variant of DPO minimises."""

    loss: PairLoss
    beta: float
    """Scales log-ratios to the rewards in the metrics."""
    normalise: bool = False
    """Whether a log-probability is a mean over its tokens instead of a sum."""
    reference: bool = True
    """Whether there is a reference; without one its log-probabilities are 0."""


async def batch(run: rlt.Run, rows: Sequence[rlt.Row], objective: Objective) -> rlt.Batch:
    """Return the step's datums: two for each pair, adjacent, chosen first."""
    made, outcomes = pairs(run, rows)
    if not made:
        return rlt.Batch([], outcomes)
    ratios = await log_ratios(run, made, objective)
    slopes = [objective.loss(chosen - rejected)[1] / len(made) for chosen, rejected in ratios]
    datums = [
        each
        for pair, slope in zip(made, slopes, strict=True)
        for each in _weighted(pair, slope, objective)
    ]
    return rlt.Batch(datums, outcomes, metrics=metrics(ratios, objective))


async def evaluate(run: rlt.Run, rows: rlt.Rows, objective: Objective) -> dict[str, float]:
    """Return the same numbers for held-out rows."""
    made, _ = pairs(run, [rows[index] for index in range(len(rows))])
    if not made:
        raise rlt.RunError("none of the --eval-data pairs can be rendered within the context")
    numbers = metrics(await log_ratios(run, made, objective), objective)
    return {"n_datums": 2 * len(made), **numbers, "n_rows": len(rows)}


async def log_ratios(run: rlt.Run, made: Sequence[Pair], objective: Objective) -> list[Both]:
    """Return log p - log r of each pair's two sides."""
    p = await policy(run, made)
    r = await run.state(References).of(run, made) if objective.reference else [(0.0, 0.0)] * len(p)
    scales = [_scales(pair, objective) for pair in made]
    return [
        (scale[0] * (ours[0] - theirs[0]), scale[1] * (ours[1] - theirs[1]))
        for scale, ours, theirs in zip(scales, p, r, strict=True)
    ]


def metrics(ratios: Sequence[Both], objective: Objective) -> dict[str, float]:
    """Return loss, accuracy, margin and the two rewards, each a mean over the pairs.

    A tie is half right: before the first step all pairs are ties, since the policy still is the
    reference, but for rounding.
    """
    n, beta = len(ratios), objective.beta
    chosen = sum(c for c, _ in ratios) * beta / n
    rejected = sum(r for _, r in ratios) * beta / n
    return {
        "loss": sum(objective.loss(c - r)[0] for c, r in ratios) / n,
        "accuracy": sum(_right(c - r) for c, r in ratios) / n,
        "margin": chosen - rejected,
        "reward_chosen": chosen,
        "reward_rejected": rejected,
    }


def _right(margin: float) -> float:
    return 0.5 if abs(margin) < _TIE else float(margin > 0)


def _weighted(pair: Pair, slope: float, objective: Objective) -> tuple[Datum, Datum]:
    chosen, rejected = _scales(pair, objective)
    return (
        datum(pair.chosen.scaled(-slope * chosen)),
        datum(pair.rejected.scaled(slope * rejected)),
    )


def _scales(pair: Pair, objective: Objective) -> Both:
    """Return what a side's summed log-probability is multiplied with."""
    if not objective.normalise:
        return 1.0, 1.0
    return 1 / pair.chosen.total, 1 / pair.rejected.total
