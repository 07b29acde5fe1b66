"""Cross-entropy on the datums' target tokens and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rlt
from rlt.rendering import mean_nll

if TYPE_CHECKING:
    from tinker import Datum


@rlt.hookimpl
def compute_loss() -> rlt.Loss:
    """Choose the service's `cross_entropy`; the step's `loss` is the weighted mean in nats."""
    return rlt.Loss("cross_entropy", read=_mean)


def _mean(outputs: Sequence[Any], datums: Sequence[Datum]) -> float:
    return mean_nll(outputs, datums)[0]
