"""A shuffled order that is computed, not stored.

A Feistel network permutes a grid just larger than the row numbers, and a number that lands outside
is sent through again until it lands inside (cycle walking). So the row at any position of any epoch
costs a few multiplications, whatever the size of the file, and resuming at a step needs no state.
The same rows and seed give the same order on every machine and in every later version.
"""

from __future__ import annotations

import functools
import hashlib
import math

_ROUNDS = 8
_MASK = (1 << 64) - 1


class Order:
    """An endless stream of row numbers; each epoch is another permutation of all rows."""

    def __init__(self, rows: int, seed: int) -> None:
        """:raises ValueError: when there are no rows to order."""
        if rows < 1:
            raise ValueError("there are no rows to order")
        self.rows = rows
        self.seed = seed
        self._width = math.isqrt(rows - 1) + 1
        self._height = -(-rows // self._width)

    def index(self, position: int) -> int:
        """Return the number of the row at `position` (0, 1, 2, …) of the stream."""
        if position < 0:
            raise ValueError(f"position {position} is before the first")
        epoch, number = divmod(position, self.rows)
        keys = _keys(self.seed, epoch)
        number = self._permute(number, keys)
        while number >= self.rows:
            number = self._permute(number, keys)
        return number

    def _permute(self, number: int, keys: tuple[int, ...]) -> int:
        left, right = divmod(number, self._width)
        for key_left, key_right in zip(keys[::2], keys[1::2], strict=True):
            left = (left + _mix(right, key_left)) % self._height
            right = (right + _mix(left, key_right)) % self._width
        return left * self._width + right


@functools.lru_cache(maxsize=8)
def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    digest = hashlib.shake_256(f"rlt order {seed} {epoch}".encode()).digest(8 * _ROUNDS)
    return tuple(int.from_bytes(digest[i : i + 8], "big") for i in range(0, len(digest), 8))


def _mix(value: int, key: int) -> int:
    """Scatter `value`: the finaliser of SplitMix64, keyed."""
    value = (value + key) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
