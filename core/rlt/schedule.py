"""The learning rate as a pure function of the step, so that a resumed run has the same one."""

from __future__ import annotations

import math

from rlt.config import RunConfig


def learning_rate(config: RunConfig, step: int) -> float:
    """Return Adam's learning rate of a step.

    It rises linearly over the first `warmup` steps, from lr / warmup to lr. Then, with t the
    fraction of the remaining way to `horizon` that is done:

    - `constant`: lr;
    - `linear`: lr * (1 - t);
    - `cosine`: lr * (1 + cos(pi * t)) / 2 (Loshchilov and Hutter 2017, without restarts).

    Behind the horizon it stays what it was at the last step before it.
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    horizon = config.horizon or config.steps
    step = min(step, horizon - 1)
    t = max(0, step - config.warmup) / max(1, horizon - config.warmup)
    if config.schedule == "linear":
        return config.lr * (1 - t)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * t)) / 2
    return config.lr
