"""Requests of one training client run in the order in which they were made, however they arrive.

The SDK numbers them from 1. One that overtook its predecessor is held until that arrives; one whose
predecessor never arrives is refused after a while, and so is what follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0

Run = Callable[[], None]
Refuse = Callable[[str], None]


class Turnstile:
    """Lets the requests of one client through by number. Not safe for several threads."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        """Expect number 1 next."""
        self._next = 1
        self._patience = patience
        self._held: dict[int, tuple[Run, Refuse]] = {}
        self._since = 0.0

    def arrive(self, number: int | None, run: Run, refuse: Refuse) -> list[Run]:
        """What may run now that `number` is here, in order; None runs as it comes."""
        if number is None:
            return [run]
        if number < self._next or number in self._held:
            refuse(f"request number {number} of this training client was made before")
            return []
        if not self._held:
            self._since = time.monotonic()
        self._held[number] = (run, refuse)
        ready: list[Run] = []
        while self._next in self._held:
            ready.append(self._held.pop(self._next)[0])
            self._next += 1
        if ready:
            self._since = time.monotonic()
        return ready

    def deadline(self) -> float | None:
        """The monotonic time at which the held requests are given up."""
        return self._since + self._patience if self._held else None

    def give_up(self) -> None:
        """Refuse what is held when its predecessor is overdue."""
        deadline = self.deadline()
        if deadline is None or time.monotonic() < deadline:
            return
        self.abandon(
            f"it was held for {self._patience:.0f} seconds, because number {self._next} of this "
            "training client never arrived"
        )

    def abandon(self, why: str) -> None:
        """Refuse what is held."""
        for number, (_, refuse) in sorted(self._held.items()):
            refuse(f"request number {number} was not run: {why}")
        self._held.clear()
