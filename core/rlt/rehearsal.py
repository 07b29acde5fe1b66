"""`--dry-run`: what can be known of a run before anything is started, written or paid for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rlt.dataset import Order
from rlt.dataset.tokens import Model, TokenCount
from rlt.dataset.types import DatasetType
from rlt.rendering import Thinking, Unrenderable
from rlt.run import Run
from rlt.service import EnginePlan
from rlt.types import Row

_MOST_NAMED = 5
"""Rows that are warned of one by one."""


def rehearse(run: Run, plan: EnginePlan, first: int) -> list[tuple[str, str]]:
    """Return (name, text) lines about the rows that a run reaches from step `first` on.

    Rows that the model's template or context refuses are warned of, since the run would drop them.

    :raises UsageError: when the model's tokenizer cannot be had.
    """
    config, rows = run.config, run.train_rows
    order, steps = Order(len(rows), config.seed), max(0, config.steps - first)
    begin = first * config.prompts_per_step
    count = min(steps * config.prompts_per_step, len(rows))
    told = f"{len(rows)} read; {steps} steps of {config.prompts_per_step} reach {count} of them"
    reached = [rows[order.index(position)] for position in range(begin, begin + count)]
    lines = [("directory", f"{run.directory.path} (not written)"), ("rows", told)]
    kind = next((t for t in run.dataset_types if t.name == run.algorithm.dataset_type), None)
    if reached and kind and kind.prompt:
        lines += _rendered(run, plan, kind, reached)
    return lines


def _rendered(
    run: Run, plan: EnginePlan, kind: DatasetType, reached: Sequence[Row]
) -> list[tuple[str, str]]:
    local = plan.local_model
    model = Model(
        str(local.directory) if local else plan.model, cast("Thinking", run.config.thinking)
    )
    tokens, unfit = TokenCount(model), 0
    for row in reached:
        problems = list(tokens(row.data, kind))
        unfit += bool(problems)
        if problems and unfit <= _MOST_NAMED:
            run.log.warning("the run would drop a row", row=row.where, reason=problems[0].message)
    counted = tokens.as_json()
    lines = [
        ("unfit", f"{unfit} of these rows are refused by the model's template or context"),
        (
            "tokens",
            f"{counted['total']:,} in these rows, {counted['trained']:,} of completions; the "
            f"longest row has {counted['longest']:,} of at most {counted['limit']:,}",
        ),
    ]
    shown = _prompt(model, kind, reached)
    return lines + ([("prompt", shown)] if shown else [])


def _prompt(model: Model, kind: DatasetType, reached: Sequence[Row]) -> str:
    """Return the first prompt that can be rendered, as the model sees it."""
    assert kind.prompt
    for row in reached:
        try:
            ids = model.renderer.prompt(row.data[kind.prompt], row.data.get("tools"))
        except Unrenderable:
            continue
        return model.renderer.text(ids)
    return ""
