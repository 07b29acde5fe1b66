"""`mode=topk`, `reverse` and `sampled`: the student answers, the teacher says what it would have.

The student samples its own answer y to its own prompt. The teacher, shown the demonstration too,
reads the same tokens; what it thinks at each of them is the lesson (Shenfeld et al. 2026):

- `topk`: forward KL. Its K likeliest tokens, renormalised to p, are targets of shape (N, K) with
  weights p: sum_k -p_k log q_k is KL(p || q) up to the entropy of p, which is a constant.
- `reverse`: KL(q || p) on the same K tokens, q renormalised over them; a custom loss.
- `sampled`: the advantage of token t is log p(y_t) - log q(y_t), by importance sampling: an
  estimate of the gradient of KL(q || p) from the sample alone.

The first `skip` tokens are left out, since a teacher that was shown an example opens with
"Following the example" and the student would learn that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rlt
from rlt.rendering import mean_nll
from rlt_sdft import targets
from rlt_sdft.tasks import Task, task
from rlt_sdft.teacher import teacher
from rlt_sdft.watch import Watch

if TYPE_CHECKING:
    import numpy as np
    import tinker


@dataclass(frozen=True, slots=True)
class Lesson:
    """One answer of the student, with what the teacher thinks of its tokens (n of them)."""

    made: Task
    tokens: Sequence[int]
    student: np.ndarray
    """Log-probabilities of the answer's tokens, (n,)."""
    teacher: np.ndarray
    """The same by the teacher, (n,)."""
    top_tokens: np.ndarray
    """The teacher's likeliest tokens, (n, K); empty for `sampled`."""
    top_logprobs: np.ndarray
    truncated: bool

    def trained(self, skip: int) -> int:
        """Return how many of its tokens are in the loss."""
        return max(0, len(self.tokens) - skip)


async def batch(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Return the step's training data."""
    tasks = [task(run, row) for row in rows]
    usable = [each for each in tasks if isinstance(each, Task)]
    watch = run.state(Watch)
    reading = asyncio.ensure_future(watch.demonstrations(run, step))
    taught = await asyncio.gather(*(_teach(run, step, each) for each in usable))
    lessons = {id(made): found for made, found in zip(usable, taught, strict=True)}
    skip = run.options["skip"]
    kept = [x for found in taught for x in found if x.trained(skip)]
    metrics = _metrics(kept, skip, sum(x.truncated for found in taught for x in found))
    metrics |= watch.reading(run, await reading)
    return rlt.Batch(
        datums=targets.datums(kept, run.options),
        outcomes=[
            _outcome(row, each, lessons.get(id(each), []), skip)
            for row, each in zip(rows, tasks, strict=True)
        ],
        metrics=metrics,
        samples=[_sample(run, x) for found in taught for x in found],
    )


def loss(run: rlt.Run, batch: rlt.Batch) -> rlt.Loss:
    """Return the mode's loss. `loss` in the metrics is the mean KL in nats a token."""
    mode = run.options["mode"]
    if mode == "topk":
        entropy = batch.metrics["teacher_entropy"]
        return rlt.Loss("cross_entropy", read=lambda out, data: mean_nll(out, data)[0] - entropy)
    if mode == "reverse":
        return rlt.Loss(custom=targets.reverse_kl(len(batch.datums), run.options["reduction"]))
    return rlt.Loss("importance_sampling")


async def _teach(run: rlt.Run, step: int, made: Task) -> list[Lesson]:
    sequences = await run.sample(
        made.context.tokens, seed=run.sampling_seed(step, made.row), samples=run.config.group_size
    )
    reader = await teacher(run, step)
    return list(await asyncio.gather(*(_read(run, reader, made, each) for each in sequences)))


async def _read(
    run: rlt.Run, reader: tinker.SamplingClient, made: Task, sequence: tinker.SampledSequence
) -> Lesson:
    """Let the teacher read an answer behind its own question."""
    import numpy as np  # noqa: PLC0415
    from tinker import ModelInput, SamplingParams  # noqa: PLC0415 - loaded with the service

    n, k = len(sequence.tokens), 0 if run.options["mode"] == "sampled" else run.options["k"]
    if not n:  # nothing to read, and the last 0 tokens would be all of them
        none = np.zeros(0)
        return Lesson(
            made, [], none, none, np.zeros((0, k), int), np.zeros((0, k)), truncated=False
        )
    request = reader.sample(
        ModelInput.from_ints([*made.question, *sequence.tokens]),
        1,
        SamplingParams(max_tokens=1, seed=0),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=k,
        prompt_logprobs_last_n=n,
    )
    answer = await run.answered(request, "the teacher's reading")
    top: Any = answer.topk_prompt_logprobs_np
    empty = np.zeros((n, 0))
    return Lesson(
        made,
        sequence.tokens,
        np.asarray(sequence.logprobs, np.float64),
        np.asarray(answer.prompt_logprobs_np[-n:], np.float64),
        top.token_ids[-n:] if k else empty,
        top.logprobs[-n:].astype(np.float64) if k else empty,
        sequence.stop_reason == "length",
    )


def _outcome(row: rlt.Row, made: Task | str, found: Sequence[Lesson], skip: int) -> rlt.RowOutcome:
    if isinstance(made, str):
        return rlt.RowOutcome(row, 0, made)
    count = sum(bool(lesson.trained(skip)) for lesson in found)
    dropped = None if count else "shorter-than-skip"
    return rlt.RowOutcome(row, count, dropped, any(lesson.truncated for lesson in found))


def _metrics(kept: Sequence[Lesson], skip: int, truncated: int) -> dict[str, float]:
    counts: dict[str, float] = {
        "n_truncated": truncated,
        "n_tokens": sum(x.trained(skip) for x in kept),
    }
    if not kept:
        return counts
    import numpy as np  # noqa: PLC0415

    student = np.concatenate([x.student[skip:] for x in kept])
    teaching = np.concatenate([x.teacher[skip:] for x in kept])
    gap = float((teaching - student).mean())
    means = {"student_nll": float(-student.mean()), "teacher_gap": gap}
    if kept[0].top_logprobs.size:
        return {**counts, **means, "teacher_entropy": targets.entropy(kept, skip)}
    return {**counts, **means, "loss": -gap}  # mode=sampled: an estimate of KL(q || p)


def _sample(run: rlt.Run, lesson: Lesson) -> rlt.JSON:
    return {
        "row": lesson.made.row.id,
        "line": lesson.made.row.line,
        "demonstration": lesson.made.text,
        "answer": run.renderer.text(lesson.tokens),
        "stop_reason": "length" if lesson.truncated else "stop",
        "tokens": list(lesson.tokens),
    }
