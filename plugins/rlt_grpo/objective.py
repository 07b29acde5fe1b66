"""Trajectories to datums, and the service's answer back to a loss.

With the ratio r_t = exp(log p(token_t) - log q(token_t)) of the trained weights p to those that
sampled, q, the service minimises a plain sum over the sampled tokens:

    importance_sampling   -r_t * A_t
    ppo                   -min(r_t * A_t, clip(r_t, low, high) * A_t)
    cispo                 -stop_gradient(clip(r_t, low, high)) * A_t * log p(token_t)

The mean that is wanted is therefore written into the advantages, over the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rlt
from rlt_grpo.trajectory import Trajectory

if TYPE_CHECKING:
    from tinker import Datum

Advantages = Sequence[Sequence[float]]
"""One list for each trajectory, of the shape of its sampled tokens (T,)."""


def scaled(trajectories: Sequence[Trajectory], given: Advantages, reduction: str) -> Advantages:
    """Write a mean over the step's tokens, or over its samples, into the advantages."""
    total = sum(trajectory.length for trajectory in trajectories) or 1
    factors = {
        "token-mean": [1 / total] * len(trajectories),
        "sequence-mean": [1 / (len(trajectories) * max(t.length, 1)) for t in trajectories],
        "sum": [1.0] * len(trajectories),
    }[reduction]
    return [[factor * a for a in sample] for factor, sample in zip(factors, given, strict=True)]


def datum(trajectory: Trajectory, advantages: Sequence[float]) -> Datum:
    """Shift by one: token t is predicted from those before it. What was given has advantage 0.

    :param advantages: of the sampled tokens, shape (T,).
    """
    import numpy as np  # noqa: PLC0415
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415

    spread = np.zeros(len(trajectory.tokens), np.float32)
    spread[np.asarray(trajectory.sampled)] = advantages
    return Datum(
        model_input=ModelInput.from_ints(trajectory.tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData.from_numpy(np.asarray(trajectory.tokens[1:], np.int64)),
            "logprobs": TensorData.from_numpy(np.asarray(trajectory.logprobs[1:], np.float32)),
            "advantages": TensorData.from_numpy(spread[1:]),
        },
    )


def loss(name: str, low: float, high: float) -> rlt.Loss:
    """Return one of the service's policy losses, read from the log-probabilities it sends back."""
    config: Mapping[str, float] | None = None
    if name != "importance_sampling":
        config = {"clip_low_threshold": low, "clip_high_threshold": high}

    def read(outputs: Sequence[Any], datums: Sequence[Datum]) -> float:
        pairs = zip(outputs, datums, strict=True)
        return sum(_value(name, output, each, (low, high)) for output, each in pairs)

    return rlt.Loss(name, config, read=read)


def _value(name: str, output: Any, item: Datum, clip: tuple[float, float]) -> float:
    """Return one datum's loss, from the tokens that count."""
    import numpy as np  # noqa: PLC0415

    a = item.loss_fn_inputs["advantages"].to_numpy().astype(np.float64)
    counted = a != 0
    a = a[counted]  # (T,), as are log p and log q
    p = output["logprobs"].to_numpy().astype(np.float64)[counted]
    q = item.loss_fn_inputs["logprobs"].to_numpy().astype(np.float64)[counted]
    ratio = np.exp(p - q)
    clipped = np.clip(ratio, *clip)
    terms = {
        "importance_sampling": ratio * a,
        "ppo": np.minimum(ratio * a, clipped * a),
        "cispo": clipped * a * p,
    }
    return -float(terms[name].sum())
