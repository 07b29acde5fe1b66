"""What rows come in besides lines: one JSON list, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from typing import Any

from rlt.dataset.convert import Raw, numbered
from rlt.dataset.lines import batches
from rlt.dataset.source import Source
from rlt.errors import UsageError


def rows_of(path: str) -> Iterator[Raw]:
    """Go through the rows of a file, whatever holds them.

    :raises UsageError: when the file cannot be read.
    """
    source = Source(path)
    chunks = source.chunks()
    head = next(chunks, b"")
    if head.startswith(b"PAR1"):
        source.close()
        yield from _parquet(path)
    elif _is_list(head):
        yield from _list(b"".join(chain([head], chunks)), source.label)
    else:
        yield from numbered(batches(chain([head], chunks)))


def _is_list(head: bytes) -> bool:
    """Say whether a file begins like one JSON list, not like lines of objects."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _list(text: bytes, label: str) -> Iterator[Raw]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{label} begins like a JSON list, but is none: {error}") from None
    for number, value in enumerate(values, 1):
        yield number, _encode(json.dumps(value, ensure_ascii=False)), ""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parquet(path: str) -> Iterator[Raw]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(f"{path} is Parquet; `pip install 'rlt[parquet]'` to read it") from None
    try:
        groups = parquet.ParquetFile(path).iter_batches(batch_size=1000)
        rows = (row for group in groups for row in group.to_pylist(maps_as_pydicts="strict"))
        for number, row in enumerate(rows, 1):
            kept = without_nulls(row)
            yield number, _encode(json.dumps(kept, ensure_ascii=False, default=str)), _flaw(kept)
    except import_module("pyarrow").ArrowException as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def without_nulls(value: Any) -> Any:
    """Drop the nulls of columns: Parquet has one for each key that only some other row has."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _flaw(row: Any) -> str:
    """Say what in a row JSON has no type for; empty when there is nothing."""
    try:
        json.dumps(row)
    except TypeError as error:
        return f"a column holds what JSON has no type for: {error}"
    return ""
