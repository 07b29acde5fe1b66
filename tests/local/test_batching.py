"""What a request gets does not depend on what it was computed with."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from tinker import types
from torch.nn import functional as F

from rlt.local.invariance import _safe_height, padded_height

REQUESTS = [
    (list(range(5, 5 + length)), samples, tokens, seed)
    for length, samples, tokens, seed in [
        (4, 1, 30, 1), (17, 2, 5, 2), (60, 1, 45, 3), (3, 5, 12, 4),
        (128, 1, 20, 5), (29, 3, 33, 6), (70, 1, 64, 7), (9, 1, 1, 8),
    ]
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tools: Any, datum: Any) -> Any:
    client = tools.client(seed=21)
    one = datum([5, 6, 7, 8], [6, 7, 8, 9], weights=[1.0] * 4)
    client.forward_backward([one], "cross_entropy")
    client.optim_step(types.AdamParams(learning_rate=0.02)).result()
    return client.save_weights_and_get_sampling_client().result()


def _submit(sampler: Any, request: Any) -> Any:
    tokens, samples, max_tokens, seed = request
    return sampler.sample(
        types.ModelInput.from_ints(tokens),
        samples,
        types.SamplingParams(max_tokens=max_tokens, seed=seed, stop=[], temperature=0.9),
        include_prompt_logprobs=True,
    )


def _bytes(result: Any) -> list[bytes]:
    sequences = [part for s in result.sequences for part in (s.tokens_np, s.logprobs_np)]
    return [array.tobytes() for array in (*sequences, result.prompt_logprobs_np)]


def test_a_request_alone_and_among_others_gives_the_same_bytes(trained: Any) -> None:
    alone = [_bytes(_submit(trained, request).result()) for request in REQUESTS]
    for order in (REQUESTS, REQUESTS[::-1], REQUESTS[3:] + REQUESTS[:3]):
        futures = [(REQUESTS.index(request), _submit(trained, request)) for request in order]
        for index, future in futures:
            assert _bytes(future.result()) == alone[index]


def test_training_in_between_changes_nothing(tools: Any, trained: Any, datum: Any) -> None:
    alone = _bytes(_submit(trained, REQUESTS[6]).result())
    client = tools.client(seed=22, rank=4)
    one = datum(list(range(5, 100)), list(range(6, 101)), weights=[1.0] * 95)
    base = tools.service.create_sampling_client(base_model="tests/tiny").result()
    futures = []
    for _ in range(3):
        client.forward_backward([one], "cross_entropy")
        futures += [_submit(trained, REQUESTS[6]), _submit(base, REQUESTS[6])]
        client.optim_step(types.AdamParams(learning_rate=0.05))
    results = [_bytes(future.result()) for future in futures]
    assert all(result == alone for result in results[::2])
    assert all(result == results[1] for result in results[1::2])
    assert results[1] != alone


def test_requests_from_many_threads_are_all_answered(trained: Any) -> None:
    results: dict[int, Any] = {}

    def ask(index: int) -> None:
        results[index] = _bytes(_submit(trained, REQUESTS[index % 8]).result())

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[index] == results[index + 8] for index in range(8))


def test_rows_are_padded_to_heights_that_round_alike() -> None:
    assert [padded_height(rows, 64) for rows in (1, 8, 9, 64)] == [8, 8, 16, 64]
    assert [padded_height(rows, 8) for rows in (1, 8)] == [8, 8]
    assert padded_height(1, 1) == 1


def test_an_operation_that_is_not_the_same_for_every_row_is_noticed() -> None:
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    assert _safe_height(lambda x: x * 2, rows) == 64
    assert _safe_height(lambda x: x * (2 if len(x) == 8 else 3), rows) == 8
    assert _safe_height(lambda x: x + torch.arange(len(x))[:, None], rows) == 1


@pytest.mark.parametrize("width", [64, 128, 576, 1536])
def test_reductions_treat_rows_alike(width: int) -> None:
    """RMSNorm, softmax and friends, which the engine does not measure."""
    rows = torch.randn(64, width, generator=torch.Generator().manual_seed(0))
    for operation in (
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
        lambda x: F.softmax(x, dim=-1),
        lambda x: F.layer_norm(x, (width,)),
        lambda x: torch.logsumexp(x, dim=-1),
    ):
        assert _safe_height(operation, rows) == 64
