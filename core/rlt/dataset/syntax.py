"""One line of a file becomes a JSON object, or a finding that says why it does not.

`json` is the judge. What is added is where it happened in the file, what was probably done (a
trailing comma, single quotes, Python's None…), and limits that keep a hostile line from ending in a
traceback: nesting, the length of a number, the length of the line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rlt.dataset.findings import shorten
from rlt.dataset.lines import CUT, LONGEST
from rlt.types import JSON

DEEPEST = 200
"""How deep a row may nest: more than any real one, and what every later step can walk."""

_MEANT = (
    (
        re.compile(r"(?:None|True|False)\b"),
        "write null, true or false, not Python's None, True, False",
    ),
    (re.compile(r"'"), "JSON strings take double quotes; write rows with json.dumps, not str()"),
    (re.compile(r"//|/\*|#"), "JSON has no comments"),
    (re.compile(r"\\"), "write a backslash as two of them"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a line cannot be read."""

    rule: str
    at: int
    """The character, from 0."""

    message: str
    suggestion: str = ""
    snippet: str = ""


def parse(line: bytes, offset: int = 0) -> tuple[str, JSON] | Fault:
    """Return the text and the object of a line that begins at byte `offset` of its file."""
    line = line.rstrip(b"\r")
    if line.endswith(CUT) and len(line) > LONGEST // 2:
        limit = f"the line is longer than {LONGEST >> 20} MiB"
        return Fault("json-syntax", 0, limit, "write one row a line")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return _not_utf8(line, offset, error)
    return _parse_text(text)


def _parse_text(text: str) -> tuple[str, JSON] | Fault:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return _not_json(text, error)
    except RecursionError:
        return _too_deep()
    except ValueError:  # Python's limit on the digits of an integer
        return _too_many_digits(text)
    if not isinstance(value, dict):
        return _not_an_object(text, value)
    return (text, value) if depth_within(value, DEEPEST) else _too_deep()


def depth_within(value: object, limit: int) -> bool:
    """Say whether `value` nests at most `limit` levels deep."""
    level: list[object] = [value]
    for _ in range(limit + 1):
        dicts = [item for item in level if isinstance(item, dict)]
        lists = [item for item in level if isinstance(item, list)]
        level = [child for item in dicts for child in item.values()]
        level += [child for item in lists for child in item]
        if not level:
            return True
    return False


def _not_utf8(line: bytes, offset: int, error: UnicodeDecodeError) -> Fault:
    at = len(line[: error.start].decode())
    byte = line[error.start]
    latin = line.decode("latin-1")[max(0, error.start - 12) : error.start + 12]
    return Fault(
        "encoding",
        at,
        f"byte 0x{byte:02x} at byte offset {offset + error.start} of the file is not UTF-8",
        f"in Latin-1 this would read {shorten(latin)!r}; save the file as UTF-8",
        f"\\x{byte:02x}",
    )


def _not_json(text: str, error: json.JSONDecodeError) -> Fault:
    at = error.pos
    if error.msg.startswith("Illegal trailing"):  # newer Pythons point at the comma
        at += len(text[at + 1 :]) - len(text[at + 1 :].lstrip()) + 1
    found = text[at:].strip()
    message = error.msg[0].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
    if error.msg.startswith("Invalid control character"):
        message = f"{message} U+{ord(text[at]):04X} in a string"
        return Fault("json-syntax", at, message, "write rows with json.dumps, which escapes it")
    message += f", found {shorten(found, 20)!r}" if found else ", found the end of the line"
    return Fault("json-syntax", at, message, _probably(text, at, error.msg), shorten(found, 20))


def _probably(text: str, at: int, message: str) -> str:
    before, rest = text[:at].rstrip(), text[at:]
    for pattern, suggestion in _MEANT:
        if pattern.match(rest):
            return suggestion
    if before.endswith(",") and (rest[:1] in "}]" or message.startswith("Illegal trailing")):
        return "remove the comma before the closing bracket"
    if message.startswith("Unterminated") or not rest.strip():
        return "the line ends too early: was the file cut off, or a row written over several lines?"
    if message.startswith("Extra data"):
        return "write one object a line"
    return "write rows with json.dumps, one a line"


def _not_an_object(text: str, value: object) -> Fault:
    at = len(text) - len(text.lstrip())
    what = {list: "a list", str: "a string", type(None): "null", bool: "a boolean"}
    message = f"a row is a JSON object, this is {what.get(type(value), 'a number')}"
    hint = ""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        message += f" of {len(value)}"
        hint = "one JSON list of all rows? `rlt convert` reads it and writes one row a line"
    return Fault("not-an-object", at, message, hint, shorten(text.strip(), 20))


def _too_deep() -> Fault:
    return Fault("json-syntax", 0, f"nested more than {DEEPEST} levels deep", "flatten the row")


def _too_many_digits(text: str) -> Fault:
    digits = re.search(r"\d{4000,}", text)
    at = digits.start() if digits else 0
    length = len(digits.group()) if digits else 0
    return Fault("non-finite-number", at, f"a number of {length} digits is too large", "", "")
