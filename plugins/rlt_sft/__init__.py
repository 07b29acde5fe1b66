"""SFT: a model learns demonstrations as they stand.

The baseline that every other algorithm on `sdft` rows is compared with: cross-entropy on what the
assistant of the demonstration wrote, the end of each turn included, everything else given.
"""

from __future__ import annotations

from collections.abc import Sequence

import rlt
from rlt.rendering import Example, Unrenderable, datums

PLUGIN = rlt.PluginInfo(
    summary="Supervised fine-tuning: the model learns each demonstration as it stands.",
    dataset_type="sdft",
    options={
        "turns": {
            "enum": ["all", "last"],
            "default": "all",
            "description": "which assistant turns of a demonstration are learnt",
        },
        "reduction": {
            "enum": ["token-mean", "sequence-mean", "sum"],
            "default": "token-mean",
            "description": "how the tokens of a step are averaged in the gradient",
        },
    },
    example={"prompt": "What is the capital of France?", "completion": "Paris."},
)


@rlt.hookimpl
def make_datums(run: rlt.Run, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Render each row; one that cannot be rendered or is too long is dropped, and counted."""
    made = [_demonstration(run, row) for row in rows]
    examples = [example for example in made if isinstance(example, Example)]
    return rlt.Batch(
        datums=datums(examples, run.options["reduction"]),
        outcomes=[_outcome(row, result) for row, result in zip(rows, made, strict=True)],
        metrics={"n_tokens": sum(example.total for example in examples)},
    )


def _demonstration(run: rlt.Run, row: rlt.Row) -> Example | str:
    """Return what to learn of a row, or why there is nothing."""
    try:
        example = _rendered(run, row.data)
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return "unrenderable"
    if len(example.tokens) > run.service.max_context:
        run.log.warning("row dropped", row=row.where, reason="longer than the model's context")
        return "too-long"
    return example if example.total else "nothing-to-learn"


def _rendered(run: rlt.Run, data: rlt.JSON) -> Example:
    prompt, completion, tools = data["prompt"], data["completion"], data.get("tools")
    if run.options["turns"] == "all":
        return run.renderer.demonstration(prompt, completion, tools)
    context, answer = run.renderer.split(prompt, completion, tools)
    return context.scaled(0.0).then(answer, 1.0)


def _outcome(row: rlt.Row, result: Example | str) -> rlt.RowOutcome:
    dropped = result if isinstance(result, str) else None
    return rlt.RowOutcome(row, datums=0 if dropped else 1, dropped=dropped)
