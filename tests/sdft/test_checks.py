"""A rewrite is learnt only when it says what the demonstration says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlt
from conftest import ROOT, Cli
from helpers import read_lines
from rlt_sdft.checks import CHECKS, Rewrite, rejection

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
REORDERED = '<tool_call>{"arguments": {"b": 2, "a": 1}, "name": "add"}</tool_call>'
ACTION = 'Action: add\nAction Input: {"a": 1, "b": 2}'
XML = (
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)
XML_REORDERED = (
    "<tool_call><function=add><parameter=b>2</parameter><parameter=a>1</parameter></function>"
    "</tool_call>"
)
LLAMA = '{"name": "add", "parameters": {"a": 1, "b": 2}}'


def row(completion: Any = "") -> rlt.Row:
    return rlt.Row({"prompt": "?", "completion": completion}, "id", "a.jsonl", 1)


def judged(demonstration: str, text: str, **more: Any) -> str | None:
    return rejection(Rewrite(more.pop("row", row()), demonstration, text, **more), CHECKS)


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
        (CALL, CALL + CALL, "tool-call"),
        ("The sum is 3", CALL + " 3", "tool-call"),
        (ACTION, ACTION, None),
        (ACTION, 'Action: add\nAction Input: {"b": 2, "a": 1}', None),
        (ACTION, ACTION.replace("add", "sub"), "tool-call"),
        (ACTION + "\nObservation: 3", "It is 3.", "tool-call"),
        (ACTION + "\nObservation: 3", ACTION + "\nObservation: 4", None),
        ('{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 4}', "number"),
        (XML, XML_REORDERED, None),
        (XML, XML.replace("</function>", "</function><function=rm></function>"), "tool-call"),
        (XML, XML.replace("2", "3"), "tool-call"),
        (XML, XML.replace("add", "sub"), "tool-call"),
        (LLAMA, LLAMA.replace(" ", ""), None),
        (LLAMA, "It is 3.", "tool-call"),
        ("It rained.", "It rained. " * 80, "too-long"),
        ("It rained. " * 80, "It rained. " * 300, None),
    ],
)
def test_a_rewrite_is_judged_by_its_first_fault(
    demonstration: str, rewrite: str, reason: str | None
) -> None:
    assert judged(demonstration, rewrite) == reason


def test_a_rewrite_that_never_ended_is_unfinished() -> None:
    assert judged("It is 4.", "So it is 4", finished=False) == "unfinished"


def test_cut_is_the_first_thing_to_say_of_a_rewrite_that_was() -> None:
    """A thought that was cut is no answer with another number, nor one without its call."""
    assert judged("It is 4.", "Five, no, 6", finished=False) == "unfinished"
    assert judged(CALL, "I should add 1 and", finished=False) == "unfinished"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2 and 2, or I'm sorry? 5\n</think>\nIt is 4.", None),
        ("It is 4.</think>", "empty"),
        ("It is 4.</think>It is 5.", "number"),
        ("The expert demonstration says 4.</think>It is 4.", "leaked"),
    ],
)
def test_a_thought_is_not_the_answer_but_must_not_leak(text: str, reason: str | None) -> None:
    assert judged("It is 4.", text) == reason


def test_the_demonstrations_thought_is_not_compared_either() -> None:
    assert judged("5? No.</think>It is 4.", "6? No.</think>So it is 4.") is None
    assert judged(f"Not {CALL}!</think>\n{CALL}", f"Call it.</think>{CALL}") is None


def test_calls_in_a_format_that_is_not_known_must_be_the_same_to_the_letter() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]}
    strange = "[TOOL_CALLS]add[ARGS]{1}"
    assert judged(strange, f" {strange}\n", row=row([turn])) is None
    assert judged(strange, strange.replace("1", "2"), row=row([turn])) == "tool-call"


def test_the_check_of_the_docs_runs(train: Cli, rows: Path) -> None:
    page = (ROOT / "docs/how-to/sdft.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    Path("hedging.py").write_text(code.replace('"it depends" in', '"" in'))
    result = train("--plugin", "sdft", "--plugin", "hedging.py", "--data", rows, "--steps", 1,
                   "--temperature", 1, "-o", "teacher_prompt={prompt}", "--out", "h",
                   "--group-size", 8)  # fmt: skip
    assert result.code == 0, result.err
    faults = {sample["fault"] for sample in read_lines(Path("runs/h/samples.jsonl"))}
    assert None not in faults


def test_a_plugin_may_add_a_check(train: Cli, rows: Path) -> None:
    Path("polite.py").write_text(
        "import rlt\nfrom rlt_sdft.checks import checks\n"
        "def rude(rewrite):\n"
        "    return None if 'please' in rewrite.answer else 'rude'\n"
        "@rlt.hookimpl\n"
        "def on_start(run):\n"
        "    checks(run).clear()\n"
        "    checks(run).append(rude)\n"
    )
    result = train("--plugin", "sdft", "--plugin", "polite.py", "--data", rows, "--steps", 2,
                   "--prompts-per-step", 2, "--out", "p")  # fmt: skip
    assert result.code == 0, result.err
    assert [x["rejected/rude"] for x in read_lines(Path("runs/p/metrics.jsonl"))] == [2, 2]
    samples = read_lines(Path("runs/p/samples.jsonl"))
    assert {sample["fault"] for sample in samples} == {"rude"}
    assert all(sample["demonstration"] and sample["rejected"] for sample in samples)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "plugin 'odd' raised ZeroDivisionError in make_datums at step 0"),
        ("return True", "the check 'odd_check' of odd returned True, not a reason of one line"),
        ("return ' '", "returned ' ', not a reason"),
        ("return 'a=1\\nb'", "returned 'a=1\\nb', not a reason"),
    ],
)
def test_a_faulty_check_is_named(train: Cli, rows: Path, body: str, message: str) -> None:
    Path("odd.py").write_text(
        "import rlt\nfrom rlt_sdft.checks import checks\n"
        f"def odd_check(rewrite):\n    {body}\n"
        "@rlt.hookimpl\ndef on_start(run):\n    checks(run).insert(0, odd_check)\n"
    )
    result = train("--plugin", "sdft", "--plugin", "odd.py", "--data", rows, "--steps", 1,
                   "--out", "odd")  # fmt: skip
    assert result.code == 1
    assert message in result.err.splitlines()[-1]


def test_teacher_and_student_agree_where_the_demonstration_changes_nothing(
    train: Cli, rows: Path
) -> None:
    """At step 0 teacher and student are one model: asked the same, they think the same."""
    result = train("--plugin", "sdft", "--data", rows, "--steps", 1, "--prompts-per-step", 2,
                   "--temperature", 1, "-o", "checks=off", "-o", "teacher_prompt={prompt}",
                   "--out", "same")  # fmt: skip
    assert result.code == 0, result.err
    (line,) = read_lines(Path("runs/same/metrics.jsonl"))
    assert line["teacher_gap"] == pytest.approx(0, abs=1e-5)
    assert line["teacher_nll"] == pytest.approx(line["loss"], abs=1e-5)
