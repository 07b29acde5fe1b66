"""The optimizer: torch's AdamW over one adapter, with a state that can be written down exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "step"


@dataclass(frozen=True)
class AdamSettings:
    """The hyperparameters of one step."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float
    """Scale the gradient down to this global norm; 0 or less means no clipping."""


class Adam:
    """AdamW (decoupled weight decay) over named weights."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Optimize `weights` in place; the moments appear with the first step."""
        self._weights = weights
        self._optimizer = torch.optim.AdamW(list(weights.values()), foreach=True)

    def step(self, settings: AdamSettings) -> float:
        """Apply the accumulated gradients and forget them; returns their norm before clipping.

        A weight without a gradient has the gradient zero: its moments decay.
        """
        weights = list(self._weights.values())
        for weight in weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        limit = settings.grad_clip_norm if settings.grad_clip_norm > 0 else float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(weights, limit))
        self._optimizer.param_groups[0].update(
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self._optimizer.step()
        self.forget_gradients()
        return norm

    def forget_gradients(self) -> None:
        """Drop what has accumulated."""
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, torch.Tensor]:
        """Every moment and the step count by name; empty before the first step."""
        state = self._optimizer.state
        return {
            f"{name}.{part}": state[weight][part]
            for name, weight in self._weights.items()
            if weight in state
            for part in (*_MOMENTS, _STEP)
        }

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a `state`, bit for bit. Raises Refusal when it does not fit the weights."""
        if not state:
            return
        expected = {f"{name}.{p}" for name in self._weights for p in (*_MOMENTS, _STEP)}
        if state.keys() != expected:
            raise Refusal("the optimizer state does not belong to these weights")
        for name, weight in self._weights.items():
            moments = {p: state[f"{name}.{p}"].to(weight.device).clone() for p in _MOMENTS}
            self._optimizer.state[weight] = {_STEP: state[f"{name}.{_STEP}"].clone(), **moments}
