"""Cross-entropy on the datums' target tokens and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import rlt
from rlt.rendering import mean_nll

if TYPE_CHECKING:
    from tinker import Datum, ForwardBackwardOutput


@rlt.hookimpl
def compute_loss() -> rlt.Loss:
    """Choose the service's `cross_entropy`; the step's `loss` is the weighted mean in nats."""
    return rlt.Loss("cross_entropy", read=_mean)


def _mean(result: ForwardBackwardOutput, datums: Sequence[Datum]) -> float:
    return mean_nll(result.loss_fn_outputs, datums)[0]
