"""What a schema cannot say about texts.

Each rule is a function from a row to problems. They look at the keys that the type calls texts, so
they hold for any registered type, and they are robust to rows that the schema has already refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rlt.dataset.findings import Problem, quote
from rlt.dataset.spelling import misspelt
from rlt.dataset.types import DatasetType
from rlt.types import JSON

_MESSAGE_KEYS = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))
_OTHERS = ("system", "developer", "user", "tool")
_CALL_KEYS = frozenset(("id", "type", "function"))


def messages(value: Any) -> Sequence[tuple[int, JSON]]:
    """Return the messages of a text with their numbers, if it is one in messages."""
    if not isinstance(value, list):
        return ()
    return [(i, item) for i, item in enumerate(value) if isinstance(item, dict)]


def empty_text(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find texts of white space only (no text at all is for the schema)."""
    for key in kind.texts:
        value = row.get(key)
        if isinstance(value, str) and value.isspace():
            yield Problem("empty-text", (key,), f"expected a text; found {quote(value)}")
        for i, message in messages(value):
            if _is_silent(message):
                message_text = f"the {quote(message.get('role'))} message says nothing"
                yield Problem("empty-text", (key, i, "content"), message_text)


def _is_silent(message: JSON) -> bool:
    """Say whether a message is blank; a tool may return nothing, and a call needs no words."""
    if "content" not in message or message.get("tool_calls") or message.get("role") == "tool":
        return False
    content = message["content"]
    if isinstance(content, list):
        return all(
            isinstance(p, dict) and p.get("type") == "text" and _blank(p.get("text"))
            for p in content
        )
    return _blank(content)


def _blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def misspelt_field(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find keys that are one slip away from a known one."""
    yield from _slips(row, kind.properties.keys(), ())
    for key in kind.texts:
        for i, message in messages(row.get(key)):
            yield from _slips(message, _MESSAGE_KEYS, (key, i))
            for j, call in messages(message.get("tool_calls")):
                yield from _slips(call, _CALL_KEYS, (key, i, "tool_calls", j))


def _slips(
    value: JSON, known: AbstractSet[str], pointer: tuple[str | int, ...]
) -> Iterator[Problem]:
    if value.keys() <= known:
        return
    for key in value.keys() - known:
        meant = misspelt(key, known)
        if meant and meant not in value:
            message = (
                f"{quote(key)} is one slip away from {quote(meant)}, and is passed through as it is"
            )
            hint = f"rename it to {quote(meant)} if that is meant"
            yield Problem("misspelt-field", (*pointer, key), message, hint, at_key=True)


def no_assistant_turn(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find completions in messages, none of which is the assistant's."""
    for key, text_kind in kind.texts.items():
        turns = [message.get("role") for _, message in messages(row.get(key))]
        known = turns and all(role in _OTHERS for role in turns)  # another may mean the assistant
        if text_kind == "completion" and known:
            message = f"no message of {quote(key)} is the assistant's, so there is nothing to learn"
            yield Problem("no-assistant-turn", (key,), message)


def identical_pair(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find pairs with nothing to choose between."""
    for first, second in kind.different:
        if first in row and second in row and _same(row[first], row[second]):
            message = f"{quote(first)} and {quote(second)} are the same, so there is no preference"
            yield Problem("identical-pair", (second,), message)


def _same(first: Any, second: Any) -> bool:
    return bool(first == second) and type(first) is type(second)


RULES = (empty_text, misspelt_field, no_assistant_turn, identical_pair)
