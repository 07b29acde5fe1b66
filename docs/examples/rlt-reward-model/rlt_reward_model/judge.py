"""The judge: a language model that is asked which of two answers is better.

Its answer is one token, A or B. How sure it is of A is read from the two tokens' probabilities:

    p = exp(log p(A)) / (exp(log p(A)) + exp(log p(B)))

A judge favours a place, so every pair is asked in both orders and the two are averaged.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import rlt
from rlt.rendering import as_messages

if TYPE_CHECKING:
    from tinker import SamplingClient

LABELS = ("A", "B")
_ASKED = """Which of two answers to a question is better?

Question: {question}

Answer A: {first}

Answer B: {second}

Say A or B."""


def prompt(run: rlt.Run, question: str, first: str, second: str) -> list[int]:
    """Return what the judge is asked, as token ids."""
    text = _ASKED
    for name, value in (("question", question), ("first", first), ("second", second)):
        text = text.replace("{" + name + "}", value, 1)  # unlike format, at ease with braces
    return run.renderer.prompt(text)


def label(run: rlt.Run, name: str) -> list[int]:
    """Return the ids of a label."""
    return list(run.tokenizer.encode(name, add_special_tokens=False))


def as_text(question: str | Sequence[rlt.JSON]) -> str:
    """Return a row's prompt as the text that the judge reads."""
    turns = as_messages(question, "user")
    return turns[0]["content"] if len(turns) == 1 else "\n".join(
        f"{turn['role']}: {turn['content']}" for turn in turns
    )  # fmt: skip


async def preference(
    run: rlt.Run, judge: SamplingClient, question: str, answer: str, other: str
) -> float:
    """Return how sure the judge is that `answer` is better than `other`, from 0 to 1."""
    first, second = await asyncio.gather(
        _sureness_of_a(run, judge, prompt(run, question, answer, other)),
        _sureness_of_a(run, judge, prompt(run, question, other, answer)),
    )
    return (first + 1 - second) / 2


async def _sureness_of_a(run: rlt.Run, judge: SamplingClient, asked: list[int]) -> float:
    a, b = await asyncio.gather(*(_logprob(run, judge, asked, name) for name in LABELS))
    return 1 / (1 + math.exp(min(b - a, 700)))


async def _logprob(run: rlt.Run, judge: SamplingClient, asked: list[int], name: str) -> float:
    from tinker import ModelInput  # noqa: PLC0415 - takes a second to import

    ids = label(run, name)
    request = judge.compute_logprobs(ModelInput.from_ints([*asked, *ids]))
    logprobs = await run.answered(request, "the judge")
    return sum(value or 0.0 for value in logprobs[len(asked) :])
