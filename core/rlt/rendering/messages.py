"""Rows' messages in the one shape that chat templates agree on.

A string is a user's prompt or an assistant's completion. Content parts of text are joined, a
`developer` speaks as the system, and tool arguments are objects: OpenAI traces write them as a JSON
string, Hugging Face templates want the object. An assistant's thought goes by several names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rlt.types import JSON

THOUGHTS = ("reasoning_content", "thinking")
"""Where templates look for an assistant's thought."""
_ALIASES = (*THOUGHTS, "reasoning")


class Unrenderable(ValueError):  # noqa: N818 - it describes a row
    """This row cannot be rendered by this model's chat template; the message says why."""


def as_messages(value: str | Sequence[JSON], role: str) -> list[JSON]:
    """Return a prompt or completion as normalised messages.

    :param role: who speaks when `value` is a string: `user` for prompts, else `assistant`.
    :raises Unrenderable: for content that is not text.
    """
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_normalised(message) for message in value]


def encoded(tokenizer: Any, text: str) -> list[int]:
    """Return a text's ids, no special one added.

    :raises Unrenderable: for half a surrogate pair, which JSON can hold and no tokenizer takes.
    """
    try:
        return list(tokenizer.encode(text, add_special_tokens=False, verbose=False)) if text else []
    except (TypeError, UnicodeEncodeError) as error:
        if not any("\ud800" <= c <= "\udfff" for c in text):
            raise
        raise Unrenderable("the text holds half a surrogate pair, which is no character") from error


def _normalised(message: JSON) -> JSON:
    role = "system" if message["role"] == "developer" else message["role"]
    result = {**message, "role": role, "content": _text(message.get("content"))}
    if message.get("tool_calls"):
        result["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    else:
        result.pop("tool_calls", None)
    found = [message[key] for key in _ALIASES if message.get(key) is not None]
    if not all(isinstance(text, str) for text in found):
        raise Unrenderable("an assistant's thought must be text")
    thought = next((text.strip() for text in found if text.strip()), "")
    kept = {key: value for key, value in result.items() if key not in _ALIASES}
    return {**kept, **dict.fromkeys(THOUGHTS, thought)} if thought else kept


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    kinds = {part.get("type") for part in content}
    if kinds - {"text"}:
        raise Unrenderable(f"content of type {', '.join(sorted(map(str, kinds)))} is not text")
    return "".join(part["text"] for part in content)


def _call(call: JSON) -> JSON:
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            raise Unrenderable(f"the arguments of {function['name']} are not JSON") from None
    return {**call, "function": {**function, "arguments": arguments or {}}}
