"""Whether an object has the same key twice, without looking at each key.

Parsers keep the last of equal keys and say nothing. But each key in JSON is followed by a colon, so
there are at most as many keys as places that look like the end of one. When the parsed rows have
just as many, none was lost; when they have fewer, one may have been, and the scanner has a look.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from rlt.dataset.syntax import DEEPEST

_LARGE = 1 << 16
"""Bytes from which on numpy, which counts ten times as fast, is worth importing."""

_QUOTE, _COLON, _BACKSLASH, _SPACE = b'":\\ '


def keys_differ(lines: Sequence[bytes], rows: Sequence[Any]) -> bool:
    """Say whether it is certain that no object in `lines`, parsed as `rows`, repeats a key."""
    text = b"\n".join(lines)
    ends = _many_key_ends(text) if len(text) > _LARGE else key_ends(text)
    return ends == count_keys(rows)


def key_ends(text: bytes) -> int:
    """Count the colons after a quote that may end a key, or after white space."""
    ends = text.count(b'":') + text.count(b" :") + text.count(b"\t:") + text.count(b"\r:")
    # A quote that a backslash escapes ends no key, unless that backslash may be escaped itself.
    return ends - text.count(b'\\":') + text.count(b'\\\\":')


def _many_key_ends(text: bytes) -> int:
    """Do the same as `key_ends`, faster."""
    import numpy as np  # noqa: PLC0415 - the SDK brings it; small files do without

    chars = np.frombuffer(text, dtype=np.uint8)
    colons = np.flatnonzero(chars[3:] == _COLON) + 3  # the first that can follow a key: {"":
    before = chars[colons - 1]
    escaped = (chars[colons - 2] == _BACKSLASH) & (chars[colons - 3] != _BACKSLASH)
    return int(np.count_nonzero(((before == _QUOTE) & ~escaped) | (before <= _SPACE)))


def count_keys(rows: Sequence[Any]) -> int:
    """Count the keys of all objects in `rows`; -1 when they nest too deeply to be read."""
    keys, level, types = 0, rows, set(map(type, rows))
    for _ in range(DEEPEST + 2):
        dicts = level if types == {dict} else [item for item in level if type(item) is dict]
        lists = [item for item in level if type(item) is list] if list in types else ()
        keys += sum(map(len, dicts))
        children = list(chain(chain.from_iterable(map(dict.values, dicts)), *lists))
        types = set(map(type, children))
        if types.isdisjoint((dict, list)):
            return keys
        level = children
    return -1
