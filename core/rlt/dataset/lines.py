"""Bytes become lines, many at a time.

A batch is all the lines of a chunk that hold something, each with its number in the file and its
byte offset. The checks look at a whole batch first, which is what makes them fast: Python's share
of the work is then a few calls a batch instead of a few a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

BOM = b"\xef\xbb\xbf"
LONGEST = 1 << 26
"""A line longer than this is cut: it is no row, and must not fill the memory."""

CUT = b"\0 cut"
"""What a cut line ends with."""


@dataclass(slots=True)
class Batch:
    """Consecutive rows of a file, as bytes."""

    lines: list[bytes]
    """Without line feeds; a carriage return may still be there."""

    numbers: Sequence[int]
    """Their line numbers, counted from 1."""

    offset: int
    """Where the first line of all began, in (decompressed) bytes from the start."""

    lengths: Sequence[int] | None = None
    """How long the lines were, blank ones included; None when all of them are in `lines`."""

    kept: Sequence[int] | None = None
    """Which lines these are, among those of `lengths`."""

    @property
    def offsets(self) -> list[int]:
        """Where each row begins; worked out when asked for, because a check seldom asks."""
        lengths = self.lengths or list(map(len, self.lines))
        starts = list(accumulate(map((1).__add__, lengths), initial=self.offset))
        return starts[:-1] if self.kept is None else [starts[i] for i in self.kept]


def batches(chunks: Iterable[bytes]) -> Iterator[Batch]:
    """Cut `chunks` into lines; blank ones and a byte order mark are passed over."""
    number, offset = 1, 0
    for lines, dropped in _whole_lines(chunks):
        size, first, start = sum(map(len, lines)) + len(lines) + dropped, number, offset
        number, offset = number + len(lines), offset + size
        if start == 0 and lines[0].startswith(BOM):
            lines[0], start = lines[0].removeprefix(BOM), len(BOM)
        yield _without_blanks(lines, first, start)


def _without_blanks(lines: list[bytes], first: int, start: int) -> Batch:
    numbers = range(first, first + len(lines))
    if all(lines) and not any(map(bytes.isspace, lines)):
        return Batch(lines, numbers, start)
    kept = [i for i, line in enumerate(lines) if line and not line.isspace()]
    rows = [lines[i] for i in kept]
    return Batch(rows, [numbers[i] for i in kept], start, list(map(len, lines)), kept)


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Yield lists of complete lines, and how many bytes of the first were dropped.

    The last line of the file needs no line feed.
    """
    pending: list[bytes] = []
    held = 0
    for chunk in chunks:
        lines = chunk.split(b"\n")
        held += len(lines[0])
        pending.append(lines[0] if held <= LONGEST else b"")
        if len(lines) == 1:
            continue
        lines[0], dropped = _joined(pending, held)
        pending = [lines.pop()]
        held = len(pending[0])
        yield lines, dropped
    if held:
        line, dropped = _joined(pending, held)
        yield [line], dropped


def _joined(pieces: list[bytes], length: int) -> tuple[bytes, int]:
    """Join a line; one that had to be cut ends in what no JSON may, so it is never mistaken."""
    line = b"".join(pieces)
    return (line, 0) if len(line) == length else (line + CUT, length - len(line) - len(CUT))
