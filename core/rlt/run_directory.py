"""A run on disk: what was asked for, what happened, and what can be resumed.

`config.json`, `metrics.jsonl`, `rows.jsonl` (the row ledger), `samples.jsonl` and
`checkpoints.jsonl` (the checkpoint ledger) are plain JSON lines, appended whole. The embedded
engine keeps its weights beside them in `weights/`. One process at a time owns a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlt.errors import DiskError, UsageError
from rlt.types import JSON, Checkpoint

RUNS = Path("runs")


class JsonLines:
    """A file of JSON objects, one a line. Appends are whole lines; a torn last line is ignored."""

    def __init__(self, path: Path, *, durable: bool = False, mode: int = 0o600) -> None:
        """Name the file; the first append creates it.

        :param durable: whether an append returns only when it is on disk.
        :param mode: the permissions of a new file; what was sampled is nobody else's.
        """
        self.path = path
        self._durable = durable
        self._mode = mode
        self._size = 0  # what we know to be written: the file must not shrink under us

    def append(self, *lines: JSON) -> None:
        """Write lines in a single call; on disk when this returns, if the file is durable.

        :raises DiskError: when they cannot be written, or the file was removed meanwhile.
        """
        text = "".join(_dumped(x) + "\n" for x in lines)
        try:
            self._write(text.encode("utf-8", "backslashreplace"))  # \ud800 stays valid JSON
        except OSError as error:
            raise DiskError(f"cannot write {self.path}: {error.strerror}") from error

    def _write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, self._mode)
        try:
            size = os.fstat(descriptor).st_size
            if size < self._size:
                raise DiskError(f"{self.path} was removed or cut while the run was writing it")
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # behind a line that a killed run left half written
            while data:
                data = data[os.write(descriptor, data) :]
            if self._durable:
                os.fsync(descriptor)
            self._size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Have what was appended on disk when this returns.

        :raises DiskError: when it cannot be.
        """
        if not self.path.exists():
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise DiskError(f"cannot write {self.path}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def __iter__(self) -> Iterator[JSON]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:  # a torn line may end inside a character
            for text in file:
                line = _parsed(text)
                if line is not None:
                    yield line

    def rewind(self, keep: Callable[[JSON], bool]) -> int:
        """Move the lines that `keep` refuses to `….superseded.jsonl`; return how many.

        A resumed run repeats steps that its last checkpoint had not seen. Their lines are set
        aside, so that no step is in the file twice and nothing is destroyed.
        """
        lines = list(self)
        superseded = [line for line in lines if not keep(line)]
        if superseded:
            aside = JsonLines(self.path.with_suffix(".superseded.jsonl"), durable=True)
            aside.append(*superseded)
            _replace(self.path, "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines
                                        if keep(x)))  # fmt: skip
            self._size = 0
        return len(superseded)


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = JsonLines(path / "metrics.jsonl")
        self.checkpoints = JsonLines(path / "checkpoints.jsonl", durable=True)
        self.rows = JsonLines(path / "rows.jsonl")
        self.samples = JsonLines(path / "samples.jsonl")
        self.weights = path / "weights"
        self._lock: int | None = None
        self._made: list[Path] = []

    @property
    def name(self) -> str:
        """The run's name: the last part of its path."""
        return self.path.resolve().name

    @property
    def has_run(self) -> bool:
        """Whether a run has left anything here that would be lost by starting over."""
        return any(file.path.exists() and file.path.stat().st_size
                   for file in (self.metrics, self.checkpoints, self.rows))  # fmt: skip

    def claim(self, *, resume: bool) -> None:
        """Make the directory ours until the process ends.

        :raises UsageError: when another process has it, when it holds a run and `resume` is false,
            or when it cannot be written.
        """
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(
                f"cannot write the run directory {self.path}: {error.strerror}"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)  # and touch nothing: it is another's
            self._lock = None
            raise UsageError(
                f"the run directory {self.path} is in use by another process; "
                "wait for it, or choose another --out"
            ) from None
        if self.has_run and not resume:
            self.release()
            raise UsageError(
                f"{self.path} already holds a run; go on with --resume auto, "
                "or choose another --out"
            )

    def release(self) -> None:
        """Give the directory up; what `claim` made and nothing was written to is removed."""
        if self._lock is None:
            return
        os.close(self._lock)
        self._lock = None
        if [path.name for path in self.path.iterdir()] == [".lock"]:
            (self.path / ".lock").unlink()
            for path in self._made:
                with contextlib.suppress(OSError):  # another run came in meanwhile
                    path.rmdir()

    def write_config(self, config: JSON) -> None:
        """Write `config.json` at once or not at all.

        :raises DiskError: when it cannot be written.
        """
        _replace(self.config, json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    def read_config(self) -> JSON:
        """Return what `config.json` holds.

        :raises UsageError: when there is none, or it is not JSON.
        """
        try:
            data: Any = json.loads(self.config.read_text("utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{self.path} holds no run (there is no config.json)") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.config}: {error}") from None
        return dict(data)

    def ledger(self) -> list[Checkpoint]:
        """Return the checkpoints that the service has confirmed and that still exist, in order."""
        lines = list(self.checkpoints)
        deleted = {line["deleted"] for line in lines if "deleted" in line}
        return [
            Checkpoint(step=line["step"], state=line["state"], sampler=line["sampler"])
            for line in lines
            if "state" in line and line["state"] not in deleted
        ]

    def rewind(self, step: int) -> int:
        """Set aside all that a run resumed at `step` will do again; return how many lines."""
        before = lambda line: line["step"] < step  # noqa: E731
        self.checkpoints.rewind(lambda line: line["step"] <= step)
        return self.rows.rewind(before) + self.samples.rewind(before)


def keep_metrics(step: int) -> Callable[[JSON], bool]:
    """Return a test for the metrics lines that stay when a run resumes at `step`."""
    return lambda line: line["step"] < step + (line.get("split") == "eval")


def existing(out: str) -> RunDirectory:
    """Return the directory of a run that is there, by name or path.

    :raises UsageError: when there is none.
    """
    run = directory_for(out)
    run.read_config()
    return run


def directory_for(out: str) -> RunDirectory:
    """Return the directory of `--out`: `runs/NAME`, or the value itself when it has a slash.

    :raises UsageError: for a value that is no name.
    """
    if out in ("", ".", "..") or out.startswith("-") or not out.isprintable():
        raise UsageError(f"--out {out!r} is no name for a run; use letters and digits")
    return RunDirectory(Path(out) if "/" in out else RUNS / out)


def _dumped(line: JSON) -> str:
    """Write a line as JSON; what JSON has no form for is written as its text."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)


def _parsed(text: bytes) -> JSON | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error
