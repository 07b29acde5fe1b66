"""A rewrite is learnt only when it says what the demonstration says."""

from __future__ import annotations

import pytest

from rlt_sdft.checks import rejection

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
REORDERED = '<tool_call>{"arguments": {"b": 2, "a": 1}, "name": "add"}</tool_call>'
ACTION = 'Action: add\nAction Input: {"a": 1}'


@pytest.mark.parametrize(
    ("demonstration", "rewrite", "reason"),
    [
        ("It is 4.", "So it is 4.", None),
        ("It is 4.", "  \n", "empty"),
        ("It is 4.", "DEMO: it is 4", "leaked"),
        ("It is 4.", "As in the reference answer, 4", "leaked"),
        ("The reference answer is 4", "The reference answer is 4", None),
        ("It is 4.", "I'm sorry, but I cannot help. 4", "refused"),
        ("It is 4.", "I\u2019m sorry, no. 4", "refused"),
        ("I cannot do that.", "I can't do that.", None),
        ("#### 1,200", "That makes 1200.", None),
        ("#### 198", "80 plus 18 is 98", "number"),
        ("#### 18", "eighteen", "number"),
        ("She pays $3.50.", "3.5 dollars", None),
        ("In 1990 it rained.", "It rained in 1991", None),
        (CALL, REORDERED, None),
        (CALL, "The sum is 3.", "tool-call"),
        (CALL, CALL.replace("2", "5"), "tool-call"),
        ("The sum is 3", CALL + " 3", "tool-call"),
        (ACTION, ACTION, None),
        (ACTION, ACTION.replace("add", "sub"), "tool-call"),
    ],
)
def test_a_rewrite_is_judged_by_its_first_fault(
    demonstration: str, rewrite: str, reason: str | None
) -> None:
    assert rejection(demonstration, rewrite, finished=True) == reason


def test_a_rewrite_that_never_ended_is_unfinished() -> None:
    assert rejection("It is 4.", "So it is 4", finished=False) == "unfinished"
