"""Answers that are not there yet, and those that were fetched a while ago.

Every request that takes time is answered at once with a promise, which the client then polls. The
SDK repeats requests whose answer got lost on the way, so a request carries a key under which it is
recognised: the same key is the same promise, and its work is done once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from rlt.local.refusal import NotFound, Refusal

logger = logging.getLogger(__name__)

Result = bytes | dict[str, Any]
"""A protobuf message, or JSON."""

_KEEP_SECONDS = 300.0
_UNFETCHED_SECONDS = 3600.0
_SWEEP_EVERY = 256


class Promise:
    """The answer to one request: a result or a failure, which are both what the client is sent."""

    def __init__(self, key: Hashable | None) -> None:
        """A promise with an id of its own; `key` recognises a repeated request."""
        self.request_id = uuid.uuid4().hex
        self.key = key
        self.extra: dict[str, Any] = {}
        """Goes into the immediate answer beside the id."""

        self.future: Future[Result] = Future()
        self.future.set_running_or_notify_cancel()  # a poll that is given up cannot cancel it
        self.fetched: float | None = None
        self.kept: float | None = None
        """When the answer was last fetched, and when it was set (monotonic)."""

    def keep(self, result: Result) -> None:
        """Set the answer; only the first one counts."""
        with suppress(InvalidStateError):
            self.future.set_result(result)
            self.kept = time.monotonic()

    def fail(self, error: Exception) -> None:
        """Set the failure: the person's when the request was refused, otherwise ours."""
        if isinstance(error, Refusal):
            self.keep({"error": str(error), "category": "user"})
            return
        logger.error("a request failed inside the engine: %s: %s", type(error).__name__, error)
        logger.debug("traceback", exc_info=error)
        self.keep({"error": f"{type(error).__name__}: {error}", "category": "server"})

    def done(self) -> bool:
        """Whether the answer is there."""
        return self.future.done()


class PromiseBook:
    """All promises by id and by key; safe to use from several threads."""

    def __init__(self, keep_seconds: float = _KEEP_SECONDS) -> None:
        """A result stays for `keep_seconds` after it was fetched, as clients fetch again."""
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._by_id: dict[str, Promise] = {}
        self._by_key: dict[Hashable, Promise] = {}
        self._made = 0

    def make(self, key: Hashable | None) -> tuple[Promise, bool]:
        """The promise for a request, and whether it is new."""
        with self._lock:
            if key is not None and key in self._by_key:
                return self._by_key[key], False
            promise = Promise(key)
            self._by_id[promise.request_id] = promise
            if key is not None:
                self._by_key[key] = promise
            self._made += 1
            if self._made % _SWEEP_EVERY == 0:
                self._sweep()
            return promise, True

    def get(self, request_id: str) -> Promise:
        """Raises NotFound."""
        with self._lock:
            promise = self._by_id.get(request_id)
        if promise is None:
            raise NotFound(f"request {request_id} is not known, or its result has been dropped")
        return promise

    def fail_all(self, error: Exception) -> None:
        """Answer everything that is still open with `error`."""
        with self._lock:
            waiting = [promise for promise in self._by_id.values() if not promise.done()]
        for promise in waiting:
            promise.fail(error)

    def _sweep(self) -> None:
        for promise in list(self._by_id.values()):
            if self._stale(promise):
                del self._by_id[promise.request_id]
                if promise.key is not None:
                    del self._by_key[promise.key]

    def _stale(self, promise: Promise) -> bool:
        age = time.monotonic() - self._keep_seconds
        if promise.fetched is not None:
            return promise.fetched < age
        return promise.kept is not None and promise.kept < age - _UNFETCHED_SECONDS
