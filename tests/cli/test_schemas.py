"""`rlt schemas` lists the dataset types and prints their schemas."""

from __future__ import annotations

import json

import jsonschema

import rlt_schemas
from conftest import Cli


def test_the_types_are_listed(cli: Cli) -> None:
    lines = cli("schemas").out.splitlines()
    assert [line.split()[0] for line in lines] == ["sdft", "dpo", "environment"]


def test_a_schema_is_printed_for_an_editor(cli: Cli) -> None:
    schema = json.loads(cli("schemas", "show", "sdft").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "urn:rlt:schema:sdft"
    assert schema == rlt_schemas.load("sdft")


def test_all_of_them_for_a_program(cli: Cli) -> None:
    found = json.loads(cli("schemas", "--json").out)
    assert [each["name"] for each in found] == list(rlt_schemas.NAMES)


def test_an_unknown_type_is_mended(cli: Cli) -> None:
    result = cli("schemas", "show", "env")
    assert (result.code, result.out) == (2, "")
    assert "no dataset type is called 'env'" in result.err


def test_what_the_schemas_share_is_the_same_in_each() -> None:
    shared = [rlt_schemas.load(name)["$defs"] for name in rlt_schemas.NAMES]
    assert shared[0] == shared[1] == shared[2]
