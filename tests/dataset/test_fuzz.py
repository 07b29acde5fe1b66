"""No input ends in a traceback, and no finding points outside its file."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlt.dataset import open_rows
from rlt.dataset.containers import rows_of
from rlt.dataset.convert import Conversion
from rlt.dataset.inspect import Inspection
from rlt.dataset.rules import RULES
from rlt.errors import UsageError
from rlt.plugins import dataset_types

from .conftest import Collected

TYPES = dataset_types()
MANY = settings(deadline=None, suppress_health_check=list(HealthCheck))

words = st.sampled_from(
    [
        "prompt",
        "completion",
        "chosen",
        "rejected",
        "metadata",
        "tools",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "role",
        "content",
        "user",
        "assistant",
        "tool",
        "type",
        "text",
        "id",
        "messages",
        "conversations",
        "from",
        "value",
        "instruction",
        "output",
        "tool_call_id",
        "system",
        "parameters",
        "properties",
        "$ref",
        "#",
        "input",
        "history",
        "label",
        "human",
    ]
)
leaves = (
    words
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=6)
    | st.just("{}")
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=6),
    max_leaves=30,
)


def message(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": inner},
        optional={
            "tool_calls": st.lists(
                st.fixed_dictionaries(
                    {"function": st.fixed_dictionaries({"name": words, "arguments": inner})},
                    optional={"id": inner},
                ),
                max_size=2,
            ),
            "tool_call_id": inner,
        },
    )


texts = values | st.lists(message(values), max_size=3)
tools = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": words, "parameters": values}),
        }
    ),
    max_size=2,
)
rows = st.fixed_dictionaries(
    {"prompt": texts},
    optional={
        **{"completion": texts, "chosen": texts, "rejected": texts, "tools": tools | values},
        **{"metadata": values, "messages": texts, "label": values},
    },
)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def damaged(draw: st.DrawFn) -> bytes:
    """Make lines of rows, and change some bytes of them."""
    lines = draw(st.lists(rows | values, max_size=4))
    content = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n", b""])).join(map(as_bytes, lines))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        content = (
            content[:at] + draw(st.binary(max_size=3)) + content[at + draw(st.integers(0, 4)) :]
        )
    wrap = draw(st.sampled_from([bytes, bytes, bytes, gzip.compress, zstandard.compress]))
    whole = wrap(content)
    return whole[: len(whole) - draw(st.integers(0, 2))]


files = st.binary(max_size=60) | st.composite(damaged)()


@MANY
@given(files, st.sampled_from(["auto", *TYPES.names()]))
def test_any_bytes_are_checked(content: bytes, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_bytes(content)
        report = Collected()
        inspection = Inspection(TYPES, kind, report, frozenset(RULES))
        code = inspection.run([str(path)])
        assert code == (
            2 if inspection.unreadable else int(any(f.severity == "error" for f in report.findings))
        )
        last = content.count(b"\n") + 1
        for finding in report.findings:
            assert finding.column >= 1
            assert content[:1] in (b"\x1f", b"\x28") or 1 <= finding.line <= last
            assert finding.message.isprintable()


@MANY
@given(files, st.sampled_from(TYPES.names()))
def test_any_bytes_are_opened_or_refused_as_check_says(content: bytes, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_bytes(content)
        report = Collected()
        wanted = frozenset(RULES) - {"duplicate-row"}
        code = Inspection(TYPES, kind, report, wanted).run([str(path)])
        if code:
            with pytest.raises(UsageError, match=r"^[^\n]+$"):
                open_rows(str(path), TYPES[kind])
        else:
            opened = open_rows(str(path), TYPES[kind])
            assert len(list(opened)) == report.files[0].rows
            opened.close()


@MANY
@given(files, st.sampled_from(TYPES.names()))
def test_any_bytes_are_converted_or_rejected_whole(content: bytes, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_bytes(content)
        out, rejects, read = list[bytes](), list[bytes](), list[Any]()
        conversion = Conversion(TYPES[kind], out.append, rejects.append)
        try:
            conversion.run(read.append(raw) or raw for raw in rows_of(str(path)))
        except UsageError:
            return
        assert len(out) + len(rejects) == len(read)
        Path(folder, "out.jsonl").write_bytes(b"".join(out))
        report = Collected()
        code = Inspection(TYPES, kind, report, frozenset(RULES)).run(
            [str(Path(folder, "out.jsonl"))]
        )
        assert code == 0 or not out
