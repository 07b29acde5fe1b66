"""The fast way to know that there is nothing to say.

Most batches are spotless, and a few calls of compiled code can show it: orjson parses,
jsonschema-rs validates, and counting is enough to exclude a repeated key. Whenever this module is
not certain it says so, and the slow way (`json`, `jsonschema`, the scanner) decides and explains.
It never decides that something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from operator import eq, itemgetter
from typing import Any

import orjson

from rlt.dataset.keys import keys_differ
from rlt.dataset.spelling import misspelt
from rlt.dataset.types import DatasetType
from rlt.types import JSON

_AGREED = {
    *("type", "enum", "required", "properties", "additionalProperties", "propertyNames"),
    *("minProperties", "maxProperties", "dependentRequired", "dependentSchemas"),
    *("items", "prefixItems", "contains", "minItems", "maxItems", "minLength", "maxLength"),
    *("if", "then", "else", "allOf", "anyOf", "oneOf", "not", "$ref", "$defs"),
}
"""Keywords on which both validators were shown to agree; regular expressions, for one, differ."""

_SPEAKING = {"$schema", "$id", "$comment", "title", "description", "default", "examples"}


class Gate:
    """Shows that rows of one type have nothing to report, when that is easy to show."""

    def __init__(self, kind: DatasetType, checker: Any) -> None:
        """Use the fast validator if it is installed and agrees with `checker` on this schema."""
        self._kind = kind
        self._fast = _fast_validator(kind.schema)
        self._fast_list = _fast_validator(kind.schema, listed=True)
        self._checker = checker
        self._shapes: dict[tuple[str, ...], bool] = {}

    def valid(self, row: JSON) -> bool:
        """Say whether the schema holds."""
        if self._fast is not None:
            return bool(self._fast.is_valid(row))
        try:
            return bool(self._checker.is_valid(row))
        except Exception:  # whatever it is, the slow way says it better
            return False

    def spotless(self, lines: Sequence[bytes], rows: Sequence[Any]) -> bool:
        """Say whether it is certain that no rule about single rows finds anything in a batch."""
        if set(map(type, rows)) != {dict}:
            return False
        if not all(map(self._plain_shape, set(map(tuple, rows)))):
            return False
        return self._plain_texts(rows) and self._all_valid(rows) and keys_differ(lines, rows)

    def _plain_shape(self, shape: tuple[str, ...]) -> bool:
        """Say whether rows with these keys have no tools and no misspelt key."""
        known = self._shapes.get(shape)
        if known is None:
            names = self._kind.properties
            known = "tools" not in shape and not any(misspelt(key, names) for key in shape)
            if len(self._shapes) < 1000:
                self._shapes[shape] = known
        return known

    def _plain_texts(self, rows: Sequence[JSON]) -> bool:
        columns = {key: _column(rows, key) for key in self._kind.texts}
        for values in columns.values():
            if set(map(type, values)) != {str} or any(map(str.isspace, values)):
                return False
        return not any(any(map(eq, columns[a], columns[b])) for a, b in self._kind.different)

    def _all_valid(self, rows: Sequence[JSON]) -> bool:
        if self._fast_list is not None:
            return bool(self._fast_list.is_valid(rows))
        return all(map(self.valid, rows))


def parse_all(lines: Sequence[bytes]) -> list[Any] | None:
    """Parse a batch; None when a line needs a closer look."""
    try:
        return list(map(orjson.loads, lines))
    except ValueError:
        return None


def _column(rows: Sequence[JSON], key: str) -> list[Any]:
    try:
        return list(map(itemgetter(key), rows))
    except KeyError:
        return [None]  # a text that is not required, and not everywhere


def _fast_validator(schema: JSON, *, listed: bool = False) -> Any:
    """Return a jsonschema-rs validator of a row (or a list of rows); None when there is none."""
    try:
        module = import_module("jsonschema_rs")
    except ImportError:
        return None
    if not _is_agreed(schema):
        return None
    root = {key: value for key, value in schema.items() if key != "$id"}
    try:
        if not listed:
            return module.Draft202012Validator(root)
        inner = {key: value for key, value in root.items() if key not in ("$defs", "$schema")}
        return module.Draft202012Validator({"items": inner, "$defs": root.get("$defs", {})})
    except ValueError:
        return None


def _is_agreed(schema: Any) -> bool:
    """Say whether a schema uses only keywords on which the validators agree."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    for key, value in schema.items():
        if key in _SPEAKING or key.startswith("x-"):
            if key == "$schema" and "2020-12" not in str(value):
                return False
        elif key not in _AGREED or not _agreed_value(key, value):
            return False
    return True


def _agreed_value(key: str, value: Any) -> bool:
    if key in ("properties", "$defs", "dependentSchemas"):
        return isinstance(value, dict) and all(map(_is_agreed, value.values()))
    if key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return isinstance(value, list) and all(map(_is_agreed, value))
    if key in (
        "items",
        "additionalProperties",
        "if",
        "then",
        "else",
        "not",
        "propertyNames",
        "contains",
    ):
        return _is_agreed(value)
    if key == "$ref":
        return str(value).startswith("#/$defs/")
    if key == "enum":
        return all(isinstance(item, str) for item in value)
    return True
