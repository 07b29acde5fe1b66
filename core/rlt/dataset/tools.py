"""Tool calls: what is called must exist, take these arguments, and be answered in order.

Arguments may be an object (as Hugging Face templates want) or JSON in a string (as OpenAI writes
them). Parameter schemas come from the data, so nothing that they refer to is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rlt.dataset.content import messages
from rlt.dataset.findings import Pointer, Problem, quote, render_pointer, shorten
from rlt.dataset.spelling import closest
from rlt.dataset.types import DatasetType
from rlt.types import JSON


def calls(row: JSON, kind: DatasetType) -> Iterator[tuple[Pointer, JSON]]:
    """Go through the called functions of a row, each with its place."""
    for key in kind.texts:
        for i, message in messages(row.get(key)):
            for j, call in messages(message.get("tool_calls")):
                if isinstance(call.get("function"), dict):
                    yield (key, i, "tool_calls", j, "function"), call["function"]


def functions(row: JSON) -> dict[str, tuple[int, Any]]:
    """Return the parameter schema of each of the row's tools by name, with its place."""
    found: dict[str, tuple[int, Any]] = {}
    for i, tool in messages(row.get("tools")):
        function = tool.get("function")
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            found[function["name"]] = i, function.get("parameters")
    return found


def undefined_tool(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find calls of functions that the row's tools do not have."""
    if not isinstance(row.get("tools"), list):
        return
    known = functions(row)
    for pointer, function in calls(row, kind):
        name = function.get("name")
        if isinstance(name, str) and name not in known:
            near = closest(name, known)
            hint = (
                f"did you mean {quote(near)}?"
                if near
                else f"the row's tools: {shorten(', '.join(known), 120) or 'none'}"
            )
            message = f"{quote(name)} is not among this row's tools"
            yield Problem("undefined-tool", (*pointer, "name"), message, hint)


def bad_tool_arguments(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find arguments that are no JSON object, or not what the function's parameters allow."""
    known = functions(row)
    for pointer, function in calls(row, kind):
        place = (*pointer, "arguments")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            arguments, fault = _decode(arguments)
            if fault:
                yield Problem(
                    "bad-tool-arguments", place, fault, "write the arguments with json.dumps"
                )
        name = function.get("name")
        if isinstance(arguments, dict) and isinstance(name, str) and name in known:
            yield from _misfits(arguments, name, known[name], place)


def _decode(text: str) -> tuple[Any, str]:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "too large to be read"
        if isinstance(error, json.JSONDecodeError):
            found = shorten(text[error.pos :], 24) or "the end"
            reason = f"{error.msg.lower()} at character {error.pos + 1}, found {found!r}"
        return None, f"the arguments are a string that is not JSON: {reason}"
    if not isinstance(arguments, dict):
        return None, f"the arguments are JSON, but not an object: {quote(arguments)}"
    return arguments, ""


def _misfits(
    arguments: JSON, name: str, tool: tuple[int, Any], place: Pointer
) -> Iterator[Problem]:
    index, parameters = tool
    if not isinstance(parameters, dict):
        return
    try:
        checker = _checker(json.dumps(parameters, sort_keys=True))
        errors = list(checker.iter_errors(arguments)) if checker else []
    except Exception as error:  # a schema from the data may fail in any way
        text = f"the parameters of {quote(name)} cannot be applied: {shorten(str(error), 120)}"
        yield Problem("invalid-value", ("tools", index, "function", "parameters"), text)
        return
    for misfit in errors:
        where = render_pointer(misfit.absolute_path)
        text = f"the arguments of {quote(name)} do not fit its parameters: "
        text += (f"{where}: " if where else "") + shorten(misfit.message, 120)
        yield Problem("bad-tool-arguments", place, text)


def bad_parameters(row: JSON, kind: DatasetType) -> Iterator[Problem]:  # noqa: ARG001 - a rule's form
    """Find tools whose parameters are no JSON Schema, so that no call can be checked."""
    for name, (i, parameters) in functions(row).items():
        if isinstance(parameters, dict) and not _usable(parameters):
            message = f"the parameters of {quote(name)} are not a valid JSON Schema"
            yield Problem("invalid-value", ("tools", i, "function", "parameters"), message)


def _usable(parameters: JSON) -> bool:
    try:
        return _checker(json.dumps(parameters, sort_keys=True)) is not None
    except Exception:  # see _misfits
        return False


@lru_cache(maxsize=512)
def _checker(parameters: str) -> Any:
    """Return a validator of a parameter schema, or None when it is not valid."""
    import jsonschema  # noqa: PLC0415 - see schema_check
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415

    schema = json.loads(parameters)
    schema.pop("$schema", None)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError):
        return None
    return jsonschema.Draft202012Validator(schema, registry=EMPTY_REGISTRY)


def tool_result_without_call(row: JSON, kind: DatasetType) -> Iterator[Problem]:
    """Find tool messages that answer nothing; a completion goes on where the prompt ended."""
    before: list[Any] = []
    for key, text_kind in kind.texts.items():
        opened = _open_calls(row.get(key), before, key)
        problems, asked = opened
        yield from problems
        if text_kind == "prompt":
            before = asked


def _open_calls(value: Any, before: list[Any], key: str) -> tuple[list[Problem], list[Any]]:
    """Walk one text: return its problems, and the ids of calls that are not answered yet."""
    asked, problems = list(before), []
    for i, message in messages(value):
        asked += [call.get("id") for _, call in messages(message.get("tool_calls"))]
        if message.get("role") != "tool":
            continue
        answered = message.get("tool_call_id")
        if answered in asked:
            asked.remove(answered)
        elif answered is None and asked:
            asked.pop(0)
        elif answered is not None and None in asked:
            asked.remove(None)
        else:
            text = (
                f"no earlier call has the id {quote(answered)}"
                if answered is not None
                else "no earlier message calls a tool"
            )
            at = ("tool_call_id",) if answered is not None else ()
            problems.append(Problem("tool-result-without-call", (key, i, *at), text))
    return problems, asked


RULES = (undefined_tool, bad_tool_arguments, bad_parameters, tool_result_without_call)
