"""Training through the SDK, against transformers, peft and torch.optim on the same weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tinker import types

ROWS = [[5, 9, 200, 31, 7, 77], [11, 12, 13], [300, 4, 250, 251, 252, 253, 254, 6, 8, 10]]


def _targets(tokens: list[int]) -> list[int]:
    return [*tokens[1:], 2]


def _first_position_logprobs(outputs: Any, index: int) -> torch.Tensor:
    return torch.tensor(outputs.loss_fn_outputs[index]["logprobs"].to_numpy())


def test_forward_returns_the_logprobs_of_transformers_and_the_plain_sum(
    tools: Any, datum: Any, logprobs_of: Any
) -> None:
    weights = [[0.5, -1.0, 0.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0] * 10]
    data = [datum(t, _targets(t), weights=w) for t, w in zip(ROWS, weights, strict=True)]
    client = tools.client()
    result = client.forward(data, "cross_entropy").result()
    model, expected = tools.plain(), 0.0
    for index, tokens in enumerate(ROWS):
        with torch.no_grad():
            every = logprobs_of(model, tokens)
        own = every.gather(1, torch.tensor(_targets(tokens))[:, None])[:, 0]
        assert torch.allclose(_first_position_logprobs(result, index), own, atol=1e-4)
        expected -= float((own * torch.tensor(weights[index])).sum())
    assert result.metrics["loss:sum"] == pytest.approx(expected, abs=1e-3)


def test_targets_may_have_many_columns_dense_or_sparse(
    tools: Any, datum: Any, logprobs_of: Any
) -> None:
    tokens = ROWS[0]
    targets = torch.zeros(6, 40, dtype=torch.long)
    weights = torch.zeros(6, 40)
    targets[2, :3] = torch.tensor([7, 8, 9])
    weights[2, :3] = torch.tensor([0.5, 0.25, -0.25])
    sparse = datum(tokens, targets, weights=weights)
    assert sparse.loss_fn_inputs["target_tokens"].sparse_crow_indices is not None
    dense = datum(tokens, targets.numpy(), weights=weights.numpy())
    single = datum(ROWS[1], _targets(ROWS[1]), weights=[1.0, 1.0, 1.0])
    client = tools.client()
    together = client.forward_backward([sparse, single, dense], "cross_entropy").result()
    assert together.loss_fn_outputs[0]["logprobs"].shape == [6, 40]
    assert together.loss_fn_outputs[1]["logprobs"].shape == [3]
    with torch.no_grad():
        expected = logprobs_of(tools.plain(), tokens).gather(1, targets)
    for index in (0, 2):
        found = together.loss_fn_outputs[index]["logprobs"].to_numpy()
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, {"self_attn", "mlp", "lm_head"}),
        ({"train_unembed": False}, {"self_attn", "mlp"}),
        ({"train_mlp": False, "train_unembed": False}, {"self_attn"}),
        ({"train_attn": False, "train_mlp": False}, {"lm_head"}),
    ],
)
def test_adapters_cover_what_was_asked_for_and_load_in_peft(
    tools: Any, options: dict[str, bool], parts: set[str]
) -> None:
    path = tools.client(**options).save_state("asked").result().path
    names = [n for n, _ in tools.with_adapter(path).named_parameters() if "lora_A" in n]
    assert {part for part in ("self_attn", "mlp", "lm_head") if any(part in n for n in names)} == (
        parts
    )


def test_a_seed_decides_the_initial_weights(tools: Any) -> None:
    paths = [tools.client(seed=seed).save_state("init").result().path for seed in (7, 7, 8)]
    first, same, other = (
        (tools.folder(path) / "adapter_model.safetensors").read_bytes() for path in paths
    )
    assert first == same
    assert first != other


def test_a_gradient_and_an_optimizer_step_match_torch(
    tools: Any, datum: Any, logprobs_of: Any
) -> None:
    """Two steps with every Adam parameter set, clipping included, on all kinds of layers."""
    settings = {"learning_rate": 1e-2, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8}
    client = tools.client(seed=3)
    before = client.save_state("before").result().path
    data = [datum(t, _targets(t), weights=[1.0] * len(t)) for t in ROWS]
    norms = []
    for clip in (0.0, 0.5):
        client.forward_backward(data, "cross_entropy").result()
        params = types.AdamParams(**settings, weight_decay=0.1, grad_clip_norm=clip)
        norms.append(client.optim_step(params).result().metrics["grad_norm:mean"])
    after = client.save_state("after").result().path

    model = tools.with_adapter(before, trainable=True)
    weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(
        weights.values(), lr=1e-2, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1
    )
    for clip, norm in zip((math.inf, 0.5), norms, strict=True):
        loss = sum(
            -logprobs_of(model, t).gather(1, torch.tensor(_targets(t))[:, None]).sum() for t in ROWS
        )
        loss.backward()
        assert float(torch.nn.utils.clip_grad_norm_(weights.values(), clip)) == (
            pytest.approx(norm, rel=1e-3)
        )
        optimizer.step()
        optimizer.zero_grad()
    trained = dict(tools.with_adapter(after).named_parameters())
    for name, weight in weights.items():
        assert torch.allclose(trained[name], weight, atol=1e-4), name


def test_gradients_add_up_until_a_step_and_ten_times_the_weight_is_ten_times_the_gradient(
    tools: Any, datum: Any
) -> None:
    def norm(*weights: float) -> float:
        client = tools.client()
        for weight in weights:
            one = datum(ROWS[0], _targets(ROWS[0]), weights=[weight] * 6)
            client.forward_backward([one], "cross_entropy")
        step = client.optim_step(types.AdamParams(learning_rate=0.0)).result()
        return float(step.metrics["grad_norm:mean"])

    assert norm(10.0) == pytest.approx(10 * norm(1.0), rel=1e-4)
    assert norm(1.0, 1.0) == pytest.approx(2 * norm(1.0), rel=1e-4)
    assert norm(-1.0) == pytest.approx(norm(1.0), rel=1e-4)
    assert norm(1.0, -1.0) == pytest.approx(0.0, abs=1e-3)


def test_forward_leaves_no_gradient(tools: Any, datum: Any) -> None:
    client = tools.client()
    client.forward([datum(ROWS[0], _targets(ROWS[0]), weights=[1.0] * 6)], "cross_entropy")
    assert client.optim_step(types.AdamParams()).result().metrics["grad_norm:mean"] == 0


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro"])
def test_policy_losses_match_their_formulas(tools: Any, datum: Any, loss: str) -> None:
    tokens, targets = ROWS[2], _targets(ROWS[2])
    advantages = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, -0.5, 1.0, 1.0, -2.0, 1.0])
    client = tools.client()
    zeros = datum(tokens, targets, weights=[0.0] * 10)
    own = torch.tensor(
        client.forward([zeros], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].to_numpy()
    )
    sampled = own + torch.linspace(-0.6, 0.6, 10)
    one = datum(tokens, targets, logprobs=sampled, advantages=advantages)
    config = {
        "ppo": {"clip_low_threshold": 0.7, "clip_high_threshold": 1.1},
        "cispo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.3},
        "dro": {"beta": 0.3},
    }.get(loss)
    result = client.forward_backward([one], loss, config).result()
    ratio = (own - sampled).exp()
    expected = {
        "importance_sampling": lambda: ratio * advantages,
        "ppo": lambda: torch.minimum(ratio * advantages, ratio.clamp(0.7, 1.1) * advantages),
        "cispo": lambda: ratio.clamp(0.9, 1.3) * own * advantages,
        "dro": lambda: own * advantages - 0.15 * (own - sampled) ** 2,
    }[loss]()
    assert result.metrics["loss:sum"] == pytest.approx(-float(expected.sum()), abs=1e-3)


def test_a_custom_loss_gives_the_gradient_of_the_built_in_one(tools: Any, datum: Any) -> None:
    weights = [0.5, 1.0, 0.0, -1.0, 2.0, 1.0]
    data = [datum(ROWS[0], _targets(ROWS[0]), weights=weights)]

    def loss(data: Any, logprobs: Any) -> Any:
        return -(logprobs[0] * torch.tensor(weights)).sum(), {"mine:mean": 3.0}

    custom, built_in = tools.client(), tools.client()
    result = custom.forward_backward_custom(data, loss).result()
    plain = built_in.forward_backward(data, "cross_entropy").result()
    assert result.metrics["loss:sum"] == pytest.approx(plain.metrics["loss:sum"], abs=1e-4)
    assert result.metrics["mine:mean"] == 3.0
    norms = [c.optim_step(types.AdamParams()).result().metrics for c in (custom, built_in)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_many_rows_are_computed_in_parts_and_come_back_in_order(tools: Any, datum: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.randint(3, 380, (length,), generator=generator).tolist()
        for length in (200, 3, 150, 400, 90, 90, 1, 310)
    ]
    data = [datum(t, _targets(t), weights=[1.0] * len(t)) for t in rows]
    client = tools.client()
    together = client.forward_backward(data, "cross_entropy").result()
    for index, one in enumerate(data):
        alone = client.forward([one], "cross_entropy").result()
        np.testing.assert_allclose(
            together.loss_fn_outputs[index]["logprobs"].to_numpy(),
            alone.loss_fn_outputs[0]["logprobs"].to_numpy(),
            atol=1e-4,
        )


def test_the_same_training_gives_the_same_bytes(tools: Any, datum: Any) -> None:
    data = [datum(t, _targets(t), weights=[1.0] * len(t)) for t in ROWS]
    saved = []
    for _ in range(2):
        client = tools.client(seed=5)
        for _ in range(3):
            client.forward_backward(data, "cross_entropy")
            client.optim_step(types.AdamParams(learning_rate=1e-2))
        saved.append(client.save_state("twice").result().path)
    for file in ("adapter_model.safetensors", "optimizer.safetensors"):
        assert len({(tools.folder(path) / file).read_bytes() for path in saved}) == 1


def test_get_info_tells_the_model_and_the_rank(tools: Any) -> None:
    info = tools.client(rank=4).get_info()
    assert (info.model_name, info.lora_rank, info.is_lora) == ("tests/tiny", 4, True)
