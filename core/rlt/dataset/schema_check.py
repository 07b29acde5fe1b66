"""Validity is what `jsonschema` says; this puts what it says into words.

The library finds every error and names the value and the keyword. The words come from the titles
in the schema, so a plugin's type explains itself with the titles that its author wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rlt.dataset.findings import Pointer, Problem, kind, quote, shorten
from rlt.dataset.spelling import closest
from rlt.errors import UsageError
from rlt.types import JSON

if TYPE_CHECKING:
    from jsonschema import ValidationError


def validator(schema: JSON, name: str) -> Any:
    """Return the `jsonschema` validator of a type; it never fetches anything.

    :raises UsageError: when the schema is not one.
    """
    import jsonschema  # noqa: PLC0415 - 100 ms that `rlt --help` need not pay
    from referencing import Registry  # noqa: PLC0415
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415

    registry: Registry[Any] = EMPTY_REGISTRY
    cls = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(
            f"the schema of dataset type {name!r} is not valid: {shorten(error.message, 200)}"
        ) from error
    return cls(schema, registry=registry)


def problems(row: JSON, checker: Any) -> list[Problem]:
    """Return everything that the schema finds wrong with a row, each once."""
    try:
        errors = list(checker.iter_errors(row))
    except RecursionError:
        return [Problem("invalid-value", (), "too deeply nested to be checked against the schema")]
    except Exception as error:  # a reference that leads nowhere, a pattern that is none
        raise UsageError(f"the schema of the dataset type cannot be applied: {error}") from error
    found = [problem for error in errors for problem in _explain(error)]
    return list(dict.fromkeys(found))


def _explain(error: ValidationError) -> Iterator[Problem]:
    pointer: Pointer = tuple(error.absolute_path)
    explain = _BY_KEYWORD.get(str(error.validator))
    if explain:
        yield from explain(error, pointer)
    elif error.context:
        yield from _explain(_deepest(error.context))
    else:
        yield Problem("invalid-value", pointer, _plain(error))


def _missing(error: ValidationError, pointer: Pointer) -> Iterator[Problem]:
    instance: Any = error.instance
    keywords: Any = error.validator_value
    known = _properties(error)
    strangers = [key for key in instance if key not in known]
    for key in keywords:
        if key not in instance:
            near = next((s for s in strangers if closest(s, [key]) == key), None)
            hint = f"rename {quote(near)} to {quote(key)}" if near else ""
            yield Problem("missing-field", (*pointer, key), f"{quote(key)} is missing", hint)


def _wrong_type(error: ValidationError, pointer: Pointer) -> Iterator[Problem]:
    expected: Any = error.validator_value
    types = [expected] if isinstance(expected, str) else list(expected)
    wanted = _title(error) or " or ".join(types)
    hint = ""
    if types == ["array"] and isinstance(error.instance, str) and error.instance[:1] == "[":
        hint = "a list written as a string? parse it with json.loads first"
    yield Problem("wrong-type", pointer, f"expected {wanted}; found {kind(error.instance)}", hint)


def _not_listed(error: ValidationError, pointer: Pointer) -> Iterator[Problem]:
    value, allowed = error.instance, _values(error)
    choices = ", ".join(quote(choice) for choice in allowed)
    words = [choice for choice in allowed if isinstance(choice, str)]
    near = closest(value, words) if isinstance(value, str) else None
    hint = f"write {quote(near)}" if near else ""
    if pointer[-1:] == ("role",):
        if value in ("human", "gpt", "bot"):
            hint += "; `rlt convert` turns ShareGPT files into ours"
        yield Problem(
            "unknown-role", pointer, f"{quote(value)} is no role here; expected {choices}", hint
        )
    else:
        wanted = _title(error) or choices
        yield Problem("invalid-value", pointer, f"expected {wanted}; found {quote(value)}", hint)


def _too_short(error: ValidationError, pointer: Pointer) -> Iterator[Problem]:
    if error.instance:
        yield Problem("invalid-value", pointer, _plain(error))
    else:
        what = (
            "a text that is not empty" if error.validator == "minLength" else "at least one entry"
        )
        yield Problem("empty-text", pointer, f"expected {what}; found {quote(error.instance)}")


def _unexpected(error: ValidationError, pointer: Pointer) -> Iterator[Problem]:
    known = _properties(error)
    instance: Any = error.instance
    for key in instance:
        if key not in known:
            near = closest(key, known)
            hint = f"did you mean {quote(near)}?" if near else ""
            message = f"{quote(key)} is not a key of this type"
            yield Problem("invalid-value", (*pointer, key), message, hint, at_key=True)


_BY_KEYWORD = {
    "required": _missing,
    "type": _wrong_type,
    "enum": _not_listed,
    "const": _not_listed,
    "minLength": _too_short,
    "minItems": _too_short,
    "additionalProperties": _unexpected,
}


def _values(error: ValidationError) -> list[Any]:
    value: Any = error.validator_value
    return [value] if error.validator == "const" else list(value)


def _properties(error: ValidationError) -> list[str]:
    schema: Any = error.schema
    return list(schema.get("properties", ()) if isinstance(schema, dict) else ())


def _title(error: ValidationError) -> str:
    schema: Any = error.schema
    return str(schema.get("title", "")) if isinstance(schema, dict) else ""


def _plain(error: ValidationError) -> str:
    title = _title(error)
    return shorten(error.message, 160) + (f" (expected {title})" if title else "")


def _deepest(errors: Iterable[ValidationError]) -> ValidationError:
    """Of the branches of an anyOf, take the one that got furthest: most likely the one meant."""
    return max(errors, key=lambda error: (len(error.absolute_path), error.validator != "type"))
