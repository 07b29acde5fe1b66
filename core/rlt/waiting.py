"""Waiting for the service, out loud and not for ever.

A hosted request may queue for minutes, and the SDK retries what can be retried by itself. A person
should see what the run is waiting for, and `--max-wait` bounds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from rlt.errors import RunError

T = TypeVar("T")

NOTICE = 15.0
"""Seconds of silence before the first status line; each further one takes twice as long."""


class Waiter:
    """Awaits requests; however many are open, one status line at a time."""

    def __init__(self, log: Any, limit: float) -> None:
        """Give up on a request after `limit` seconds; 0 never does."""
        self._log = log
        self._limit = limit
        self._quiet_until = 0.0

    async def answered(self, request: Awaitable[T], what: str) -> T:
        """Await a request to the service.

        :param what: the request, for messages: `forward_backward of step 3`.
        :raises RunError: when there is no answer within the limit.
        """
        task = asyncio.ensure_future(_settled(request))
        began, notice = time.monotonic(), NOTICE
        try:
            while True:
                left = self._limit - (time.monotonic() - began) if self._limit else notice
                await asyncio.wait({task}, timeout=max(0.0, min(notice, left)))
                if task.done():
                    return task.result()
                waited = time.monotonic() - began
                if self._limit and waited >= self._limit:
                    raise RunError(f"no answer to {what} after {self._limit:g} s (--max-wait)")
                self._notify(what, waited)
                notice *= 2
        finally:
            task.cancel()

    def _notify(self, what: str, waited: float) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + NOTICE / 2
            self._log.info("waiting for the service", request=what, seconds=round(waited))


async def _settled(request: Awaitable[T]) -> T:
    return await request
