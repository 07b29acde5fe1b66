"""The closed-form gradient is the one that automatic differentiation finds."""

from __future__ import annotations

import math

import pytest
import torch

from rlt_dpo.objective import ipo, log_sigmoid, sigmoid

MARGINS = (-40.0, -3.0, -0.1, 0.0, 0.2, 5.0, 40.0)


def autograd_sigmoid(s: torch.Tensor, beta: float, smoothing: float) -> torch.Tensor:
    right = torch.nn.functional.logsigmoid(beta * s)
    wrong = torch.nn.functional.logsigmoid(-beta * s)
    return -(1 - smoothing) * right - smoothing * wrong


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_slope_of_sigmoid_is_autograds(margin: float, beta: float, smoothing: float) -> None:
    s = torch.tensor(margin, dtype=torch.float64, requires_grad=True)
    expected = autograd_sigmoid(s, beta, smoothing)
    expected.backward()
    value, slope = sigmoid(beta, smoothing)(margin)
    assert value == pytest.approx(expected.item(), abs=1e-9)
    assert slope == pytest.approx(float(s.grad), abs=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("margin", MARGINS)
def test_the_slope_of_ipo_is_autograds(margin: float) -> None:
    s = torch.tensor(margin, dtype=torch.float64, requires_grad=True)
    expected = (s - 1 / (2 * 0.1)) ** 2
    expected.backward()
    value, slope = ipo(0.1)(margin)
    assert value == pytest.approx(expected.item())
    assert slope == pytest.approx(float(s.grad))  # type: ignore[arg-type]


def test_a_hopeless_pair_has_a_finite_loss() -> None:
    value, slope = sigmoid(0.1)(-1e6)
    assert value == pytest.approx(1e5)
    assert slope == pytest.approx(-0.1)
    assert math.isfinite(log_sigmoid(1e9)) and math.isfinite(log_sigmoid(-1e9))


def test_at_the_reference_the_loss_is_log_2() -> None:
    assert sigmoid(0.1)(0.0)[0] == pytest.approx(math.log(2))
