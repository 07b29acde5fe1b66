"""`math-verify` in a process of its own.

What a model writes may be `9^{9^{9^9}}`: comparing it can take for ever, in code that no timer of
this process can interrupt. So a worker compares, with limited memory, and one that does not answer
in time is ended; that is an error of the verification, not a wrong answer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

_WORKER = Path(__file__).with_name("mathematics_worker.py")
_SECONDS = 10.0
_STARTING = 120.0
"""Seconds for the first answer, which waits for sympy to be imported."""


class Mathematics:
    """The worker of one run, started when it is first needed; it ends when its input does."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()

    async def equal(self, expected: str, completion: str) -> bool:
        """Say whether a completion's answer is mathematically the expected one.

        :raises TimeoutError: when that could not be found out in time.
        """
        question = json.dumps({"expected": expected, "completion": completion})
        async with self._lock:
            seconds = _SECONDS if self._worker else _STARTING
            worker = self._worker = self._worker or _started()
            asked = asyncio.ensure_future(asyncio.to_thread(_ask, worker, question.encode()))
            try:
                await asyncio.wait({asked}, timeout=seconds)
                if asked.done():
                    return bool(json.loads(asked.result()))
                raise TimeoutError(f"math-verify gave no answer within {seconds:g} s")
            except BaseException:
                worker.kill()  # what it still says would be taken for the next one's answer
                worker.wait()
                self._worker = None
                raise


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", str(_WORKER)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _ask(worker: subprocess.Popen[bytes], question: bytes) -> bytes:
    assert worker.stdin and worker.stdout
    worker.stdin.write(question + b"\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise RuntimeError("math-verify ended without an answer (out of memory?)")
    return answer
