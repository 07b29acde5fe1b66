"""What is wrong with a request is said, with what was expected and found."""

from __future__ import annotations

from typing import Any

import pytest
import tinker
from tinker import types

from rlt.errors import UsageError
from rlt.local.adapters import Adapter, Shape
from rlt.local.refusal import NotFound
from rlt.local.samplers import WeightsCache


def _refused(match: str) -> Any:
    return pytest.raises(tinker.RequestFailedError, match=match)


def test_a_model_that_is_not_served(tools: Any) -> None:
    with pytest.raises(tinker.NotFoundError, match=r"'other' is not served here.*tests/tiny"):
        tools.service.create_lora_training_client(base_model="other").result()
    with pytest.raises(tinker.NotFoundError, match="'other' is not served here"):
        tools.service.create_sampling_client(base_model="other").result()


@pytest.mark.parametrize("rank", [0, -1, 100_000])
def test_a_rank_that_makes_no_sense(tools: Any, rank: int) -> None:
    with pytest.raises(tinker.BadRequestError, match=f"rank must be between 1 and 512, got {rank}"):
        tools.client(rank=rank)


def test_nothing_to_train(tools: Any) -> None:
    with pytest.raises((tinker.BadRequestError, AssertionError)):
        tools.client(train_attn=False, train_mlp=False, train_unembed=False)


@pytest.mark.parametrize(
    ("example", "match"),
    [
        (([9999], [1], {"weights": [1.0]}), "datum 0 has token 9999 at position 0"),
        (([-1], [1], {"weights": [1.0]}), "datum 0 has token -1 at position 0"),
        (([1, 2], [1, 999], {"weights": [1.0, 1.0]}), "target_tokens has token 999 at position 1"),
        (([], [], {"weights": []}), "datum 0 has no tokens"),
        (([1] * 600, [1] * 600, {"weights": [1.0] * 600}), "600 tokens; the model's context is"),
        (([1, 2], [1], {"weights": [1.0]}), r"target_tokens must have the shape \(2,\)"),
        (([1, 2], [1, 2], {"weights": [1.0]}), r"weights must have the shape .* got \(1,\)"),
        (([1], [1], {"weights": [float("nan")]}), "weights has values that are not finite"),
        (([1], [1], {"weights": [float("inf")]}), "weights has values that are not finite"),
        (([1], [1], {}), "needs 'weights'"),
        (([1], [1], {"weights": [1.0], "advantages": [1.0]}), "not 'advantages'"),
    ],
)
def test_a_datum_that_does_not_fit(tools: Any, datum: Any, example: Any, match: str) -> None:
    tokens, targets, inputs = example
    one = datum(tokens, targets, **inputs)
    with _refused(match) as caught:
        tools.client().forward_backward([one], "cross_entropy").result()
    assert caught.value.category == "user"


@pytest.mark.parametrize(
    ("loss", "config", "match"),
    [
        ("nonsense", None, "'nonsense' is not one of the embedded engine's: cross_entropy"),
        ("gspo", None, "'gspo' is not one of"),
        ("ppo", {"clip": 0.1}, "does not take 'clip'.*clip_low_threshold"),
        ("ppo", {"clip_low_threshold": "low"}, "must be a number"),
        ("ppo", {}, "needs 'logprobs'"),
    ],
)
def test_a_loss_that_is_not_known_or_lacks_something(
    tools: Any, datum: Any, loss: Any, config: Any, match: str
) -> None:
    with _refused(match):
        tools.client().forward([datum([1], [1], weights=[1.0])], loss, config).result()


def test_a_step_after_a_failed_pass_is_not_taken(tools: Any, datum: Any) -> None:
    client = tools.client()
    before = tools.folder(client.save_state("before").result().path)
    bad = client.forward_backward([datum([1], [1])], "cross_entropy")
    step = client.optim_step(types.AdamParams(learning_rate=0.1))
    with _refused("needs 'weights'"):
        bad.result()
    with _refused("the optimizer step was not taken"):
        step.result()
    after = tools.folder(client.save_state("after").result().path)
    weights = "adapter_model.safetensors"
    assert (before / weights).read_bytes() == (after / weights).read_bytes()
    client.forward_backward([datum([1], [1], weights=[1.0])], "cross_entropy").result()
    assert client.optim_step(types.AdamParams()).result().metrics["grad_norm:mean"] > 0


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"learning_rate": -1.0}, "learning_rate must be 0 or more, got -1"),
        ({"beta1": 1.0}, "beta1 must be at least 0 and below 1"),
        ({"eps": -1.0}, "eps"),
    ],
)
def test_optimizer_parameters_out_of_range(tools: Any, params: Any, match: str) -> None:
    with _refused(match):
        tools.client().optim_step(types.AdamParams(**params)).result()


@pytest.mark.parametrize(
    ("tokens", "settings", "match"),
    [
        ([], {}, "the prompt has no tokens"),
        ([1] * 513, {}, "the prompt has 513 tokens; the model's context is 512"),
        ([999], {}, "the prompt has token 999 at position 0"),
        ([1], {"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ([1], {"temperature": -0.5}, "temperature must be 0 or more"),
        ([1], {"top_p": 0.0}, "top_p must be above 0"),
        ([1], {"top_k": -2}, "top_k must be positive"),
        ([1], {"stop": [999]}, "stop has token 999"),
        ([1], {"stop": ""}, "stop has an empty string"),
    ],
)
def test_a_sample_request_that_makes_no_sense(
    tools: Any, tokens: Any, settings: Any, match: str
) -> None:
    sampler = tools.service.create_sampling_client(base_model="tests/tiny").result()
    params = types.SamplingParams(**{"max_tokens": 2, **settings})
    with _refused(match) as caught:
        sampler.sample(types.ModelInput.from_ints(tokens), 1, params).result()
    assert caught.value.category == "user"


def test_prompt_questions_that_do_not_fit_the_prompt(tools: Any, prompt: Any) -> None:
    sampler = tools.service.create_sampling_client(base_model="tests/tiny").result()
    with _refused("prompt_logprobs_last_n must be 1 to 2, got 3"):
        sampler.compute_logprobs(prompt([1, 2, 3]), prompt_logprobs_last_n=3).result()
    cells = types.TensorData(data=[5], dtype="int64", shape=[1, 1])
    params = types.SamplingParams(max_tokens=1)
    with _refused(r"target_prompt_logprobs must have the shape \(2, K\)"):
        sampler.sample(prompt([1, 2, 3]), 1, params, target_prompt_logprobs=cells).result()


def test_unnamed_weights_that_were_dropped_are_said_to_be() -> None:
    import torch

    cache = WeightsCache(budget=100, fewest=2)
    for number in range(3):
        cache.put(f"s{number}", Adapter(Shape(1), {"w": torch.zeros(50)}))
    with pytest.raises(NotFound, match=r"sampler s0 were dropped.*save_weights_for_sampler"):
        cache.get("s0", None)
    assert cache.get("s2", None).weights
    assert cache.get("s0", lambda: Adapter(Shape(1), {})).weights == {}


def test_a_port_that_is_taken(tools: Any, tmp_path: Any) -> None:
    from rlt.local.server import start

    port = int(tools.server.url.rsplit(":", 1)[1])
    with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1 cannot be used"):
        start(tools.server.model, store=tmp_path, port=port)
