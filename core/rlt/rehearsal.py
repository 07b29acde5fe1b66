"""`--dry-run`: what can be known of a run before anything is started, written or paid for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rlt import contract
from rlt.dataset import Order
from rlt.dataset.tokens import Model, TokenCount
from rlt.dataset.types import DatasetType
from rlt.errors import UsageError
from rlt.rendering import Thinking, Unrenderable
from rlt.run import Run
from rlt.service import EnginePlan
from rlt.types import Row

_MOST_NAMED = 5
"""Rows that are warned of one by one."""


def rehearse(run: Run, plan: EnginePlan, first: int) -> list[tuple[str, str]]:
    """Return (name, text) lines about the rows that a run reaches from step `first` on.

    Rows that the model's template or context refuses are warned of, since the run would drop them.
    Nothing is said of what a plugin makes of its rows.

    :raises UsageError: when the model's tokenizer cannot be had, or has no room for a prompt.
    """
    config, rows = run.config, run.train_rows
    order, steps = Order(len(rows), config.seed), max(0, config.steps - first)
    begin = first * config.prompts_per_step
    count = min(steps * config.prompts_per_step, 2 * len(rows))  # two epochs reach every row
    indices = dict.fromkeys(order.index(position) for position in range(begin, begin + count))
    told = (
        f"{len(rows)} read; {steps} steps of {config.prompts_per_step} reach {len(indices)} of them"
    )
    lines = [("directory", f"{run.directory.path} (not written)"), ("rows", told)]
    kind = next((t for t in run.dataset_types if t.name == run.algorithm.dataset_type), None)
    if indices and kind and kind.prompt:
        lines += _rendered(run, plan, kind, [rows[index] for index in indices])
    return lines


def _rendered(
    run: Run, plan: EnginePlan, kind: DatasetType, reached: Sequence[Row]
) -> list[tuple[str, str]]:
    local, config = plan.local_model, run.config
    folder = str(local.directory) if local else plan.model
    model = Model(folder, cast("Thinking", config.thinking))
    contract.require_room(config.max_tokens, model.limit, plan.model)
    tokens, unfit = TokenCount(model), 0
    for row in reached:
        problems = list(tokens(row.data, kind))
        unfit += bool(problems)
        if problems and unfit <= _MOST_NAMED:
            run.log.warning("the run would drop a row", row=row.where, reason=problems[0].message)
    if unfit == len(reached):
        raise UsageError("the model's template or context refuses every row that the run reaches")
    counted = tokens.as_json()
    prompts = list(filter(None, (_prompt(model, kind, row) for row in reached)))
    narrow = sum(len(prompt) + config.max_tokens > model.limit for prompt in prompts)
    lines = [
        ("unfit", f"{unfit} of these rows are refused by the model's template or context"),
        ("narrow", f"{narrow} have no room for --max-tokens {config.max_tokens} after the prompt"),
        (
            "tokens",
            f"{counted['total']:,} in these rows, {counted['trained']:,} of completions; the "
            f"longest row has {counted['longest']:,} of at most {counted['limit']:,}",
        ),
    ]
    shown = [("first", model.renderer.text(prompt)) for prompt in prompts[:1]]
    return lines + shown


def _prompt(model: Model, kind: DatasetType, row: Row) -> list[int] | None:
    assert kind.prompt
    try:
        return model.renderer.prompt(row.data[kind.prompt], row.data.get("tools"))
    except Unrenderable:
        return None
