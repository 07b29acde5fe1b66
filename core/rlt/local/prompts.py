"""What can be asked about a prompt besides continuing it: how likely it is, or other tokens are.

Position i is predicted by the hidden state before it, so the first token never has a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlt.local.draw import DrawSettings, draw, generator_for
from rlt.local.logprobs import log_distributions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt.local.network import Network

MASK_LOGPROB = -99999.0


@dataclass(frozen=True)
class Cells:
    """Places of a (prompt length - 1, K) table of tokens, in row order: row r is position r + 1."""

    rows: np.ndarray
    tokens: np.ndarray
    """-1 asks for nothing."""


@dataclass(frozen=True)
class PromptQuestions:
    """What a sample request wants to know about its prompt."""

    logprobs: bool = False
    last_n: int | None = None
    """Only the last n positions, for `logprobs` and `top_k`."""

    top_k: int = 0
    targets: Cells | None = None
    alternatives: int = 0
    """Independent draws at every position, at this temperature."""

    temperature: float = 1.0
    seed: int = 0

    def any(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.logprobs or self.top_k or self.targets is not None or self.alternatives)


@dataclass
class PromptAnswers:
    """For a prompt of n tokens; what was not asked for is None."""

    logprobs: np.ndarray | None = None
    """(n,) float32, NaN where there is none."""

    top_tokens: np.ndarray | None = None
    """(n, k) int32, with `top_logprobs` (n, k); empty cells are token 0, logprob -99999."""

    top_logprobs: np.ndarray | None = None
    targets: np.ndarray | None = None
    """One float32 for each of the cells asked for, 0 for the token -1."""

    alternatives: np.ndarray | None = None
    """(n - 1, k) int32 tokens, with `alternative_logprobs` (n - 1, k)."""

    alternative_logprobs: np.ndarray | None = None


def answer(
    network: Network,
    prompt: Sequence[int],
    hidden: torch.Tensor,
    asked: PromptQuestions,
) -> PromptAnswers:
    """Answer `asked` from the hidden states (n, width) of a prompt of n tokens."""
    count = len(prompt)
    answers = _blank(count, asked)
    first = max(1, count - asked.last_n) if asked.last_n else 1
    begin = 1 if asked.targets is not None or asked.alternatives else first
    tokens = torch.tensor(list(prompt))
    generator = generator_for(asked.seed, "alternatives")

    def use(offset: int, logprobs: torch.Tensor) -> None:
        logprobs = logprobs.cpu()
        start = begin + offset  # the position that the first row predicts
        _fill_targets(answers, asked, start, logprobs)
        _fill_alternatives(answers, asked, start, logprobs, generator)
        skip = max(0, first - start)
        _fill_positions(answers, asked, start + skip, logprobs[skip:], tokens)

    if count > begin:
        log_distributions(network, hidden[begin - 1 : count - 1], use)
    return answers


def _blank(count: int, asked: PromptQuestions) -> PromptAnswers:
    answers = PromptAnswers()
    if asked.logprobs:
        answers.logprobs = np.full(count, np.nan, np.float32)
    if asked.top_k:
        answers.top_tokens = np.zeros((count, asked.top_k), np.int32)
        answers.top_logprobs = np.full((count, asked.top_k), MASK_LOGPROB, np.float32)
    if asked.targets is not None:
        answers.targets = np.zeros(len(asked.targets.tokens), np.float32)
    if asked.alternatives:
        answers.alternatives = np.zeros((count - 1, asked.alternatives), np.int32)
        answers.alternative_logprobs = np.zeros((count - 1, asked.alternatives), np.float32)
    return answers


def _fill_positions(
    answers: PromptAnswers,
    asked: PromptQuestions,
    start: int,
    logprobs: torch.Tensor,
    tokens: torch.Tensor,
) -> None:
    end = start + len(logprobs)
    if start >= end:
        return
    if answers.logprobs is not None:
        chosen = tokens[start:end, None]
        answers.logprobs[start:end] = logprobs.gather(1, chosen)[:, 0].numpy()
    if answers.top_tokens is not None and answers.top_logprobs is not None:
        values, best = logprobs.topk(asked.top_k)
        answers.top_tokens[start:end] = best.numpy()
        answers.top_logprobs[start:end] = values.numpy()


def _fill_targets(
    answers: PromptAnswers, asked: PromptQuestions, start: int, logprobs: torch.Tensor
) -> None:
    if asked.targets is None or answers.targets is None:
        return
    rows, tokens = asked.targets.rows, asked.targets.tokens
    here = (rows >= start - 1) & (rows < start - 1 + len(logprobs)) & (tokens >= 0)
    answers.targets[here] = logprobs.numpy()[rows[here] - (start - 1), tokens[here]]


def _fill_alternatives(
    answers: PromptAnswers,
    asked: PromptQuestions,
    start: int,
    logprobs: torch.Tensor,
    generator: torch.Generator,
) -> None:
    if answers.alternatives is None or answers.alternative_logprobs is None:
        return
    at_temperature = DrawSettings(temperature=asked.temperature)
    for row, distribution in enumerate(logprobs, start - 1):
        for column in range(asked.alternatives):
            token = draw(distribution, at_temperature, generator)
            answers.alternatives[row, column] = token
            answers.alternative_logprobs[row, column] = distribution[token]
