"""Plugin options: declared by a JSON Schema each, set by `-o key=value`, never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlt.config import suggestion
from rlt.errors import UsageError
from rlt.plugins import Plugin
from rlt.types import JSON


def parse(settings: Iterable[str], plugins: Sequence[Plugin]) -> JSON:
    """Read `key=value` strings against what the plugins declare.

    A value is read as JSON unless its option is a string.

    :raises UsageError: for a missing `=` or an unknown key, with a suggestion.
    """
    declared = declarations(plugins)
    options = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"-o {setting}: expected key=value")
        if key not in declared:
            raise UsageError(_unknown(key, declared, plugins))
        options[key] = _read(text, declared[key])
    return options


def fill(options: Mapping[str, Any], plugins: Sequence[Plugin]) -> JSON:
    """Check `options` against the plugins' schemas and add the defaults.

    :raises UsageError: for an unknown option or a value its schema refuses.
    """
    import jsonschema  # noqa: PLC0415 - slow to import

    declared = declarations(plugins)
    for key, value in options.items():
        if key not in declared:
            raise UsageError(_unknown(key, declared, plugins))
        try:
            jsonschema.Draft202012Validator.check_schema(declared[key])
        except jsonschema.SchemaError as mistake:
            raise UsageError(f"the option {key!r} is declared wrongly: {mistake.message}") from None
        validator = jsonschema.Draft202012Validator(declared[key])
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        if error:
            raise UsageError(f"-o {key}={_show(value)}: {error.message}")
    defaults = {key: schema["default"] for key, schema in declared.items() if "default" in schema}
    return {**defaults, **options}


def declarations(plugins: Sequence[Plugin]) -> dict[str, JSON]:
    """Return the options of all plugins, name -> schema.

    :raises UsageError: when two of them declare the same name.
    """
    declared: dict[str, JSON] = {}
    owner: dict[str, str] = {}
    for plugin in plugins:
        for key, schema in plugin.info.options.items():
            if key in declared:
                raise UsageError(
                    f"plugins {owner[key]!r} and {plugin.name!r} both declare the option {key!r}; "
                    "they cannot be selected together"
                )
            declared[key], owner[key] = dict(schema), plugin.name
    return declared


def _read(text: str, schema: JSON) -> Any:
    words = schema.get("enum") and all(isinstance(value, str) for value in schema["enum"])
    if schema.get("type") == "string" or words:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # the schema will say what was expected


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _unknown(key: str, declared: Mapping[str, JSON], plugins: Sequence[Plugin]) -> str:
    names = ", ".join(plugin.name for plugin in plugins)
    known = ", ".join(declared) or "none"
    return f"-o {key}: {names} has no such option{suggestion(key, declared)} (options: {known})"
