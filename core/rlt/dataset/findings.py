"""What is wrong, and where.

A check first names a `Problem` by its place in the JSON (a pointer), because most rows have none
and positions are costly. Only then is the line scanned again and the problem becomes a `Finding`
with a line, a column and the piece of text that is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlt.dataset.rules import Severity, severity

Pointer = tuple[str | int, ...]
"""The way from the row to a value: keys and indices."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a row that is JSON."""

    rule: str
    pointer: Pointer
    message: str
    suggestion: str = ""
    at_key: bool = False
    """Whether the key is meant, not its value."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong at a place in a file."""

    path: str
    line: int
    column: int
    """In characters, from 1."""

    rule: str
    pointer: str
    """RFC 6901; empty for the whole row."""

    message: str
    suggestion: str = ""
    """What to do about it; empty when the message says it all."""

    snippet: str = ""
    """The offending piece of the line, shortened."""

    @property
    def severity(self) -> Severity:
        """`error` or `warning`."""
        return severity(self.rule)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts findings as one reads the file."""
        return self.line, self.column


def render_pointer(pointer: Iterable[str | int]) -> str:
    """Write a pointer as RFC 6901 does."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in pointer)


def shorten(text: str, limit: int = 60) -> str:
    """Make a piece of data fit into a message: on one line, printable and not too long."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in cut
    )


def quote(value: object) -> str:
    """Write a value of the data into a message."""
    import json  # noqa: PLC0415 - cheap, and only when something is wrong

    try:
        return shorten(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):
        return "a value"


def kind(value: object) -> str:
    """Name the JSON type of a value, as a person would."""
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    names |= {list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "a value")
