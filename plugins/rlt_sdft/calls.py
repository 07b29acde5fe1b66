"""Tool calls as models write them, in one normal form."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)
_ACTION = re.compile(r"Action:\s*(\S+)\s*Action Input:\s*(?=\{)")
_DECODER = json.JSONDecoder()


def same_tool_calls(demonstration: str, rewrite: str, *, expected: bool = False) -> bool:
    """Say whether both make the same calls, however those are spaced and their arguments ordered.

    :param expected: whether the demonstration is known to make calls. If none is recognised, the
        model writes them in a way unknown here, and the rewrite must be the same but for space.
    """
    shown = tool_calls(demonstration)
    if expected and not shown:
        return demonstration.split() == rewrite.split()
    return shown == tool_calls(rewrite)


def tool_calls(text: str) -> Counter[str]:
    """Return the tool calls that a text makes, in a normal form, with how often.

    Known are `<tool_call>` with JSON (Qwen, Hermes) or with XML parameters (Nemotron, Qwen3-Coder),
    a bare JSON object with `name` and `parameters` (Llama 3), and `Action:` with `Action Input:`.
    """
    found = [call for body in _TAGGED.findall(text) for call in _tagged(body)]
    found += [_call(match[1], _object(text[match.end() :])) for match in _ACTION.finditer(text)]
    bare = _json(text)
    if isinstance(bare, dict) and "name" in bare and bare.keys() & {"arguments", "parameters"}:
        found.append(_json_call(bare))
    return Counter(found)


def _tagged(body: str) -> list[str]:
    found = []
    for name, given in _FUNCTION.findall(body):
        arguments = {key.strip(): value.strip() for key, value in _PARAMETER.findall(given)}
        found.append(_call(name.strip(), arguments))
    if found:
        return found
    call = _json(body)
    return [_json_call(call) if isinstance(call, dict) else str(call)]


def _json_call(call: dict[str, Any]) -> str:
    return _call(call.get("name"), call.get("arguments", call.get("parameters")))


def _call(name: Any, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True)


def _object(text: str) -> Any:
    """Parse the JSON object that a text begins with; what is none is its first paragraph."""
    try:
        return _DECODER.raw_decode(text)[0]
    except ValueError:
        return " ".join(text.partition("\n\n")[0].split())


def _json(text: str) -> Any:
    """Parse JSON; what is none comes back with its space collapsed."""
    try:
        return json.loads(text)
    except ValueError:
        return " ".join(text.split())
