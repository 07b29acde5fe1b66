"""Rows of a file by number, read when they are asked for.

Opening reads the file once: every row is checked by the checker that `rlt check` uses, and its
byte offset is kept, eight bytes a row. A file with an invalid row is refused as a whole, since a
run that skips rows trains on something other than what its author believes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from rlt.dataset.check import Checker
from rlt.dataset.findings import Finding
from rlt.dataset.lines import batches
from rlt.dataset.refusal import Refusal
from rlt.dataset.source import Source
from rlt.dataset.types import DatasetType
from rlt.errors import RunError, UsageError
from rlt.types import Row


class FileRows:
    """The rows of one open file."""

    def __init__(
        self, path: str, file: BinaryIO, offsets: array[int], checker: Checker, sha256: str
    ) -> None:
        """Take over `file`; use `open_rows`."""
        self.path = path
        self.sha256 = sha256
        """Of the raw bytes, as `sha256sum` prints it."""

        self.warnings: Sequence[Finding] = ()
        self._file = file
        self._offsets = offsets
        self._lines = checker.lines
        self._lock = threading.Lock()
        self._state = _state(file)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._offsets)

    def __getitem__(self, index: int) -> Row:
        """Read one row.

        :raises RunError: when the file has changed since it was opened.
        """
        index = range(len(self))[index]
        with self._lock:
            if _state(self._file) != self._state:
                raise RunError(f"{self.path} has changed since the run began; start again")
            line = self._read(self._offsets[index])
        return Row(json.loads(line), row_id(line), self.path, self._lines[index])

    def __iter__(self) -> Iterator[Row]:
        """Read all rows, in the file's order."""
        return (self[i] for i in range(len(self)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, offset: int) -> bytes:
        self._file.seek(offset)
        return self._file.readline().rstrip(b"\r\n")


def row_id(line: bytes) -> str:
    """Hash a row's bytes: the same content has the same id in any file."""
    return hashlib.blake2b(line, digest_size=8).hexdigest()


def open_rows(path: str, dataset_type: DatasetType) -> FileRows:
    """Open a file of rows of one type, `-` for standard input.

    :raises UsageError: when it cannot be read, has no rows, or has one that is invalid. The message
        is one line: the first error, and how many more there are of which rule.
    """
    source = Source(path)
    spool = None if source.seekable else tempfile.TemporaryFile()  # noqa: SIM115 - the rows own it
    try:
        return _read(source, spool, dataset_type)
    except BaseException:
        source.close()
        if spool:
            spool.close()
        raise


def _read(source: Source, spool: BinaryIO | None, dataset_type: DatasetType) -> FileRows:
    checker = Checker(source.label, dataset_type, compare_rows=False)
    refusal, warnings = Refusal(source.path, dataset_type), list[Finding]()
    offsets = array("Q")
    for batch in batches(_copied(source.chunks(), spool)):
        offsets.extend(batch.offsets)
        refusal.look(batch.lines)
        _sort_out(checker.feed(batch), refusal, warnings)
    _sort_out(checker.finish(), refusal, warnings)
    refusal.raise_if_any()
    if spool:
        spool.flush()
        source.close()
    rows = FileRows(source.label, spool or source.file, offsets, checker, source.sha256)
    rows.warnings = warnings
    return rows


def _copied(chunks: Iterable[bytes], spool: BinaryIO | None) -> Iterator[bytes]:
    for chunk in chunks:
        if spool:
            _spool(chunk, spool)
        yield chunk


def _spool(chunk: bytes, spool: BinaryIO) -> None:
    try:
        spool.write(chunk)
    except OSError as error:
        where = tempfile.gettempdir()
        raise UsageError(f"cannot keep the decompressed rows in {where}: {error}") from error


def _sort_out(found: Iterable[Finding], refusal: Refusal, warnings: list[Finding]) -> None:
    for finding in found:
        if finding.severity == "error":
            refusal.add(finding)
        elif len(warnings) < 1000:
            warnings.append(finding)


def _state(file: BinaryIO) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_size, stat.st_mtime_ns
