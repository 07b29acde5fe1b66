"""Sampling through the SDK, against a plain forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tinker import types

PROMPT = [1, 40, 41, 42, 300, 7]


@pytest.fixture(scope="module")
def base(tools: Any) -> Any:
    return tools.service.create_sampling_client(base_model="tests/tiny").result()


def _ask(sampler: Any, tokens: list[int] = PROMPT, samples: int = 1, **settings: Any) -> Any:
    settings = {"max_tokens": 8, "seed": 0, "stop": [], **settings}
    prompt = types.ModelInput.from_ints(tokens)
    return sampler.sample(prompt, samples, types.SamplingParams(**settings)).result()


def test_logprobs_are_the_models_own_whatever_the_temperature(
    tools: Any, base: Any, logprobs_of: Any
) -> None:
    for temperature in (0.3, 1.0, 2.0):
        answer = _ask(base, temperature=temperature).sequences[0]
        with torch.no_grad():
            every = logprobs_of(tools.plain(), PROMPT + answer.tokens)
        expected = [float(every[5 + i, token]) for i, token in enumerate(answer.tokens)]
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_temperature_zero_takes_the_most_likely_token(
    tools: Any, base: Any, logprobs_of: Any
) -> None:
    tokens = list(PROMPT)
    model = tools.plain()
    for _ in range(8):
        with torch.no_grad():
            tokens.append(int(logprobs_of(model, tokens)[-1].argmax()))
    assert _ask(base, temperature=0).sequences[0].tokens == tokens[6:]


def test_a_seed_repeats_its_samples_and_each_sample_differs(base: Any) -> None:
    first, again, other = (_ask(base, samples=4, seed=seed) for seed in (3, 3, 4))
    assert [s.tokens for s in first.sequences] == [s.tokens for s in again.sequences]
    assert [s.tokens for s in first.sequences] != [s.tokens for s in other.sequences]
    assert len({tuple(s.tokens) for s in first.sequences}) == 4
    assert len({s.sequence_id for s in first.sequences}) == 4


def test_requests_without_a_seed_differ(base: Any) -> None:
    answers = [_ask(base, seed=None).sequences[0].tokens for _ in range(3)]
    assert len({tuple(tokens) for tokens in answers}) == 3


def test_draws_follow_the_models_distribution(tools: Any, base: Any, logprobs_of: Any) -> None:
    drawn = [s.tokens[0] for s in _ask(base, samples=1000, max_tokens=1).sequences]
    with torch.no_grad():
        probabilities = logprobs_of(tools.plain(), PROMPT)[-1].exp()
    counts = torch.bincount(torch.tensor(drawn), minlength=len(probabilities))
    assert float((counts / 1000 - probabilities).abs().max()) < 0.05


def test_top_k_and_top_p_keep_to_the_most_likely_tokens(
    tools: Any, base: Any, logprobs_of: Any
) -> None:
    with torch.no_grad():
        order = logprobs_of(tools.plain(), PROMPT)[-1].argsort(descending=True)
    top_k = _ask(base, samples=100, max_tokens=1, top_k=3, temperature=3.0).sequences
    assert {s.tokens[0] for s in top_k} == set(order[:3].tolist())
    top_p = _ask(base, samples=20, max_tokens=1, top_p=1e-6).sequences
    assert {s.tokens[0] for s in top_p} == {int(order[0])}


def test_a_stop_token_is_included_and_ends_the_answer(base: Any) -> None:
    free = _ask(base).sequences[0]
    assert (free.stop_reason, len(free.tokens)) == ("length", 8)
    stop = free.tokens[4]
    ended = _ask(base, stop=[stop]).sequences[0]
    assert ended.stop_reason == "stop"
    assert ended.tokens == free.tokens[: free.tokens.index(stop) + 1]


def test_a_stop_string_may_span_tokens(base: Any, tokenizer: Any) -> None:
    free = _ask(base, max_tokens=40).sequences[0]
    pieces = [tokenizer.decode([token]) for token in free.tokens]
    at = next(
        i
        for i in range(3, 38)
        if all(len(piece) > 1 and piece.isascii() for piece in pieces[i : i + 2])
    )
    string = pieces[at][-1] + pieces[at + 1][0]
    ended = _ask(base, max_tokens=40, stop=string).sequences[0]
    assert ended.stop_reason == "stop"
    assert string in tokenizer.decode(ended.tokens)
    assert string not in tokenizer.decode(ended.tokens[:-1])
    assert ended.tokens == free.tokens[: len(ended.tokens)]


def test_no_stop_means_the_models_own_end_and_an_empty_list_means_none(base: Any) -> None:
    samples = {"samples": 200, "max_tokens": 16}
    ended = [s for s in _ask(base, stop=None, **samples).sequences if s.stop_reason == "stop"]
    assert ended
    assert all(s.tokens.index(2) == len(s.tokens) - 1 for s in ended)
    assert all(s.stop_reason == "length" for s in _ask(base, **samples).sequences)


def test_max_tokens_ends_at_the_context(base: Any) -> None:
    answer = _ask(base, [5] * 500, max_tokens=100).sequences[0]
    assert (answer.stop_reason, len(answer.tokens)) == ("length", 12)


def test_compute_logprobs_scores_the_prompt(
    tools: Any, base: Any, prompt: Any, logprobs_of: Any
) -> None:
    found = base.compute_logprobs(prompt(PROMPT)).result()
    with torch.no_grad():
        every = logprobs_of(tools.plain(), PROMPT)
    expected = [float(every[i, token]) for i, token in enumerate(PROMPT[1:])]
    assert found[0] is None
    assert found[1:] == pytest.approx(expected, abs=1e-4)
    last = base.compute_logprobs(prompt(PROMPT), prompt_logprobs_last_n=2).result()
    assert last[:4] == [None] * 4
    assert last[4:] == pytest.approx(expected[3:], abs=1e-4)
    assert base.compute_logprobs(prompt([5])).result() == [None]


def test_top_k_prompt_logprobs(tools: Any, base: Any, prompt: Any, logprobs_of: Any) -> None:
    result = base.sample(
        prompt(PROMPT),
        1,
        types.SamplingParams(max_tokens=1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
    ).result()
    with torch.no_grad():
        values, tokens = logprobs_of(tools.plain(), PROMPT)[:-1].topk(3)
    assert result.topk_prompt_logprobs[0] is None
    for row in range(5):
        found = result.topk_prompt_logprobs[row + 1]
        assert [token for token, _ in found] == tokens[row].tolist()
        assert [value for _, value in found] == pytest.approx(values[row].tolist(), abs=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_target_prompt_logprobs(
    tools: Any, base: Any, prompt: Any, logprobs_of: Any, sparse: bool
) -> None:
    cells = torch.full((5, 12), -1)
    cells[1, :2] = torch.tensor([9, 8])
    cells[4, 3] = 7
    data = (
        types.TensorData.from_torch_sparse(cells, pad_value=-1)
        if sparse
        else types.TensorData.from_torch(cells)
    )
    assert (data.sparse_crow_indices is not None) is sparse
    result = base.sample(
        prompt(PROMPT), 1, types.SamplingParams(max_tokens=1), target_prompt_logprobs=data
    ).result()
    with torch.no_grad():
        every = logprobs_of(tools.plain(), PROMPT)
    expected = torch.zeros(5, 12)
    for row, column in ((1, 0), (1, 1), (4, 3)):
        expected[row, column] = every[row, cells[row, column]]
    found = result.target_prompt_logprobs.to_numpy()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_alternatives_and_top_k_of_samples(
    tools: Any, base: Any, prompt: Any, logprobs_of: Any
) -> None:
    result = base.sample(
        prompt(PROMPT),
        1,
        types.SamplingParams(max_tokens=3, seed=1, stop=[]),
        topk_sample_logprobs=2,
        prompt_alt_tokens_k=4,
    ).result()
    answer = result.sequences[0]
    with torch.no_grad():
        every = logprobs_of(tools.plain(), PROMPT + answer.tokens)
    for position, found in enumerate(answer.topk_logprobs):
        values, tokens = every[5 + position].topk(2)
        assert [token for token, _ in found] == tokens.tolist()
        assert [value for _, value in found] == pytest.approx(values.tolist(), abs=1e-4)
    tokens = torch.tensor(result.prompt_alt_tokens.tokens.to_numpy())
    assert tokens.shape == (5, 4)
    np.testing.assert_allclose(
        result.prompt_alt_tokens.logprobs.to_numpy(), every[:5].gather(1, tokens), atol=1e-4
    )


def test_samplers_of_different_ages_stay_what_they_were(
    tools: Any, datum: Any, prompt: Any, logprobs_of: Any
) -> None:
    client = tools.client(seed=11)
    one = datum(PROMPT, [*PROMPT[1:], 9], weights=[1.0] * 6)
    samplers, paths = [], []
    for _ in range(3):
        samplers.append(client.save_weights_and_get_sampling_client().result())
        paths.append(client.save_weights_for_sampler(f"age-{len(paths)}").result().path)
        client.forward_backward([one], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=0.05)).result()
    found = [s.compute_logprobs(prompt(PROMPT)) for s in samplers]
    for future, path in zip(found, paths, strict=True):
        with torch.no_grad():
            every = logprobs_of(tools.with_adapter(path), PROMPT)
        expected = [float(every[i, token]) for i, token in enumerate(PROMPT[1:])]
        assert future.result()[1:] == pytest.approx(expected, abs=1e-4)
        named = tools.service.create_sampling_client(model_path=path).result()
        assert named.compute_logprobs(prompt(PROMPT)).result() == future.result()


def test_a_sampling_client_knows_its_model(tools: Any, base: Any) -> None:
    assert base.get_base_model() == "tests/tiny"
    path = tools.client().save_weights_for_sampler("known").result().path
    sampler = tools.service.create_sampling_client(model_path=path).result()
    assert sampler.get_base_model() == "tests/tiny"
