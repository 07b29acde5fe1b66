"""Equal rows of one file, found with eight bytes a row.

While the file is read each row leaves a 64-bit hash. At the end the hashes are sorted piece by
piece (by one of their bytes), and equal neighbours are the repeated rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

_PIECES = 16


class LineNumbers:
    """The line of each row, in a few bytes: only where blank lines come between is it noted."""

    def __init__(self) -> None:
        """Start at the first row."""
        self.rows = 0
        self._first = array("Q")
        self._shift = array("Q")

    def extend(self, numbers: Sequence[int]) -> None:
        """Add the line numbers of further rows."""
        if isinstance(numbers, range):
            self._add(numbers[0]) if numbers else None
            self.rows += max(0, len(numbers) - 1)
            return
        for number in numbers:
            self._add(number)

    def _add(self, number: int) -> None:
        shift = number - self.rows
        if not self._shift or self._shift[-1] != shift:
            self._first.append(self.rows)
            self._shift.append(shift)
        self.rows += 1

    def __getitem__(self, row: int) -> int:
        """Return the line of the row with this number (from 0)."""
        return row + self._shift[bisect_right(self._first, row) - 1]


class Duplicates:
    """Remembers the rows of one file."""

    def __init__(self) -> None:
        """Start with none."""
        self._hashes = array("q")
        self._unlike = 0

    def extend(self, lines: Iterable[bytes]) -> None:
        """Add rows; what surrounds the object on its line does not count."""
        self._hashes.extend(map(hash, map(bytes.strip, lines)))

    def skip(self) -> None:
        """Pass over a row that is not to be compared."""
        self._unlike += 1
        self._hashes.append(hash(b"unlike any row %d" % self._unlike))

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return each repeated row with the first one that it repeats, by number, in order."""
        repeated = self._repeated()
        if not repeated:
            return
        first: dict[int, int] = {}
        for row, value in enumerate(self._hashes):
            if value in repeated:
                if value in first:
                    yield row, first[value]
                else:
                    first[value] = row

    def _repeated(self) -> set[int]:
        import numpy as np  # noqa: PLC0415 - the SDK brings it; not needed before the end of a file

        found: set[int] = set()
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        pieces = hashes.view(np.uint8)[::8] % _PIECES  # one byte of each hash; any will do
        for piece in range(_PIECES):
            part = np.sort(hashes[pieces == piece])
            found.update(part[1:][part[1:] == part[:-1]].tolist())
        return found
