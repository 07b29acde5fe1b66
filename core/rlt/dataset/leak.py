"""Held-out prompts that a model has been trained on.

The training file's prompts are kept as sorted 64-bit hashes, eight bytes each and eight for the
line, so a large training file fits. A prompt in a string and the same prompt as one user message
are equal.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from rlt.dataset.detect import guess
from rlt.dataset.findings import Problem
from rlt.dataset.lines import batches
from rlt.dataset.source import Source
from rlt.dataset.syntax import Fault, parse
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError
from rlt.types import JSON

_PIECES = 256


def prompt_key(value: Any) -> int:
    """Hash a prompt, whichever way it is written."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        message = value[0]
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            value = message["content"]
    text = value.strip() if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hash(text)


class Held:
    """The prompts of a training file."""

    def __init__(self, name: str, prompts: Iterable[tuple[int, Any]]) -> None:
        """Read `prompts`, each with its line, of the file called `name`."""
        self.name = name
        self._keys = [array("q") for _ in range(_PIECES)]
        self._lines = [array("Q") for _ in range(_PIECES)]
        for line, prompt in prompts:
            key = prompt_key(prompt)
            self._keys[key % _PIECES].append(key)
            self._lines[key % _PIECES].append(line)
        for piece in range(_PIECES):
            self._sort(piece)

    def _sort(self, piece: int) -> None:
        keys, lines = self._keys[piece], self._lines[piece]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys[piece] = array("q", [keys[i] for i in order])
        self._lines[piece] = array("Q", [lines[i] for i in order])

    def line(self, prompt: Any) -> int | None:
        """Return the first line of the training file that has this prompt."""
        if prompt is None:
            return None
        key = prompt_key(prompt)
        keys = self._keys[key % _PIECES]
        at = bisect_left(keys, key)
        return self._lines[key % _PIECES][at] if at < len(keys) and keys[at] == key else None

    def any(self, kind: DatasetType, rows: Sequence[JSON]) -> bool:
        """Say whether one of these rows leaks."""
        return (
            any(row.get(kind.prompt) is not None and self.line(row[kind.prompt]) for row in rows)
            if kind.prompt
            else False
        )

    def problems(self, kind: DatasetType, row: JSON) -> Iterator[Problem]:
        """Report a row whose prompt was trained on."""
        line = self.line(row.get(kind.prompt)) if kind.prompt else None
        if kind.prompt and line is not None:
            message = f"this prompt is also at line {line} of {self.name}"
            yield Problem("leak", (kind.prompt,), message, "take it out of one of the files")


def prompts(source: Source, types: Iterable[DatasetType]) -> Iterator[tuple[int, Any]]:
    """Read the prompts of a training file, each with its line.

    Rows that cannot be read have none; `rlt check` on that file says so.
    :raises UsageError: when no row has a prompt.
    """
    stream = batches(source.chunks())
    first = next(stream, None)
    told = guess(first.lines if first else (), types)
    if told.kind is None or told.kind.prompt is None or first is None:
        raise UsageError(f"{source.label}: no prompts to compare with ({told.why})")
    for batch in chain([first], stream):
        for number, line in zip(batch.numbers, batch.lines, strict=True):
            read = parse(line)
            if not isinstance(read, Fault) and told.kind.prompt in read[1]:
                yield number, read[1][told.kind.prompt]
