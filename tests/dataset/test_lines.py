"""However the bytes are cut into pieces, the lines, their numbers and their places are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt.dataset import lines as module
from rlt.dataset.duplicates import LineNumbers
from rlt.dataset.lines import batches
from rlt.dataset.syntax import Fault, parse

contents = st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf"]))


@given(contents, st.integers(1, 7))
def test_every_row_is_where_it_says(pieces: list[bytes], size: int) -> None:
    content = b"".join(pieces)
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    found = [
        each
        for batch in batches(chunks)
        for each in zip(batch.lines, batch.numbers, batch.offsets, strict=True)
    ]
    text = content.removeprefix(b"\xef\xbb\xbf")
    expected = [(n, line) for n, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    assert [(number, line) for line, number, _ in found] == expected
    assert all(content[offset:].startswith(line) for line, _, offset in found)


@given(st.lists(st.integers(1, 3), max_size=30))
def test_line_numbers_are_kept_in_order(steps: list[int]) -> None:
    numbers = [sum(steps[: i + 1]) for i in range(len(steps))]
    kept = LineNumbers()
    kept.extend(numbers[:7])
    kept.extend(numbers[7:])
    assert [kept[i] for i in range(len(numbers))] == numbers


@pytest.mark.parametrize("end", [b" " * 90, b"x" * 90])
def test_a_line_beyond_the_limit_is_cut_and_never_taken_for_a_row(
    end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST", 50)
    monkeypatch.setattr("rlt.dataset.syntax.LONGEST", 50)
    content = b'{"prompt": "a", "completion": "b"}' + end + b'\n{"next": 1}'
    (first, second) = batches([content[i : i + 10] for i in range(0, len(content), 10)])
    assert len(first.lines[0]) < 70
    fault = parse(first.lines[0])
    assert isinstance(fault, Fault)
    assert fault.message.startswith("the line is longer than")
    assert second.lines == [b'{"next": 1}']
    assert second.offsets == [content.index(b'{"next"')]
