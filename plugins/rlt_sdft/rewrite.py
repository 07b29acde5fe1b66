"""`mode=rewrite`: sample the teacher's version of a demonstration, check it, learn it.

The student learns, id for id, what the teacher sampled. A rewrite that fails a check is not learnt:
the demonstration takes its place, or nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rlt
from rlt.rendering import Example, datums, mean_nll
from rlt_sdft.checks import Rewrite, checks, rejection
from rlt_sdft.tasks import Task, task
from rlt_sdft.teacher import teacher
from rlt_sdft.watch import Watch

if TYPE_CHECKING:
    from tinker import Datum, SampledSequence


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
    logprobs: Sequence[float] = ()
    """The teacher's, of every token it sampled."""
    taught: Sequence[Sequence[float]] = ()
    """Those of each example: empty for a demonstration, which the teacher did not sample."""

    @property
    def outcome(self) -> rlt.RowOutcome:
        """This as the row ledger's line."""
        return rlt.RowOutcome(self.row, len(self.examples), self.dropped, bool(self.truncated))


@dataclass(frozen=True, slots=True)
class RewriteBatch(rlt.Batch):
    """A step's datums, with how likely the teacher found each of them."""

    taught: Sequence[Sequence[float]] = ()


async def batch(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Return the step's training data."""
    tasks = [task(run, row) for row in rows]
    watch = run.state(Watch)
    reading = asyncio.ensure_future(watch.demonstrations(run, step))
    pairs = zip(rows, tasks, strict=True)
    done = await asyncio.gather(*(_rewrite(run, step, row, each) for row, each in pairs))
    samples = [sample for each in done for sample in each.samples]
    watch.rewrites(run, samples)
    metrics = _metrics(done)
    metrics |= watch.reading(run, await reading)
    return RewriteBatch(
        datums=datums([x for each in done for x in each.examples], run.options["reduction"]),
        outcomes=[each.outcome for each in done],
        metrics=metrics,
        samples=samples,
        taught=[logprobs for each in done for logprobs in each.taught],
    )


def loss(batch: RewriteBatch) -> rlt.Loss:
    """Return cross-entropy, which reads the gap between teacher and student off its answer."""

    def read(outputs: Sequence[Any], data: Sequence[Datum]) -> dict[str, float]:
        numbers = {"loss": mean_nll(outputs, data)[0]}
        gaps = [
            taught - student
            for output, logprobs in zip(outputs, batch.taught, strict=True)
            if logprobs
            for taught, student in zip(logprobs, _last(output, len(logprobs)), strict=True)
        ]
        return numbers | ({"teacher_gap": sum(gaps) / len(gaps)} if gaps else {})

    return rlt.Loss("cross_entropy", read=read)


def _last(output: Any, count: int) -> list[float]:
    logprobs: list[float] = output["logprobs"].to_numpy()[-count:].tolist()
    return logprobs


async def _rewrite(run: rlt.Run, step: int, row: rlt.Row, made: Task | str) -> Rewrites:
    if isinstance(made, str):
        return Rewrites(row, dropped=made)
    sequences = await run.sample(
        made.question,
        seed=run.sampling_seed(step, row),
        samples=run.config.group_size,
        sampler=await teacher(run, step),
    )
    return _judged(run, made, sequences)


def _judged(run: rlt.Run, made: Task, sequences: Sequence[SampledSequence]) -> Rewrites:
    examples, rejected, samples, taught = [], [], [], []
    for sequence in sequences:
        text = run.renderer.text(sequence.tokens)
        rewrite = Rewrite(made.row, made.text, text, sequence.stop_reason == "stop")
        fault = rejection(rewrite, checks(run))
        reason = fault if run.options["checks"] == "on" else None
        if reason:
            rejected.append(reason)
        else:
            examples.append(made.context.then(sequence.tokens, 1.0))
            taught.append(list(sequence.logprobs or ()))
        samples.append(_sample(made, text, sequence, fault, rejected=bool(reason)))
    accepted = len(examples)
    if rejected and run.options["fallback"] == "demo":
        # one demonstration that counts as often as it is needed, instead of copies of it
        examples.append(made.demonstration.repeated(len(rejected)))
        taught.append([])
    return Rewrites(
        made.row,
        examples,
        rejected,
        accepted,
        truncated=sum(sequence.stop_reason == "length" for sequence in sequences),
        dropped=None if examples else f"rejected:{rejected[0]}",
        samples=samples,
        logprobs=[x for sequence in sequences for x in sequence.logprobs or ()],
        taught=taught,
    )


def _sample(
    made: Task, text: str, sequence: SampledSequence, fault: str | None, *, rejected: bool
) -> rlt.JSON:
    return {
        "row": made.row.id,
        "line": made.row.line,
        "demonstration": made.text,
        "rewrite": text,
        "fault": fault,
        "rejected": rejected,
        "stop_reason": sequence.stop_reason,
        "tokens": list(sequence.tokens),
    }


def _metrics(done: Sequence[Rewrites]) -> dict[str, float]:
    reasons = Counter(reason for each in done for reason in each.rejected)
    accepted = sum(each.accepted for each in done)
    logprobs = [x for each in done for x in each.logprobs]
    return {
        "n_rewrites": accepted + reasons.total(),
        "n_accepted": accepted,
        **{f"rejected/{reason}": count for reason, count in sorted(reasons.items())},
        "n_truncated": sum(each.truncated for each in done),
        "n_tokens": sum(sum(map(bool, x.weights)) for each in done for x in each.examples),
        **({"teacher_nll": -sum(logprobs) / len(logprobs)} if logprobs else {}),
    }
