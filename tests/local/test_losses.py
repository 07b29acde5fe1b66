"""Gradients of the losses with respect to log-probabilities, by hand."""

from __future__ import annotations

import torch

from rlt.local.losses import LOSSES

LOGPROBS = torch.tensor([-1.0, -2.0, -0.5, -3.0])
SAMPLED = torch.tensor([-1.0, -1.0, -1.5, -3.1])  # ratios 1, 0.37, 2.72, 1.11
ADVANTAGES = torch.tensor([1.0, -1.0, 2.0, -2.0])
INPUTS = {"logprobs": SAMPLED, "advantages": ADVANTAGES}
RATIO = (LOGPROBS - SAMPLED).exp()


def _gradient(loss: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    leaf = LOGPROBS.clone().requires_grad_()
    LOSSES[loss].function(leaf, inputs, LOSSES[loss].defaults).backward()
    assert leaf.grad is not None
    return leaf.grad


def test_cross_entropy_is_minus_the_weights() -> None:
    weights = torch.tensor([1.0, -2.0, 0.0, 0.5])
    assert torch.equal(_gradient("cross_entropy", {"weights": weights}), -weights)


def test_importance_sampling_is_minus_ratio_times_advantage() -> None:
    assert torch.allclose(_gradient("importance_sampling", INPUTS), -RATIO * ADVANTAGES)


def test_ppo_stops_where_clipping_takes_over() -> None:
    expected = -RATIO * ADVANTAGES
    expected[1] = 0  # below the range with a negative advantage
    expected[2] = 0  # above the range with a positive advantage
    assert torch.allclose(_gradient("ppo", INPUTS), expected)


def test_cispo_keeps_a_gradient_where_it_clips() -> None:
    assert torch.allclose(_gradient("cispo", INPUTS), -RATIO.clamp(0.8, 1.2) * ADVANTAGES)


def test_dro_pulls_back_to_the_sampled_policy() -> None:
    expected = -(ADVANTAGES - 0.05 * (LOGPROBS - SAMPLED))
    assert torch.allclose(_gradient("dro", INPUTS), expected)
