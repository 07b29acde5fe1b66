"""The one thread that computes, and what it does next.

Training requests and sampling take turns. Training requests run whole, for half a second together
or for as long as one takes; then sampling has as long, in steps of one token. Lanes, the sets of
weights that are sampled from, take turns among themselves.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from rlt.local.compute import fix_threads
from rlt.local.order import Turnstile
from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from rlt.local.promises import Promise, Result
    from rlt.local.sampling import Job, Lane

_SLICE_SECONDS = 0.5
_CLOSED = "the embedded engine was closed"

Work = Callable[[], "Result"]


class Stopped(Refusal):
    """The engine was closed while a request was running."""


class Scheduler:
    """Runs work in a thread of its own."""

    def __init__(self, patience: float | None = None) -> None:
        """Start the thread; `patience` bounds the wait for a request that is missing."""
        self._wake = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        self._turnstiles: dict[str, Turnstile] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._turns: deque[Hashable] = deque()
        self._arrivals: list[tuple[Hashable, Callable[[], Lane], Job]] = []
        self._stopping = False
        self._patience = patience
        self._thread = threading.Thread(target=self._loop, name="rlt-engine", daemon=True)
        self._thread.start()

    def submit(self, promise: Promise, work: Work) -> None:
        """Run `work` when its turn comes, and keep its result in `promise`."""
        self._enqueue([lambda: _fulfil(promise, work)])

    def submit_in_order(
        self, model_id: str, number: int | None, promise: Promise, work: Work
    ) -> None:
        """Run `work` after the requests of this training client with lower numbers."""
        with self._wake:
            turnstile = self._turnstiles.setdefault(model_id, self._new_turnstile())
            ready = turnstile.arrive(
                number,
                lambda: _fulfil(promise, work),
                lambda why: promise.fail(Refusal(why)),
            )
        self._enqueue(ready)

    def submit_sample(self, key: Hashable, new_lane: Callable[[], Lane], job: Job) -> None:
        """Sample in the lane `key`, made by `new_lane` if there is none."""
        with self._wake:
            self._arrivals.append((key, new_lane, job))
            self._wake.notify()

    def forget(self, model_id: str) -> None:
        """Drop the order of a training client that is gone."""
        with self._wake:
            turnstile = self._turnstiles.pop(model_id, None)
        if turnstile is not None:
            turnstile.abandon("its session was finished")

    def check(self) -> None:
        """Called inside long work. Raises Stopped when the engine is being closed."""
        if self._stopping:
            raise Stopped(_CLOSED)

    def stop(self, timeout: float) -> None:
        """End the thread after what it is doing this moment."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)

    def _new_turnstile(self) -> Turnstile:
        return Turnstile() if self._patience is None else Turnstile(self._patience)

    def _enqueue(self, runs: list[Callable[[], None]]) -> None:
        with self._wake:
            self._queue.extend(runs)
            self._wake.notify()

    def _loop(self) -> None:
        fix_threads()  # a setting of each thread
        while (run := self._next()) is not None:
            began = time.monotonic()
            run()
            while time.monotonic() - began < _SLICE_SECONDS and (more := self._pop()) is not None:
                more()
            self._sample_for(max(_SLICE_SECONDS, time.monotonic() - began))

    def _next(self) -> Callable[[], None] | None:
        """The next thing to run, which is nothing in particular when there are samples to make.

        None when the engine is being closed.
        """
        with self._wake:
            while not (self._queue or self._arrivals or self._turns or self._stopping):
                self._wake.wait(self._until_next_deadline())
                self._give_up_waiting()
            self._give_up_waiting()
            if self._stopping:
                return None
            return self._queue.popleft() if self._queue else _nothing

    def _pop(self) -> Callable[[], None] | None:
        with self._wake:
            return self._queue.popleft() if self._queue and not self._stopping else None

    def _give_up_waiting(self) -> None:
        for turnstile in self._turnstiles.values():
            turnstile.give_up()

    def _until_next_deadline(self) -> float | None:
        deadlines = [t.deadline() for t in self._turnstiles.values()]
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _sample_for(self, seconds: float) -> None:
        """One slice for the lane whose turn it is; requests join between tokens."""
        self._admit()
        if not self._turns:
            return
        key = self._turns.popleft()
        lane, end = self._lanes[key], time.monotonic() + seconds
        try:
            while lane.busy() and time.monotonic() < end and not self._stopping:
                lane.work()
                self._admit()
        except Exception as error:  # every request of the lane gets it
            lane.fail(error)
        if lane.busy():
            self._turns.append(key)
        else:
            del self._lanes[key]

    def _admit(self) -> None:
        with self._wake:
            arrivals, self._arrivals = self._arrivals, []
        for key, new_lane, job in arrivals:
            try:
                if key not in self._lanes:
                    self._lanes[key] = new_lane()
                    self._turns.append(key)
            except Exception as error:  # belongs to the request
                job.fail(error)
            else:
                self._lanes[key].add(job)


def _nothing() -> None:
    """Run when there is nothing but sampling to do."""


def _fulfil(promise: Promise, work: Work) -> None:
    if promise.done():
        return
    try:
        promise.keep(work())
    except Exception as error:  # becomes the answer
        promise.fail(error)
