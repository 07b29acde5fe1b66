"""The fast way and the slow way agree: on validity, and on keys that come twice."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

import rlt_schemas
from rlt.dataset import DatasetType
from rlt.dataset.gate import Gate
from rlt.dataset.keys import _many_key_ends, key_ends, keys_differ
from rlt.dataset.positions import Scan

pytest.importorskip("jsonschema_rs")

SLOW_TO_MAKE = settings(deadline=None, suppress_health_check=list(HealthCheck))

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def both(schema: dict[str, Any], row: Any) -> tuple[bool, bool] | None:
    """Return what the gate and what jsonschema say of a row, parsed as each would get it."""
    text = json.dumps(row)
    try:
        parsed = orjson.loads(text)
    except ValueError:
        return None  # not for the fast way
    checker = jsonschema.Draft202012Validator(schema)
    gate = Gate(DatasetType("any", schema), checker)
    assert gate._fast is not None
    return gate.valid(parsed), checker.is_valid(json.loads(text))


def mutate(draw: st.DrawFn, value: Any) -> Any:
    """Change one place of a value."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 3)) == 0:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutate(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], mutate(draw, value[index]), *value[index + 1 :]]
    return draw(values | st.sampled_from(["", "user", "assistant", "text", "function", [], {}]))


def inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """Resolve references: hypothesis-jsonschema takes minutes to do so."""
    if isinstance(value, dict) and "$ref" in value:
        return inlined(definitions[value["$ref"].rpartition("/")[2]], definitions)
    if isinstance(value, dict):
        return {k: inlined(v, definitions) for k, v in value.items() if not k.startswith("x-")}
    return [inlined(item, definitions) for item in value] if isinstance(value, list) else value


def rows_of(name: str) -> st.SearchStrategy[Any]:
    schema = rlt_schemas.load(name)
    keys = inlined(schema["properties"], schema["$defs"])
    made = {key: from_schema(value) for key, value in keys.items()}
    optional = {"tools": made.pop("tools")}
    return st.fixed_dictionaries(made, optional=optional)


ROWS = {name: rows_of(name) for name in rlt_schemas.NAMES}


@pytest.mark.parametrize("name", rlt_schemas.NAMES)
@settings(SLOW_TO_MAKE, max_examples=15)
@given(st.data())
def test_both_agree_on_rows_of_our_types(name: str, data: st.DataObject) -> None:
    row = data.draw(ROWS[name])
    assert both(rlt_schemas.load(name), row) in ((True, True), None)
    for _ in range(5):
        row = data.draw(st.composite(mutate)(row))
        verdicts = both(rlt_schemas.load(name), row)
        assert verdicts is None or verdicts[0] == verdicts[1]


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Make schemas of the keywords that the gate trusts."""
    small = st.integers(0, 3)
    names = st.sampled_from(["a", "b", "c"])
    types = st.sampled_from(
        ["string", "integer", "number", "object", "array", "null", "boolean", ["string", "null"]]
    )

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(inner, min_size=1, max_size=2)
        keywords = {"items": inner, "if": inner, "then": inner, "else": inner, "not": inner}
        keywords |= {"allOf": lists, "anyOf": lists, "oneOf": lists, "prefixItems": lists}
        keywords |= {"contains": inner, "additionalProperties": inner, "propertyNames": inner}
        keywords |= {"properties": st.dictionaries(names, inner, max_size=3)}
        keywords |= {"dependentSchemas": st.dictionaries(names, inner, max_size=1)}
        return st.fixed_dictionaries({}, optional=keywords)

    flat = {"type": types, "required": st.lists(names, unique=True, max_size=2)}
    flat |= {"minLength": small, "maxLength": small, "minItems": small, "maxItems": small}
    flat |= {"minProperties": small, "maxProperties": small}
    flat |= {"enum": st.lists(st.text(max_size=2), min_size=1, max_size=3, unique=True)}
    flat |= {"dependentRequired": st.dictionaries(names, st.lists(names, unique=True), max_size=1)}
    return st.recursive(st.fixed_dictionaries({}, optional=flat), deeper, max_leaves=6)


rows = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values, max_size=4) | values


@SLOW_TO_MAKE
@given(schemas(), rows)
def test_both_agree_on_any_schema_that_the_gate_trusts(schema: dict[str, Any], row: Any) -> None:
    verdicts = both(schema, row)
    assert verdicts is None or verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^x$"}}},
        {"properties": {"a": {"format": "date"}}},
        {"properties": {"a": {"enum": [1]}}},
        {"properties": {"a": {"$ref": "https://example.invalid/schema"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"unheard-of": True},
    ],
)
def test_the_gate_leaves_schemas_that_it_does_not_know_to_jsonschema(schema: Any) -> None:
    gate = Gate(DatasetType("any", schema), jsonschema.Draft202012Validator(schema))
    assert gate._fast is None
    assert gate._fast_list is None


def pairs(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Write objects whose keys may come twice, with white space where JSON allows it."""
    space = st.sampled_from(["", "", " ", "\t", "  "])
    key = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\\\"', '"\\""', '":"', '"x\\":"', '""'])
    pair = st.builds("{}{}:{}{}".format, key, space, space, inner)
    return st.lists(pair, max_size=4).map(lambda items: "{" + ", ".join(items) + "}")


texts = st.sampled_from(['"x"', "1", '":"', '"\\":"', '"a : b"', '"\\\\"', '"\\\\\\":"', "null"])
objects = pairs(
    st.recursive(
        texts, lambda i: pairs(i) | st.lists(i, max_size=2).map(lambda x: f"[{','.join(x)}]")
    )
)


@SLOW_TO_MAKE
@given(st.lists(objects, min_size=1, max_size=3))
def test_a_repeated_key_is_never_missed(lines: list[str]) -> None:
    raw = [line.encode() for line in lines]
    repeated = any(Scan(line).found for line in lines)
    certain = keys_differ(raw, [orjson.loads(line) for line in raw])
    assert not (repeated and certain)


@SLOW_TO_MAKE
@given(st.lists(objects, min_size=1, max_size=5))
def test_counting_with_numpy_is_counting(lines: list[str]) -> None:
    text = "\n".join(lines).encode()

    exact = sum(len(keys) for line in lines for keys in [_keys(line)])
    assert _many_key_ends(text) >= exact
    assert key_ends(text) >= exact


def _keys(line: str) -> list[str]:
    found: list[str] = []
    json.loads(line, object_pairs_hook=lambda p: found.extend(key for key, _ in p))
    return found
