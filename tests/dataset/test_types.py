"""A type that a plugin registers works everywhere that ours do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt.dataset import DatasetTypes
from rlt.dataset.inspect import Inspection
from rlt.dataset.rules import RULES
from rlt.errors import UsageError

from .conftest import Collected

RANKING = {
    "type": "object",
    "required": ["question", "ranked"],
    "properties": {
        "question": {"type": "string", "minLength": 1, "x-rlt-text": "prompt"},
        "ranked": {"type": "array", "title": "ranked: a list of answers", "minItems": 2},
        "best": {"type": "string", "pattern": "^[A-Z]$"},
    },
}


def check(types: DatasetTypes, path: Path, content: bytes, kind: str = "auto") -> Collected:
    path.write_bytes(content)
    report = Collected()
    Inspection(types, kind, report, frozenset(RULES)).run([str(path)])
    return report


def test_its_rows_are_told_and_explained_with_its_own_titles(
    types: DatasetTypes, tmp_path: Path
) -> None:
    types("ranking", RANKING, summary="answers in order")
    content = b'{"question": "a", "ranked": 1}\n{"question": " ", "ranked": [1, 2], "best": "AB"}\n'
    report = check(types, tmp_path / "a", content)
    assert report.files[0].type == "ranking"
    assert [(f.line, f.rule, f.pointer) for f in report.findings] == [
        (1, "wrong-type", "/ranked"),
        (2, "empty-text", "/question"),
        (2, "invalid-value", "/best"),
    ]
    assert report.findings[0].message == "expected ranked: a list of answers; found a number"


def test_a_name_is_registered_once(types: DatasetTypes) -> None:
    with pytest.raises(
        UsageError, match=r"'sdft' is registered twice: as 'urn:rlt:.*and as 'mine'"
    ):
        types("sdft", {"$id": "mine"})


def test_an_unknown_name_is_mended(types: DatasetTypes) -> None:
    with pytest.raises(UsageError, match=r"'evironment'; did you mean 'environment'\? \(known: "):
        types["evironment"]


def test_a_schema_that_is_none_is_named(types: DatasetTypes, tmp_path: Path) -> None:
    types("broken", {"type": "nonsense"})
    with pytest.raises(UsageError, match="schema of dataset type 'broken' is not valid"):
        _ = types["broken"].validator


def test_a_schema_never_reaches_for_the_network(types: DatasetTypes, tmp_path: Path) -> None:
    types("remote", {"properties": {"a": {"$ref": "http://192.0.2.1/schema.json"}}})
    (tmp_path / "a").write_bytes(b'{"a": 1}')
    inspection = Inspection(types, "remote", Collected(), frozenset(RULES))
    inspection.run([str(tmp_path / "a")])
    assert inspection.unreadable == [
        "the schema of the dataset type cannot be applied: Unresolvable: http://192.0.2.1/schema.json"
    ]


@pytest.mark.parametrize(
    "parameters",
    ['{"$ref": "http://192.0.2.1/x.json"}', '{"$ref": "#"}', '{"$ref": "#/$defs/none"}',
     '{"pattern": "["}', '{"properties": {"a": {"pattern": "("}}}', '{"allOf": [{"$ref": "#"}]}'],
)  # fmt: skip
def test_odd_parameters_of_a_tool_end_in_no_traceback(
    parameters: str, types: DatasetTypes, tmp_path: Path
) -> None:
    call = '{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":"x"}}}]}'
    tool = f'{{"type":"function","function":{{"name":"f","parameters":{parameters}}}}}'
    row = f'{{"prompt": "a", "completion": [{call}], "tools": [{tool}]}}'
    assert check(types, tmp_path / "a", row.encode()).rules == ["invalid-value"]
