"""How likely a pair's answers are: under the weights that are trained, and under the reference.

A sequence's log-probability is the sum over the tokens that its assistant wrote. The reference is
the weights before step 0, whatever step a run is resumed at; each row is asked about once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import rlt
from rlt.rendering import Example, datum
from rlt_dpo.pairs import Pair

Both = tuple[float, float]
"""A number of the chosen side and one of the rejected side."""


class References:
    """The reference's log-probabilities of a run's rows, by row id."""

    def __init__(self) -> None:
        self._known: dict[str, asyncio.Future[Both]] = {}

    async def of(self, run: rlt.Run, pairs: Sequence[Pair]) -> list[Both]:
        """Return those of `pairs`; all requests that are needed are in flight together."""
        for pair in pairs:
            known = self._known.get(pair.row.id)
            if known is None or (known.done() and known.exception()):
                self._known[pair.row.id] = asyncio.ensure_future(_reference(run, pair))
        return list(await asyncio.gather(*(self._known[pair.row.id] for pair in pairs)))


async def policy(run: rlt.Run, pairs: Sequence[Pair]) -> list[Both]:
    """Return the log-probabilities under the current weights, from one `forward`."""
    sides = [side for pair in pairs for side in pair.sides]
    request = run.training.forward([datum(side) for side in sides], "cross_entropy")
    result = await run.answered(request, "forward of the pairs")
    sums = [
        _weighted(side.weights[1:], output["logprobs"].to_numpy().tolist())
        for side, output in zip(sides, result.loss_fn_outputs, strict=True)
    ]
    return list(zip(sums[::2], sums[1::2], strict=True))


async def _reference(run: rlt.Run, pair: Pair) -> Both:
    chosen, rejected = await asyncio.gather(*(_scored(run, side) for side in pair.sides))
    return chosen, rejected


async def _scored(run: rlt.Run, side: Example) -> float:
    from tinker import ModelInput  # noqa: PLC0415 - loaded with the service

    base = await run.sampler("base")
    request = base.compute_logprobs(ModelInput.from_ints(list(side.tokens)))
    logprobs = await run.answered(request, "the reference's log-probabilities")
    return _weighted(side.weights[1:], logprobs[1:])


def _weighted(weights: Sequence[float], logprobs: Sequence[float | None]) -> float:
    """Sum what has weight; a token without may have no finite log-probability."""
    pairs = zip(weights, logprobs, strict=True)
    return sum(weight * (logprob or 0.0) for weight, logprob in pairs if weight)
