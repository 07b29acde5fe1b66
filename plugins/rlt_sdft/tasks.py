"""What the student and the teacher see of a row.

The last assistant turn of a row is the one that is taught; earlier assistant turns of a trace are
learnt as demonstrated. The student sees the row's own prompt, the teacher the demonstration too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rlt
from rlt.rendering import Example, Unrenderable, as_messages
from rlt_sdft.options import teacher_prompt, text_of


@dataclass(frozen=True, slots=True)
class Task:
    """A row, ready to be taught."""

    row: rlt.Row
    context: Example
    """What comes before the turn to learn, as the student sees it."""
    answer: Sequence[int]
    """The demonstrated turn's token ids."""
    text: str
    """The demonstrated turn as text."""
    question: Sequence[int]
    """What the teacher is asked, as token ids."""

    @property
    def demonstration(self) -> Example:
        """The demonstrated conversation."""
        return self.context.then(self.answer, 1.0)


def task(run: rlt.Run, row: rlt.Row) -> Task | str:
    """Render a row, or return why it cannot be used."""
    try:
        made = _task(run, row)
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return "unrenderable"
    longest = max(len(made.answer), run.config.max_tokens)
    fits = len(made.context.tokens) + longest <= run.service.max_context
    if not (fits and len(made.question) + longest <= run.service.max_context):
        room = run.service.max_context
        reason = f"with --max-tokens {run.config.max_tokens} it exceeds the context of {room}"
        run.log.warning("row dropped", row=row.where, reason=reason)
        return "too-long"
    return made


def demonstration(run: rlt.Run, row: rlt.Row) -> Example | None:
    """Return a row's demonstrated conversation, or None when the model cannot take it."""
    try:
        found = _task(run, row).demonstration
    except Unrenderable:
        return None
    return found if len(found.tokens) <= run.service.max_context else None


def _task(run: rlt.Run, row: rlt.Row) -> Task:
    prompt = _with_system(row.data["prompt"], text_of(run, "system"))
    completion, tools = row.data["completion"], row.data.get("tools")
    context, answer = run.renderer.split(prompt, completion, tools)
    if not answer:
        raise Unrenderable("the completion has no assistant turn")
    turns = [t for t in as_messages(completion, "assistant") if t["role"] == "assistant"]
    text = run.renderer.completion_text(completion if isinstance(completion, str) else turns[-1:])
    asked = _asked(run, prompt, completion, text)
    question = run.renderer.prompt(_with_system(asked, text_of(run, "teacher_system")), tools)
    return Task(row, context, answer, text, question)


def _asked(run: rlt.Run, prompt: Any, completion: Any, text: str) -> Any:
    """Return the teacher's prompt, in the place of the row's last question if it repeats that.

    A template that does not repeat the question stands alone, but for a trace of several turns:
    what led to the demonstrated turn comes before it then.
    """
    template = teacher_prompt(run)
    before = as_messages(completion, "assistant")[: _last_turn(completion)]
    if "{prompt}" not in template:
        alone = fill(template, prompt="", completion=text)
        if not before:
            return alone
        return [*as_messages(prompt, "user"), *before, {"role": "user", "content": alone}]
    if isinstance(prompt, str) and isinstance(completion, str):
        return fill(template, prompt=prompt, completion=text)
    messages = as_messages(prompt, "user")
    shown = text if isinstance(completion, str) else _trace(run, completion)
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=None)
    if last is None:
        raise Unrenderable("the prompt has no user turn for the teacher's prompt to stand in")
    question = fill(template, prompt=messages[last]["content"], completion=shown)
    asked = {**messages[last], "content": question}
    return [*messages[:last], asked, *messages[last + 1 :], *before]


def _trace(run: rlt.Run, completion: Sequence[rlt.JSON]) -> str:
    """Return a whole trace as text: the teacher is shown its calls, results and answer."""
    return "\n".join(
        run.renderer.completion_text([turn]) if turn["role"] == "assistant" else turn["content"]
        for turn in as_messages(completion, "assistant")
    )


def _last_turn(completion: Any) -> int:
    """Return the place of the last assistant turn in a completion."""
    if isinstance(completion, str):
        return 0
    return max(i for i, turn in enumerate(completion) if turn["role"] == "assistant")


def _with_system(prompt: Any, system: str) -> Any:
    if not system:
        return prompt
    messages = as_messages(prompt, "user")
    if messages and messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def fill(template: str, **values: str) -> str:
    """Put values into a template's {places}, once: braces in the values stay what they are."""
    places = "|".join(values)
    return re.sub(rf"\{{({places})\}}", lambda match: values[match[1]], template)
