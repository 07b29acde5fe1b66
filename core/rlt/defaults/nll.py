"""Held-out loss: the token-weighted negative log-likelihood of the rows' completions."""

from __future__ import annotations

import rlt
from rlt.rendering import Example, Unrenderable, datum, mean_nll


@rlt.hookimpl
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Score all rows in one `forward` call.

    `loss` is sum(-log p) / tokens over every completion token of every row that can be rendered
    and fits the context; `n_datums` says how many did, `n_rows` how many there are.
    """
    examples = [example for row in _all(rows) if (example := _example(run, row))]
    if not examples:
        raise rlt.RunError(
            "none of the --eval-data rows can be rendered within the model's context"
        )
    batch = [datum(example) for example in examples]
    request = run.training.forward(batch, "cross_entropy")
    result = await run.answered(request, "forward of the held-out rows")
    loss, tokens = mean_nll(result.loss_fn_outputs, batch)
    return {"n_datums": len(batch), "loss": loss, "n_rows": len(rows), "tokens": int(tokens)}


def _all(rows: rlt.Rows) -> list[rlt.Row]:
    return [rows[index] for index in range(len(rows))]


def _example(run: rlt.Run, row: rlt.Row) -> Example | None:
    data = row.data
    if "completion" not in data:
        raise rlt.UsageError(
            f"{row.where}: no completion to score; the plugin must implement evaluate for such rows"
        )
    try:
        example = run.renderer.demonstration(data["prompt"], data["completion"], data.get("tools"))
    except Unrenderable as error:
        run.log.warning("eval row left out", row=row.where, reason=str(error))
        return None
    if len(example.tokens) > run.service.max_context:
        run.log.warning("eval row left out", row=row.where, reason="longer than the context")
        return None
    return example
