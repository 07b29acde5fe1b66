"""Checkpoints: saved while the next step already samples, known once the service has them.

Requests of one training client run in order, so a save that is submitted before the next step sees
exactly the weights of its label. Waiting for it need not hold up the sampling of that step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from rlt.run import Run
from rlt.types import Checkpoint

_LAST_CHANCE = 30.0


class Saver:
    """Saves a run's checkpoints, one at a time."""

    def __init__(self, run: Run, newest: Checkpoint | None) -> None:
        self.newest = newest
        """The newest checkpoint that the service has confirmed."""
        self._run = run
        self._pending: asyncio.Task[None] | None = None

    def begin(self, done: int) -> None:
        """Submit a save of the weights after `done` steps, to resume and to sample."""
        name, ttl = f"step-{done:06d}", self._run.config.ttl
        training = self._run.training
        state = training.save_state(name, ttl_seconds=ttl)
        sampler = training.save_weights_for_sampler(name, ttl_seconds=ttl)
        self._pending = asyncio.ensure_future(self._confirm(done, state, sampler))

    async def finish(self) -> None:
        """Wait until the save that is under way is confirmed and written down."""
        pending, self._pending = self._pending, None
        if pending:
            await pending

    async def salvage(self) -> None:
        """When the run has failed: give a save that is under way a last chance."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.finish(), _LAST_CHANCE)

    async def _confirm(self, done: int, state: Awaitable[Any], sampler: Awaitable[Any]) -> None:
        wait = self._run.answered
        saved = await wait(state, f"save_state after {done} steps")
        usable = await wait(sampler, f"save_weights_for_sampler after {done} steps")
        self.newest = Checkpoint(done, saved.path, usable.path)
        self._run.hooks.call("on_checkpoint", run=self._run, checkpoint=self.newest)
