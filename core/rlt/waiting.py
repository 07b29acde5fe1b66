"""Waiting for the service, out loud and not for ever.

A hosted request may queue for minutes and the SDK retries what can be retried by itself. A person
should see what the run is waiting for, and `--max-wait` bounds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from rlt.errors import RunError

T = TypeVar("T")

NOTICE = 30.0
"""Seconds of silence before the first status line; each further one takes twice as long."""


async def answered(request: Awaitable[T], what: str, *, log: Any, limit: float = 0) -> T:
    """Await a request to the service, with a status line now and then.

    :param what: the request, for messages: `forward_backward of step 3`.
    :param limit: seconds after which to give up; 0 never does.
    :raises RunError: when there is no answer within `limit`.
    """
    task = asyncio.ensure_future(_settled(request))
    began, notice = time.monotonic(), NOTICE
    try:
        while True:
            left = limit - (time.monotonic() - began) if limit else notice
            await asyncio.wait({task}, timeout=max(0.0, min(notice, left)))
            if task.done():
                return task.result()
            waited = time.monotonic() - began
            if limit and waited >= limit:
                raise RunError(f"no answer to {what} after {limit:g} s (--max-wait)")
            log.info("waiting for the service", request=what, seconds=round(waited))
            notice *= 2
    finally:
        task.cancel()


async def _settled(request: Awaitable[T]) -> T:
    return await request
