"""From rewards to advantages: the centre of the method.

A group is the samples of one row. What a sample is worth is how much better it did than the others
of its group (Shao et al., "DeepSeekMath", 2024), so no value function is learnt:

    A_i = r_i - mean(r)            (and with scale=std, divided by the group's std(r))

The mean is the only baseline by default: dividing by the deviation weighs easy and hard rows more
than middling ones (Liu et al., "Understanding R1-Zero-Like Training", 2025).
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def advantages(rewards: Sequence[float], *, scale: bool = False) -> list[float]:
    """Return each reward's distance from the group's mean.

    :param rewards: shape (G,).
    :param scale: whether to divide by the group's standard deviation.
    """
    mean = sum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    deviation = math.sqrt(sum(each**2 for each in centred) / len(centred))
    return [each / deviation for each in centred] if scale and deviation else centred


def is_constant(rewards: Sequence[float]) -> bool:
    """Say whether a group teaches nothing: all its samples did equally well."""
    return len(set(rewards)) <= 1


def with_penalty(
    advantage: Sequence[Sequence[float]], drift: Sequence[Sequence[float]], coefficient: float
) -> list[list[float]]:
    """Take from each sampled token's advantage what it strayed from the reference.

        A_t - coefficient * (d_t - mean(d)),    d_t = log p(token_t) - log r(token_t)

    E[d] is the KL divergence from the reference; the mean over all tokens is a baseline, and does
    not change the expected gradient.

    :param advantage: one list for each sample, of the shape of its sampled tokens (T,).
    :param drift: d, of the same shapes.
    """
    flat = [each for sample in drift for each in sample]
    mean = sum(flat) / len(flat) if flat else 0.0
    return [
        [a - coefficient * (d - mean) for a, d in zip(sample, strayed, strict=True)]
        for sample, strayed in zip(advantage, drift, strict=True)
    ]
