"""Run what a model wrote where it can do little harm.

Each run has a folder of its own, which is removed afterwards, an empty environment, and limits on
processor time, wall time, memory, file size, open files and processes; `confine.py` says what else
it is kept from. As root it runs as a user that nobody else is. At most one run a processor is under
way, so that the machine is bounded too.

It is meant against what a model learns to try, not against an attacker with a kernel exploit; give
one a virtual machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rlt
from rlt_grpo.verifiers.confine import CANNOT_START

_CONFINE = Path(__file__).with_name("confine.py")
_USERS = range(61184, 65520)
"""Numbers that systems give to passing users (systemd's `DynamicUser`)."""
_READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
_PROCESSES, _FILES, _FILE_SIZE, _SAID = 16, 64, 16 << 20, 64 << 10


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int | None
    """Its exit code; None when it had to be ended."""
    out: str
    """The end of what it wrote to standard output."""
    err: str
    """The end of what it wrote to standard error."""

    def require_start(self) -> None:
        """Tell a command that failed from one that never ran.

        :raises RuntimeError: when it never ran.
        """
        if self.code == CANNOT_START and "cannot start" in self.err:
            raise RuntimeError(f"the sandbox did not start: {self.err.strip()[-300:]}")


class Sandbox:
    """The runs of one training run."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(os.cpu_count() or 1)

    def announce(self, run: rlt.Run) -> None:
        """Say once what this system lets the model's code do in spite of everything."""
        missing = unconfined()
        if missing:
            run.log.warning("code of the model is not kept from everything", not_kept_from=missing)
        else:
            run.log.info("code of the model runs confined", python=python())

    async def run(  # noqa: PLR0913 - what a command needs
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, str],
        seconds: float,
        memory: int,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        read: Sequence[str] = (),
    ) -> Ended:
        """Run a command in a folder with `files`.

        :param memory: bytes of address space for each of its processes.
        :param read: folders that it may read beside the interpreter's.
        """
        async with self._free:
            user = _passing_user()
            with _folder(user, files) as home:
                order = _order(user, home, seconds, memory, read)
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", str(_CONFINE), order, *command,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE, cwd=home, env=dict(environment or {}),
                    start_new_session=True,
                )  # fmt: skip
                return await _bounded(process, stdin, seconds)


@functools.cache
def python() -> str:
    """Return a Python that the passing user may run: this one, or the system's.

    :raises rlt.UsageError: when there is none.
    """
    ours = (sys.executable, os.path.realpath(sys.executable), sys.prefix, sys.base_prefix)
    if _passing_user() is None or all(map(_open_to_all, ours)):
        return sys.executable
    for folder in ("/usr/local/bin", "/usr/bin"):
        path = os.path.realpath(f"{folder}/python3")
        if _open_to_all(path):
            return path
    raise rlt.UsageError(
        f"another user cannot run {sys.executable}, and code of the model runs as one; "
        "install Python where everyone can read it, or do not run rlt as root"
    )


def _open_to_all(path: str) -> bool:
    """Say whether every user can read a file or folder, and reach it."""
    place = Path(path)
    mode = 0o005
    return place.exists() and all(
        folder.stat().st_mode & needed == needed
        for folder, needed in [(place, mode), *((parent, 0o001) for parent in place.parents)]
    )


def unconfined() -> str:
    """Name what a command cannot be kept from on this system; empty when there is nothing."""
    with _folder(None, {}) as home:
        order = _order(_passing_user(), home, 10, 1 << 30, ())
        told = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-I", str(_CONFINE), order],
            capture_output=True, text=True, check=False, env={},
        )  # fmt: skip
    _, _, missing = told.stderr.partition("unconfined: ")
    return missing.strip() or ("" if told.returncode == 0 else told.stderr.strip()[-200:])


async def _bounded(process: asyncio.subprocess.Process, stdin: bytes, seconds: float) -> Ended:
    """Wait for a process, at most `seconds`; nothing that it started outlives it."""
    assert process.stdin and process.stdout and process.stderr
    reading = [asyncio.ensure_future(_tail(s)) for s in (process.stdout, process.stderr)]
    code: int | None = None
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(stdin)
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(process.wait(), seconds)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    # a process that left the group may hold the pipes open, where there is no namespace to end it
    await asyncio.wait(reading, timeout=1)
    for each in reading:
        each.cancel()
    out, err = (each.result() if each.done() and not each.cancelled() else "" for each in reading)
    return Ended(code, out, err)


async def _tail(stream: asyncio.StreamReader) -> str:
    """Read everything, keep the end."""
    kept = b""
    while chunk := await stream.read(_SAID):
        kept = (kept + chunk)[-_SAID:]
    return kept.decode(errors="replace")


def _order(user: int | None, home: str, seconds: float, memory: int, read: Sequence[str]) -> str:
    limits = {
        "CPU": math.ceil(seconds),
        "AS": memory,
        "FSIZE": _FILE_SIZE,
        "NOFILE": _FILES,
        "NPROC": _PROCESSES if user is not None else _PROCESSES + _processes_of_this_user(),
        "CORE": 0,
    }
    readable = [*_READABLE, sys.prefix, sys.base_prefix, *read]
    return json.dumps({"user": user, "home": home, "limits": limits, "read": readable})


def _passing_user() -> int | None:
    """Return a user to run as, a new one each time; None when we cannot become one."""
    return random.choice(_USERS) if os.geteuid() == 0 else None  # noqa: S311


@contextlib.contextmanager
def _folder(user: int | None, files: Mapping[str, str]) -> Iterator[str]:
    home = tempfile.mkdtemp(prefix="rlt-sandbox-")
    try:
        for name, text in files.items():
            Path(home, name).write_text(text, "utf-8", errors="replace")
        if user is not None:
            os.chown(home, user, user)
        yield home
    finally:
        _remove(home)


def _remove(home: str) -> None:
    """Remove a folder in which someone may have locked folders against us."""
    for folder, _, _ in os.walk(home):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(home, ignore_errors=True)


def _processes_of_this_user() -> int:
    """Count threads, which is what the limit counts; it is shared with all that the user runs."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/task/*"):
        with contextlib.suppress(OSError):
            count += status.stat().st_uid == os.getuid()
    return count
