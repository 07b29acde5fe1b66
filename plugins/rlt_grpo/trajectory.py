"""What one sample of a row came to: the tokens as they were sampled, and what they earned.

Tokens in, tokens out: whatever the model said stands here as the ids it sampled, and what came
between its turns as the ids it was given. Nothing is decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import rlt

if TYPE_CHECKING:
    from tinker import SampledSequence


@dataclass(slots=True)
class Trajectory:
    """One episode. Lists of shape (N,): a place for each token, the first prompt included."""

    row: rlt.Row
    tokens: list[int]
    logprobs: list[float] = field(default_factory=list)
    """Of the sampled tokens, under the weights that sampled them; 0 where a token was given."""
    sampled: list[bool] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    """What the model said, turn by turn."""
    truncated: bool = False
    """Whether it was cut at `--max-tokens` or at the end of the context."""
    reward: float = 0.0
    failure: str = ""
    """Why it cannot be learnt from; then there is no reward."""

    def __post_init__(self) -> None:
        self.logprobs = [0.0] * len(self.tokens)
        self.sampled = [False] * len(self.tokens)

    @property
    def length(self) -> int:
        """How many tokens were sampled."""
        return sum(self.sampled)

    def given(self, tokens: Sequence[int]) -> None:
        """Go on with tokens that the model is shown."""
        self.tokens += tokens
        self.logprobs += [0.0] * len(tokens)
        self.sampled += [False] * len(tokens)

    def said(self, sequence: SampledSequence, text: str) -> None:
        """Go on with what the model sampled.

        :raises rlt.RunError: when the service sends no log-probabilities with its samples.
        """
        if sequence.logprobs is None or len(sequence.logprobs) != len(sequence.tokens):
            raise rlt.RunError("the service sends no log-probabilities with its samples")
        self.tokens += sequence.tokens
        self.logprobs += sequence.logprobs
        self.sampled += [True] * len(sequence.tokens)
        self.actions.append(text)
        self.truncated = sequence.stop_reason == "length"
