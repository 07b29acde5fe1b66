"""Train the judge: cross-entropy on the label, each pair in both orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import rlt
from rlt.rendering import Example, Unrenderable, datums
from rlt_reward_model import judge

PLUGIN = rlt.PluginInfo(
    summary="A reward model: learns to say which of two answers is better.",
    dataset_type="dpo",
    defaults={"lr": 1e-4, "prompts_per_step": 4},
)


@rlt.hookimpl
def make_datums(run: rlt.Run, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Make two examples of each pair: the better answer as A, and as B."""
    examples: list[Example] = []
    outcomes = []
    for row in rows:
        made = _examples(run, row)
        examples += made
        outcomes.append(rlt.RowOutcome(row, len(made), None if made else "unrenderable"))
    return rlt.Batch(datums(examples), outcomes)


@rlt.hookimpl
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Measure how often, and how surely, the judge prefers the better answer."""
    client = await run.sampler()
    texts = [_texts(run, rows[index]) for index in range(len(rows))]
    sure = await asyncio.gather(*(judge.preference(run, client, *each) for each in texts))
    return {
        "loss": 1 - sum(sure) / len(sure),
        "accuracy": sum((p > 0.5) + (p == 0.5) / 2 for p in sure) / len(sure),
        "n_rows": len(rows),
    }


def _examples(run: rlt.Run, row: rlt.Row) -> list[Example]:
    try:
        question, chosen, rejected = _texts(run, row)
        asked = [
            judge.prompt(run, question, chosen, rejected),
            judge.prompt(run, question, rejected, chosen),
        ]
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return []
    pairs = zip(asked, judge.LABELS, strict=True)
    return [Example.of(ids, judge.label(run, name)) for ids, name in pairs if run.fits(ids)]


def _texts(run: rlt.Run, row: rlt.Row) -> tuple[str, str, str]:
    """Return question, better answer, worse answer."""
    chosen = run.renderer.completion_text(row.data["chosen"])
    rejected = run.renderer.completion_text(row.data["rejected"])
    return judge.as_text(row.data["prompt"]), chosen, rejected
