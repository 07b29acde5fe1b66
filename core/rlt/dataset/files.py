"""Files that are written whole or not at all, and never over what is being read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from rlt.errors import UsageError


class FirstWrite:
    """A file that comes into being with the first thing written to it."""

    def __init__(self, path: Path, keep: str) -> None:
        """Write to `path`, which must not be the file `keep`."""
        if keep != "-" and path.exists() and path.samefile(keep):
            raise UsageError(f"{path} is the input; write to another file")
        self._path = path
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        """Write, and open the file for it if need be."""
        try:
            self._file = self._file or self._open(self._path)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error
        self._file.write(data)

    def __enter__(self) -> FirstWrite:
        """Nothing is opened yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, if there is one."""
        if self._file:
            self._file.close()

    def _open(self, path: Path) -> IO[bytes]:
        return path.open("wb")


class Replacement(FirstWrite):
    """A file that takes the place of an older one only when it is complete."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the new file in its place, or remove it after an error."""
        super().__exit__(kind, error, trace)
        if self._file and kind is None:
            Path(self._file.name).replace(self._path)
        elif self._file:
            Path(self._file.name).unlink()

    def _open(self, path: Path) -> IO[bytes]:
        return tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=path.name, delete=False)
