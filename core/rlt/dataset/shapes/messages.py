"""OpenAI's chat format: one list of messages, the last turn of the assistant being the example.

Everything up to the last user message is the prompt; what follows is the completion, so a trace of
tool calls and their results stays whole. The old `function_call` and role `function` become tool
calls.
"""

from __future__ import annotations

import json
from typing import Any

from rlt.dataset.shapes.example import Example, Shape, Unconvertible, rest_of
from rlt.types import JSON


def read(row: JSON) -> Example:
    """Read a row with `messages`."""
    turns = [modern(turn) for turn in as_turns(row["messages"])]
    prompt, completion = split(turns)
    tools = row.get("tools", _old_functions(row.get("functions")))
    return Example(
        prompt, completion, tools=tools, rest=rest_of(row, "messages", "tools", "functions")
    )


def split(turns: list[JSON]) -> tuple[list[JSON], list[JSON]]:
    """Divide a conversation into what is given and what is to be learnt."""
    roles = [turn.get("role") for turn in turns]
    if "assistant" not in roles:
        raise Unconvertible("the conversation has no assistant message")
    if "user" not in roles:
        raise Unconvertible("the conversation has no user message")
    last = len(roles) - 1 - roles[::-1].index("user")
    if last == len(turns) - 1:
        raise Unconvertible("the conversation ends with the user; there is no answer to learn from")
    if "assistant" not in roles[last + 1 :]:
        raise Unconvertible("no assistant message follows the last user message")
    return turns[: last + 1], turns[last + 1 :]


def as_turns(value: Any) -> list[JSON]:
    """Return a list of messages, or say that it is none."""
    if not isinstance(value, list) or not value:
        raise Unconvertible("its messages are not a list, or an empty one")
    if not all(isinstance(turn, dict) for turn in value):
        raise Unconvertible("one of its messages is not an object")
    return value


def modern(turn: JSON) -> JSON:
    """Write the calls of older formats as tool calls; leave any other message as it is."""
    if turn.get("role") == "function":
        return {**turn, "role": "tool"}
    call = turn.get("function_call")
    if isinstance(call, dict) and "tool_calls" not in turn:
        kept = rest_of(turn, "function_call")
        return {**kept, "tool_calls": [{"type": "function", "function": call}]}
    calls = turn.get("tool_calls")
    if isinstance(calls, list):
        return {**turn, "tool_calls": [_wrapped(call) for call in calls]}
    return turn


def as_tools(value: Any) -> Any:
    """Return tools as a list of function schemas; some formats keep them as JSON in a string."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise Unconvertible("its tools are a string that is not JSON") from None
    return _old_functions(value) if isinstance(value, list) else value


def _wrapped(call: Any) -> Any:
    bare = isinstance(call, dict) and "function" not in call and "name" in call
    if not bare:
        return call
    outer = {key: call[key] for key in ("id", "type") if key in call}
    return {**outer, "function": rest_of(call, "id", "type")}


def _old_functions(functions: Any) -> Any:
    if not isinstance(functions, list):
        return None
    return [
        {"type": "function", "function": tool}
        if isinstance(tool, dict) and "function" not in tool
        else tool
        for tool in functions
    ]


SHAPE = Shape(
    "OpenAI chat rows (`messages`)",
    lambda row: "messages" in row and "prompt" not in row,
    read,
    "sdft",
)
