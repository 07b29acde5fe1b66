"""The `rewrite` mode: sample the teacher's version of a demonstration, check it, learn it.

The last assistant turn of a row is rewritten; earlier assistant turns of a trace are learnt as
demonstrated. The student sees the row's own prompt and then, id for id, what the teacher sampled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rlt
from rlt.rendering import Example, Unrenderable, as_messages, datums
from rlt_sdft.checks import rejection

if TYPE_CHECKING:
    from tinker import SampledSequence

TEACHER = (
    "You are the teacher. The expert demonstration is below. Rewrite it in your own on-policy "
    "style. Keep the same facts and tools.\n\nDEMO:\n"
)
"""What the teacher reads before the demonstration."""


@dataclass(frozen=True, slots=True)
class Task:
    """A row, ready to be rewritten."""

    row: rlt.Row
    context: Example
    """What comes before the turn to learn, as the student sees it."""
    answer: Sequence[int]
    """The demonstrated turn's token ids."""
    text: str
    """The demonstrated turn as text."""
    question: Sequence[int]
    """What the teacher is asked, as token ids."""


@dataclass(frozen=True, slots=True)
class Rewrites:
    """What became of one row."""

    row: rlt.Row
    examples: Sequence[Example] = ()
    rejected: Sequence[str] = ()
    """The reason of each rejected rewrite."""
    accepted: int = 0
    truncated: int = 0
    """How many rewrites were cut at `--max-tokens`."""
    dropped: str | None = None
    samples: Sequence[rlt.JSON] = ()

    @property
    def outcome(self) -> rlt.RowOutcome:
        """This as the row ledger's line."""
        return rlt.RowOutcome(self.row, len(self.examples), self.dropped, bool(self.truncated))


async def batch(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Return the step's training data."""
    done = await asyncio.gather(*(_rewrite(run, step, row) for row in rows))
    return rlt.Batch(
        datums=datums([x for each in done for x in each.examples], run.options["reduction"]),
        outcomes=[each.outcome for each in done],
        metrics=_metrics(done),
        samples=[sample for each in done for sample in each.samples],
    )


async def _rewrite(run: rlt.Run, step: int, row: rlt.Row) -> Rewrites:
    try:
        task = _task(run, row)
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return Rewrites(row, dropped="unrenderable")
    if not _fits(run, task):
        run.log.warning("row dropped", row=row.where, reason="longer than the model's context")
        return Rewrites(row, dropped="too-long")
    sequences = await run.sample(
        task.question,
        seed=run.sampling_seed(step, row),
        samples=run.config.group_size,
        sampler=await run.sampler(run.options["teacher"]),
    )
    return _judged(run, task, sequences)


def _task(run: rlt.Run, row: rlt.Row) -> Task:
    """Render what the student and the teacher see of a row.

    :raises Unrenderable: when the model's template cannot.
    """
    prompt, completion, tools = row.data["prompt"], row.data["completion"], row.data.get("tools")
    context, answer = run.renderer.split(prompt, completion, tools)
    if not answer:
        raise Unrenderable("the completion has no assistant turn")
    turns = [t for t in as_messages(completion, "assistant") if t["role"] == "assistant"]
    text = run.renderer.completion_text(completion if isinstance(completion, str) else turns[-1:])
    return Task(row, context, answer, text, run.renderer.prompt(TEACHER + text, tools))


def _fits(run: rlt.Run, task: Task) -> bool:
    longest = max(len(task.answer), run.config.max_tokens)
    context = len(task.context.tokens) + longest <= run.service.max_context
    return context and run.fits(task.question)


def _judged(run: rlt.Run, task: Task, sequences: Sequence[SampledSequence]) -> Rewrites:
    examples, rejected, samples = [], [], []
    for sequence in sequences:
        text = run.renderer.text(sequence.tokens)
        finished = sequence.stop_reason == "stop"
        fault = rejection(task.text, text, finished=finished)
        reason = fault if run.options["checks"] == "on" else None
        if reason:
            rejected.append(reason)
        else:
            examples.append(task.context.then(sequence.tokens, 1.0))
        samples.append({**_sample(task, text, sequence), "fault": fault, "rejected": bool(reason)})
    accepted = len(examples)
    if rejected and run.options["fallback"] == "demo":
        # one demonstration that counts as often as it is needed, instead of copies of it
        examples.append(task.context.then(task.answer, 1.0).repeated(len(rejected)))
    return Rewrites(
        task.row,
        examples,
        rejected,
        accepted,
        truncated=sum(sequence.stop_reason == "length" for sequence in sequences),
        dropped=None if examples else f"rejected:{rejected[0]}",
        samples=samples,
    )


def _sample(task: Task, text: str, sequence: SampledSequence) -> rlt.JSON:
    return {
        "row": task.row.id,
        "line": task.row.line,
        "demonstration": task.text,
        "rewrite": text,
        "stop_reason": sequence.stop_reason,
        "tokens": list(sequence.tokens),
    }


def _metrics(done: Sequence[Rewrites]) -> dict[str, float]:
    reasons = Counter(reason for each in done for reason in each.rejected)
    accepted = sum(each.accepted for each in done)
    return {
        "n_rewrites": accepted + reasons.total(),
        "n_accepted": accepted,
        **{f"rejected/{reason}": count for reason, count in sorted(reasons.items())},
        "n_truncated": sum(each.truncated for each in done),
    }
