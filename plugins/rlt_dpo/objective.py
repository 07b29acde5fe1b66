"""Preference losses, with their gradient in closed form.

For one pair, with log-probabilities summed over the tokens of each completion (and divided by their
number, when lengths are normalised), the policy p is compared with the reference r:

    s = (p_chosen - r_chosen) - (p_rejected - r_rejected)

    sigmoid   L = -(1 - e) * log sigmoid(beta * s) - e * log sigmoid(-beta * s)
    ipo       L = (s - 1 / (2 * beta))^2

`sigmoid` is Rafailov et al. (2023), with the label smoothing e of Mitchell's cDPO; `ipo` is Azar et
al. (2023). Since L depends on one number, its gradient on every token's log-probability is dL/ds,
with the other sign on the rejected side: no automatic differentiation is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

PairLoss = Callable[[float], tuple[float, float]]
"""Margin s of a pair -> (loss L, slope dL/ds)."""


def sigmoid(beta: float, smoothing: float = 0.0) -> PairLoss:
    """Return the logistic loss; `smoothing` is the chance that a label is the wrong way round."""

    def loss(s: float) -> tuple[float, float]:
        right, wrong = -log_sigmoid(beta * s), -log_sigmoid(-beta * s)
        value = (1 - smoothing) * right + smoothing * wrong
        # d(right)/ds = -beta * sigmoid(-beta * s), and sigmoid(x) = exp(log_sigmoid(x))
        slope = beta * (smoothing * math.exp(-right) - (1 - smoothing) * math.exp(-wrong))
        return value, slope

    return loss


def ipo(beta: float) -> PairLoss:
    """Return the squared loss, which stops pulling once s reaches 1 / (2 beta)."""

    def loss(s: float) -> tuple[float, float]:
        excess = s - 1 / (2 * beta)
        return excess**2, 2 * excess

    return loss


def log_sigmoid(x: float) -> float:
    """Return log(1 / (1 + exp(-x))) without overflow."""
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))
