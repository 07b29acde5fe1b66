"""What student and teacher see of a trace of several turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlt
from rlt.rendering import ChatRenderer
from rlt_sdft.options import OPTIONS
from rlt_sdft.tasks import Task, task

CALL = {"type": "function", "function": {"name": "look_up", "arguments": '{"place": "Oslo"}'}}
TRACE = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "minus three"},
    {"role": "assistant", "content": "It is cold."},
]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And Oslo?"}]


@pytest.fixture
def made(tokenizer: Any, tmp_path: Path) -> Any:
    def of(prompt: Any, completion: Any, **options: Any) -> Task:
        states: dict[Any, Any] = {}
        run: Any = SimpleNamespace(
            renderer=ChatRenderer(tokenizer),
            options={name: schema["default"] for name, schema in OPTIONS.items()} | options,
            config=SimpleNamespace(max_tokens=8),
            service=SimpleNamespace(max_context=9999),
            state=lambda kind: states.setdefault(kind, kind()),
            directory=SimpleNamespace(path=tmp_path),
        )
        row = {"prompt": prompt, "completion": completion, "tools": [TOOL]}
        found = task(run, rlt.Row(row, "id", "a.jsonl", 1))
        assert isinstance(found, Task)
        return found

    return of


@pytest.mark.parametrize("mode", ["rewrite", "topk"])
@pytest.mark.parametrize("prompt", ["And Oslo?", MESSAGES])
def test_the_teacher_sees_the_whole_trace(
    made: Any, tokenizer: Any, mode: str, prompt: Any
) -> None:
    question = tokenizer.decode(made(prompt, TRACE, mode=mode).question)
    for part in ("And Oslo?", '"name": "look_up", "arguments"', "minus three", "It is cold."):
        assert part in question, part


@pytest.mark.parametrize("mode", ["rewrite", "topk"])
def test_the_student_sees_all_but_the_turn_it_is_taught(
    made: Any, tokenizer: Any, mode: str
) -> None:
    lesson = made(MESSAGES, TRACE, mode=mode)
    context = tokenizer.decode(lesson.context.tokens)
    assert "minus three" in context
    assert "It is cold." not in context
    assert tokenizer.decode(lesson.answer).startswith("It is cold.")
    learnt = [t for t, w in zip(lesson.context.tokens, lesson.context.weights, strict=True) if w]
    text = tokenizer.decode(learnt)
    assert "look_up" in text
    assert "minus three" not in text


def test_a_rewrite_of_a_single_turn_is_asked_for_by_itself(made: Any, tokenizer: Any) -> None:
    """As in the original loop: the demonstration, and not the question that it answers."""
    question = tokenizer.decode(made(MESSAGES, TRACE[2:]).question)
    assert "DEMO:\nIt is cold." in question
    assert "And Oslo?" not in question
