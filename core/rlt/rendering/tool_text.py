"""Tools for models whose chat template knows none.

Small models are often trained without tools, and their templates drop `tools` and `tool_calls`
without a word. Tool traces are then written into the text itself: the functions as JSON in the
system message, a call as JSON between `<tool_call>` tags, a result between `<tool_response>` tags,
which is the convention that most open models with tools follow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlt.rendering.messages import THOUGHTS
from rlt.types import JSON

_INTRODUCTION = (
    "You can call these functions. To call one, answer with a JSON object with its name and "
    "arguments between <tool_call> and </tool_call>."
)


def write_out(messages: Sequence[JSON], tools: Sequence[JSON] | None) -> list[JSON]:
    """Return messages that say in plain content what `tools` and `tool_calls` say in fields."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    listing = "\n".join(_dump(tool.get("function", tool)) for tool in tools)
    described = f"{_INTRODUCTION}\n<tools>\n{listing}\n</tools>"
    if plain and plain[0]["role"] == "system":
        described = f"{plain[0]['content']}\n\n{described}"
        plain = plain[1:]
    return [{"role": "system", "content": described}, *plain]


def call_text(call: JSON) -> str:
    """Write one tool call as text."""
    function = call["function"]
    body = _dump({"name": function["name"], "arguments": function["arguments"]})
    return f"<tool_call>\n{body}\n</tool_call>"


def _plain(message: JSON) -> JSON:
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [call_text(call) for call in message.get("tool_calls", ())]
    thoughts = {key: message[key] for key in THOUGHTS if key in message}
    return {
        **thoughts,
        "role": message["role"],
        "content": "\n".join([*([content] if content else []), *calls]),
    }


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
