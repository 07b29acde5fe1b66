"""The losses of the Tinker protocol, as plain sums over tokens.

A loss maps the log-probabilities of the target tokens, shape (N,) or (N, K), and inputs of the same
shape to a scalar. It never averages: weights may be negative, and ten times the weight is ten times
the gradient. Formulas and default thresholds as in the Tinker documentation ("Loss functions").
With r = exp(logprob - sampled logprob) and advantage A:

    cross_entropy        -sum(weight * logprob)
    importance_sampling  -sum(r * A)
    ppo                  -sum(min(r * A, clip(r, low, high) * A))
    cispo                -sum(stop_gradient(clip(r, low, high)) * logprob * A)
    dro                  -sum(logprob * A - beta / 2 * (logprob - sampled logprob)^2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Inputs = Mapping[str, torch.Tensor]
Config = Mapping[str, float]
LossFunction = Callable[[torch.Tensor, Inputs, Config], torch.Tensor]


@dataclass(frozen=True)
class Loss:
    """A loss with what it takes."""

    function: LossFunction
    inputs: tuple[str, ...]
    """Names of the float inputs beside `target_tokens`, each of the shape of the targets."""

    defaults: Config
    """Every configuration value it knows."""


def _cross_entropy(logprobs: torch.Tensor, inputs: Inputs, _: Config) -> torch.Tensor:
    return -(logprobs * inputs["weights"]).sum()


def _importance_sampling(logprobs: torch.Tensor, inputs: Inputs, _: Config) -> torch.Tensor:
    return -(_ratio(logprobs, inputs) * inputs["advantages"]).sum()


def _ppo(logprobs: torch.Tensor, inputs: Inputs, config: Config) -> torch.Tensor:
    ratio, advantages = _ratio(logprobs, inputs), inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, config) * advantages).sum()


def _cispo(logprobs: torch.Tensor, inputs: Inputs, config: Config) -> torch.Tensor:
    clipped = _clip(_ratio(logprobs, inputs), config).detach()
    return -(clipped * logprobs * inputs["advantages"]).sum()


def _dro(logprobs: torch.Tensor, inputs: Inputs, config: Config) -> torch.Tensor:
    drift = logprobs - inputs["logprobs"]
    return -(logprobs * inputs["advantages"] - 0.5 * config["beta"] * drift**2).sum()


def _ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return (logprobs - inputs["logprobs"]).exp()


def _clip(ratio: torch.Tensor, config: Config) -> torch.Tensor:
    return ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])


_POLICY = ("logprobs", "advantages")
_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}

LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, ("weights",), {}),
    "importance_sampling": Loss(_importance_sampling, _POLICY, {}),
    "ppo": Loss(_ppo, _POLICY, _CLIP),
    "cispo": Loss(_cispo, _POLICY, _CLIP),
    "dro": Loss(_dro, _POLICY, {"beta": 0.05}),
}
