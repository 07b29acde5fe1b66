"""Where things are in a line of valid JSON.

Run only on lines that have findings, so it can afford to be Python: one pass over the tokens gives
the place of every wanted pointer, and what `json` lets pass without a word: keys that come twice,
numbers that are not finite, and halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from rlt.dataset.findings import Pointer, Problem, quote, shorten

_TOKEN = re.compile(r'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^ \t\r\n{}\[\],:"]++)')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")


@dataclass(frozen=True, slots=True)
class Span:
    """Where a value and its key begin and end, in characters from 0."""

    start: int
    end: int
    key_start: int
    key_end: int


@dataclass(slots=True)
class _Open:
    """An object or a list whose end has not come yet."""

    pointer: Pointer
    start: int
    is_object: bool
    part: str | int = 0
    """The key or index of the value that comes next, or is being read."""

    key: tuple[int, int] = (0, 0)
    keys: dict[str, int] = field(default_factory=dict)


class Scan:
    """One pass over a line."""

    def __init__(self, text: str, wanted: Collection[Pointer] = ()) -> None:
        """Scan `text`, which `json.loads` has accepted, noting where the `wanted` values are."""
        self.spans: dict[Pointer, Span] = {}
        self.found: list[tuple[Problem, Span]] = []
        self._wanted = frozenset(wanted)
        self._stack: list[_Open] = []
        expect_key = False
        for match in _TOKEN.finditer(text):
            expect_key = self._token(match.group(1), match.start(1), match.end(1), expect_key)

    def _token(self, text: str, start: int, end: int, expect_key: bool) -> bool:
        """Take one token; return whether an object's key may come next."""
        if text in ("{", "["):
            self._stack.append(_Open(self._here(), start, text == "{"))
            return text == "{"
        if text in ("}", "]"):
            closed = self._stack.pop()
            self._note(closed.start, end)
        elif text == ",":
            return self._next()
        elif expect_key:
            self._key(text, start, end)
        elif text != ":":
            self._scalar(text, start, end)
        return False

    def _here(self) -> Pointer:
        return (*self._stack[-1].pointer, self._stack[-1].part) if self._stack else ()

    def _note(self, start: int, end: int) -> None:
        pointer = self._here()
        if pointer in self._wanted:
            key = self._stack[-1].key if self._stack else (start, end)
            self.spans[pointer] = Span(start, end, *key)

    def _next(self) -> bool:
        top = self._stack[-1]
        if isinstance(top.part, int):
            top.part += 1
        return top.is_object

    def _key(self, token: str, start: int, end: int) -> None:
        top = self._stack[-1]
        key = json.loads(token)
        top.part, top.key = key, (start, end)
        if key in top.keys:
            message = f"{quote(key)} comes twice; all but the last would be lost"
            hint = f"the first is at column {top.keys[key] + 1}; keep one"
            self._found("duplicate-key", message, hint, start, end)
        top.keys.setdefault(key, start)
        self._surrogates(token, start)

    def _scalar(self, token: str, start: int, end: int) -> None:
        self._note(start, end)
        if token.startswith('"'):
            self._surrogates(token, start)
        elif token not in ("true", "false", "null") and not math.isfinite(float(token)):
            message = f"{shorten(token, 24)} is not a finite number, and not JSON"
            self._found(
                "non-finite-number", message, "write null, or leave the key out", start, end
            )

    def _surrogates(self, token: str, start: int) -> None:
        if "\\u" not in token:
            return
        high: re.Match[str] | None = None
        for escape in _ESCAPE.finditer(token):
            code = int(escape.group(1) or "0", 16)
            if high and not (0xDC00 <= code < 0xE000 and high.end() == escape.start()):
                self._half(high, start)
            elif not high and 0xDC00 <= code < 0xE000:
                self._half(escape, start)
            paired = high is not None and 0xDC00 <= code < 0xE000
            high = escape if 0xD800 <= code < 0xDC00 and not paired else None
        if high:
            self._half(high, start)

    def _half(self, escape: re.Match[str], start: int) -> None:
        message = f"{escape.group()} is half of a surrogate pair, which is no character"
        hint = "write the character itself, or both halves"
        self._found("encoding", message, hint, start + escape.start(), start + escape.end())

    def _found(self, rule: str, message: str, hint: str, start: int, end: int) -> None:
        problem = Problem(rule, self._here(), message, hint)
        self.found.append((problem, Span(start, end, start, end)))
