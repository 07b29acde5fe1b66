"""ShareGPT: `conversations` of `from` and `value`, with LLaMA-Factory's tool turns."""

from __future__ import annotations

import json
from typing import Any

from rlt.dataset.findings import quote
from rlt.dataset.shapes.example import Example, Shape, Unconvertible, rest_of
from rlt.dataset.shapes.messages import as_tools, as_turns, modern, split
from rlt.types import JSON

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_KNOWN = ("conversations", "system", "tools", "chosen", "rejected")


def read(row: JSON) -> Example:
    """Read a row with `conversations`."""
    turns = [_message(turn) for turn in as_turns(row["conversations"])]
    if isinstance(row.get("system"), str) and row["system"]:
        turns = [{"role": "system", "content": row["system"]}, *turns]
    tools, rest = as_tools(row.get("tools")), rest_of(row, *_KNOWN)
    if "chosen" in row and "rejected" in row:
        chosen, rejected = [_message(row["chosen"])], [_message(row["rejected"])]
        return Example(turns, chosen=chosen, rejected=rejected, tools=tools, rest=rest)
    prompt, completion = split(turns)
    return Example(prompt, completion, tools=tools, rest=rest)


def _message(turn: Any) -> JSON:
    if not isinstance(turn, dict):
        raise Unconvertible("an answer is not an object with `from` and `value`")
    if "role" in turn and "from" not in turn:  # some files write OpenAI messages under this key
        return modern(turn)
    speaker, value = turn.get("from"), turn.get("value")
    if not isinstance(value, str):
        raise Unconvertible("a turn's `value` is not a string")
    if speaker == "function_call":
        return {"role": "assistant", "content": "", "tool_calls": _calls(value)}
    if not isinstance(speaker, str) or speaker not in _ROLES:
        known = ", ".join([*_ROLES, "function_call"])
        raise Unconvertible(f"a turn is from {quote(speaker)}; known are {known}")
    return {"role": _ROLES[speaker], "content": value, **rest_of(turn, "from", "value")}


def _calls(value: str) -> list[JSON]:
    try:
        calls = json.loads(value)
    except (ValueError, RecursionError):
        raise Unconvertible("a function_call is not JSON") from None
    calls = calls if isinstance(calls, list) else [calls]
    if not all(isinstance(call, dict) and "name" in call for call in calls):
        raise Unconvertible("a function_call has no name")
    return [{"type": "function", "function": {"arguments": {}, **call}} for call in calls]


SHAPE = Shape("ShareGPT rows (`conversations`)", lambda row: "conversations" in row, read, "sdft")
