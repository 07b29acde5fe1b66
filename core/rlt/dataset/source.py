"""Where the bytes of a dataset come from: a file, a compressed file, or standard input.

Compression is told from the first bytes, not from the name, so a pipe may carry it too. Everything
that was read is hashed, as `sha256sum` would. A cut-off archive is an error: the rows after the cut
would otherwise be lost without a word.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rlt.errors import UsageError

CHUNK = 1 << 18
_PIECE = 1 << 12
"""How much compressed data is expanded at once: little, so that a bomb cannot fill the memory."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Source:
    """The bytes of one dataset, read once, in order."""

    def __init__(self, path: str) -> None:
        """Open it. `-` is standard input.

        :raises UsageError: when there is no such file, or it cannot be read.
        """
        self.path = path
        self.read = 0
        """How many raw bytes have been read so far."""

        self._digest = hashlib.sha256()
        self.file = _open(path)
        self._head = self._take(CHUNK)

    @property
    def label(self) -> str:
        """The name for messages."""
        return "<stdin>" if self.path == "-" else self.path

    @property
    def sha256(self) -> str:
        """The hash of the raw bytes read so far: of the file, once `chunks` is exhausted."""
        return self._digest.hexdigest()

    @property
    def size(self) -> int | None:
        """How many raw bytes there are; None when that is not known before the end."""
        stat = os.fstat(self.file.fileno()) if self.path != "-" else None
        return stat.st_size if stat and _is_regular(stat) else None

    @property
    def compressed(self) -> bool:
        """Whether the raw bytes are gzip or zstandard."""
        return self._head.startswith((_GZIP, _ZSTD))

    @property
    def seekable(self) -> bool:
        """Whether a row can be read again from the file itself."""
        return not self.compressed and self.size is not None

    def chunks(self) -> Iterator[bytes]:
        """Read everything, decompressed, in pieces of no particular length."""
        return _expand(self._raw(), self._head, self.label) if self.compressed else self._raw()

    def close(self) -> None:
        """Close the file (standard input stays open)."""
        if self.path != "-":
            self.file.close()

    def _raw(self) -> Iterator[bytes]:
        chunk = self._head
        while chunk:
            yield chunk
            chunk = self._take(CHUNK)

    def _take(self, size: int) -> bytes:
        try:
            chunk = self.file.read(size)
        except OSError as error:
            raise UsageError(f"cannot read {self.label}: {error.strerror or error}") from error
        self.read += len(chunk)
        self._digest.update(chunk)
        return chunk


def _open(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        if Path(path).is_dir():
            raise UsageError(f"{path} is a directory; name a .jsonl file in it")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}") from error


def _is_regular(stat: os.stat_result) -> bool:
    return (stat.st_mode & 0o170000) == 0o100000


def _expand(raw: Iterator[bytes], head: bytes, label: str) -> Iterator[bytes]:
    """Decompress a concatenation of gzip members or zstandard frames."""
    kind = "gzip" if head.startswith(_GZIP) else "zstandard"
    stream, started = _decompressor(kind), False
    try:
        for chunk in raw:
            for i in range(0, len(chunk), _PIECE):
                piece = chunk[i : i + _PIECE]
                while piece:
                    if stream.eof:
                        stream, started = _decompressor(kind), False
                    yield stream.decompress(piece)
                    started, piece = True, stream.unused_data
    except (zlib.error, ValueError, _zstd_error()) as error:
        raise UsageError(f"cannot read {label}: its {kind} data is damaged ({error})") from error
    if started and not stream.eof:
        raise UsageError(f"cannot read {label}: its {kind} data is cut off before the end")


def _decompressor(kind: str) -> Any:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    import zstandard  # noqa: PLC0415 - only for files that need it

    return zstandard.ZstdDecompressor().decompressobj()


def _zstd_error() -> type[Exception]:
    module = sys.modules.get("zstandard")
    error: type[Exception] = module.ZstdError if module else zlib.error
    return error
