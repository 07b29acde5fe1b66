"""Choosing the next token from one row of logits.

Everything here looks at one row alone, so that a sample is the same in whatever batch it was made.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class DrawSettings:
    """How to draw: temperature first, then top-k, then top-p, as vLLM orders them."""

    temperature: float = 1.0
    """0 takes the most likely token."""

    top_k: int = -1
    """Draw among the k most likely only; less than 1 means all."""

    top_p: float = 1.0
    """Draw among the fewest most likely tokens that together have this probability."""


def generator_for(seed: int, *index: object) -> torch.Generator:
    """A generator of its own for one sample: `index` tells the samples of one seed apart."""
    digest = hashlib.blake2b(repr((seed, *index)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def fresh_seed() -> int:
    """A seed for a request that has none."""
    return secrets.randbits(62)


def draw(logits: torch.Tensor, settings: DrawSettings, generator: torch.Generator) -> int:
    """One token from `logits` (vocabulary,), on the CPU, using one number of `generator`."""
    if settings.temperature == 0:
        return int(logits.argmax())
    weights = ((logits - logits.max()) / settings.temperature).exp()
    weights = _nucleus(_most_likely(weights, settings.top_k), settings.top_p)
    reached = weights.double().cumsum(0)
    point = torch.rand((), generator=generator, dtype=torch.float64) * reached[-1]
    # The first token whose share reaches beyond the point; it has a weight above zero.
    return min(int(torch.searchsorted(reached, point, right=True)), len(logits) - 1)


def _most_likely(weights: torch.Tensor, k: int) -> torch.Tensor:
    if not 0 < k < len(weights):
        return weights
    values, tokens = weights.topk(k)
    return torch.zeros_like(weights).scatter(0, tokens, values)


def _nucleus(weights: torch.Tensor, p: float) -> torch.Tensor:
    if p >= 1:
        return weights
    values, tokens = weights.sort(descending=True, stable=True)
    before = values.double().cumsum(0) - values  # the share of what is more likely
    values = values.masked_fill(before >= p * weights.double().sum(), 0)
    values[0] = weights[tokens[0]]  # p may be so small that nothing is left
    return torch.zeros_like(weights).scatter(0, tokens, values)


class StopRule:
    """When an answer is over: at certain tokens, or once its text holds certain strings."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], strings: tuple[str, ...] = ()) -> None:
        """Stop after a token of `ends`, or when one of `strings` has appeared."""
        self._tokenizer = tokenizer
        self._ends = ends
        self._strings = strings
        # A token has at least one byte, so a string lies within this many last tokens. A few more
        # keep characters whole that begin before it.
        self._window = max((len(s.encode()) for s in strings), default=0) + 4

    def satisfied(self, tokens: Sequence[int]) -> bool:
        """Whether the last of `tokens` ends the answer."""
        if tokens[-1] in self._ends:
            return True
        if not self._strings:
            return False
        text = self._tokenizer.decode(
            list(tokens[-self._window :]),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        return any(string in text for string in self._strings)
