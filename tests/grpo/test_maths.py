"""Advantages, the KL penalty, and the datums that carry them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rlt
from rlt.local.losses import LOSSES
from rlt_grpo.advantages import advantages, is_constant, with_penalty
from rlt_grpo.objective import datum, loss, scaled
from rlt_grpo.trajectory import Trajectory

ROW = rlt.Row({"prompt": "?", "metadata": {}}, "id", "file", 1)


def trajectory(prompt: list[int], *turns: tuple[list[int], list[int]]) -> Trajectory:
    """A prompt, then for each turn what was sampled and what was given after it."""
    made = Trajectory(ROW, list(prompt))
    for sampled, given in turns:
        logprobs = [-0.1 * token for token in sampled]
        sequence = SimpleNamespace(tokens=sampled, logprobs=logprobs, stop_reason="stop")
        made.said(sequence, "text")  # type: ignore[arg-type]
        made.given(given)
    return made


def test_advantages_are_centred_within_a_group() -> None:
    assert advantages([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]
    assert sum(advantages([0.3, 0.7, 0.1])) == pytest.approx(0)


def test_they_may_be_scaled_by_the_deviation() -> None:
    assert advantages([2.0, 0.0], scale=True) == [1.0, -1.0]
    assert advantages([2.0, 2.0], scale=True) == [0.0, 0.0], "no division by zero"


def test_a_group_that_all_did_equally_well_is_constant() -> None:
    assert is_constant([0.5, 0.5])
    assert is_constant([1.0])
    assert not is_constant([0.0, 1.0])


def test_the_penalty_takes_from_what_strays_and_leaves_the_mean() -> None:
    penalised = with_penalty([[1.0, 1.0], [-1.0]], [[0.3, 0.0], [0.0]], 2.0)
    assert penalised == [
        pytest.approx([1.0 - 0.4, 1.0 + 0.2]),
        pytest.approx([-1.0 + 0.2]),
    ]


def test_each_sampled_token_carries_the_advantage_and_what_was_given_none() -> None:
    made = trajectory([1, 2], ([3, 4], [5, 6]), ([7], []))
    item = datum(made, [0.5, 0.5, 0.5])
    inputs = {name: data.to_numpy() for name, data in item.loss_fn_inputs.items()}
    assert item.model_input.to_ints() == [1, 2, 3, 4, 5, 6]
    assert inputs["target_tokens"].tolist() == [2, 3, 4, 5, 6, 7]
    assert inputs["advantages"].tolist() == [0, 0.5, 0.5, 0, 0, 0.5]
    assert inputs["logprobs"] == pytest.approx([0, -0.3, -0.4, 0, 0, -0.7])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("token-mean", [[1 / 3] * 2, [1 / 3]]), ("sequence-mean", [[0.25] * 2, [0.5]]),
     ("sum", [[1.0] * 2, [1.0]])],
)  # fmt: skip
def test_the_mean_is_written_into_the_advantages(
    reduction: str, expected: list[list[float]]
) -> None:
    two = [trajectory([1], ([2, 3], [])), trajectory([1], ([4], []))]
    for found, wanted in zip(scaled(two, [[1.0, 1.0], [1.0]], reduction), expected, strict=True):
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo"])
def test_the_reported_loss_is_the_one_that_the_engine_minimises(name: str) -> None:
    made = trajectory([1, 2], ([3, 4, 5], []))
    item = datum(made, [0.7, -0.4, 0.2])
    logprobs = torch.tensor([-1.0, -0.1, -0.9, -0.2])
    inputs = {
        key: torch.tensor(item.loss_fn_inputs[key].to_numpy()) for key in ("logprobs", "advantages")
    }
    ours = loss(name, 0.8, 1.2)
    theirs = LOSSES[name].function(logprobs, inputs, ours.config or {})
    output = {"logprobs": SimpleNamespace(to_numpy=lambda: np.asarray(logprobs))}
    assert ours.read is not None
    assert ours.read([output], [item]) == pytest.approx(theirs.item(), rel=1e-5)


def test_a_service_without_log_probabilities_is_named() -> None:
    sequence = SimpleNamespace(tokens=[1], logprobs=None, stop_reason="stop")
    with pytest.raises(rlt.RunError, match="no log-probabilities"):
        Trajectory(ROW, [1]).said(sequence, "")  # type: ignore[arg-type]


def test_no_reward_is_no_number() -> None:
    from rlt_grpo.scoring import Fault, finite

    assert finite(True) == 1.0
    for wrong in (math.nan, math.inf, None, "1"):
        with pytest.raises(Fault):
            finite(wrong)
