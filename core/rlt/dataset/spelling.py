"""What somebody probably meant: a slip of the finger, or another tool's word for the same."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

ELSEWHERE = {
    "response": "completion",
    "output": "completion",
    "answer": "completion",
    "target": "completion",
    "demonstration": "completion",
    "question": "prompt",
    "instruction": "prompt",
    "input": "prompt",
    "query": "prompt",
    "accepted": "chosen",
    "preferred": "chosen",
    "unpreferred": "rejected",
    "from": "role",
    "value": "content",
    "text": "content",
    "functions": "tools",
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "function": "tool",
    "observation": "tool",
}
"""Words of other tools' formats, and ours for them."""


def one_slip(word: str, known: str) -> bool:
    """Say whether `word` is `known` with one letter wrong, too many or too few, or recased."""
    if word == known:
        return False
    if word.casefold() == known.casefold():
        return True
    if abs(len(word) - len(known)) > 1 or min(len(word), len(known)) < 3:
        return False
    i = next((i for i, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), None)
    if i is None:  # one is the other and one letter more
        return True
    return (
        word[i + 1 :] == known[i + 1 :]
        or word[i + 1 :] == known[i:]
        or word[i:] == known[i + 1 :]
        or (word[i : i + 2] == known[i : i + 2][::-1] and word[i + 2 :] == known[i + 2 :])
    )


def misspelt(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` is one slip away from; None when it is one itself."""
    words = list(known)
    if word in words:
        return None
    return next((candidate for candidate in words if one_slip(word, candidate)), None)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` most resembles, in spelling or in meaning; None if none."""
    if len(word) > 64:  # no slip, and difflib takes its time
        return None
    return _closest(word, tuple(known))


@lru_cache(maxsize=4096)
def _closest(word: str, words: tuple[str, ...]) -> str | None:
    spelt = difflib.get_close_matches(word, words, 1, 0.7)
    if spelt:
        return spelt[0]
    foreign = [name for name, ours in ELSEWHERE.items() if ours in words]
    meant = difflib.get_close_matches(word.casefold(), foreign, 1, 0.8)
    return ELSEWHERE[meant[0]] if meant else None
