"""An rlt plugin that measures two things: the new task, and what was known before.

Select it beside an algorithm: `--plugin sdft --plugin benchmarks/two_evals.py -o retained=FILE`.
`loss` is the held-out loss of the new task; `retained` that of FILE's plain chats; `exact` the
share of held-out prompts whose greedy answer passes sdft's checks on numbers and tool calls.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import rlt
from rlt.rendering import Example, Unrenderable, datum, mean_nll
from rlt_sdft.checks import same_final_number, same_tool_calls

PLUGIN = rlt.PluginInfo(
    summary="Measures the new task and what was known before.",
    options={
        "retained": {"type": "string", "description": "sdft rows of plain chats"},
        "answers": {"type": "integer", "minimum": 0, "default": 0,
                    "description": "held-out prompts to answer greedily"},
    },
)  # fmt: skip


@rlt.hookimpl(tryfirst=True)
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Score both files in two forward calls, and answer some prompts."""
    held_out = [rows[index].data for index in range(len(rows))]
    lines = Path(run.options["retained"]).read_text("utf-8").splitlines()
    numbers = {
        "loss": await _nll(run, held_out),
        "retained": await _nll(run, [json.loads(line) for line in lines]),
        "n_datums": len(held_out),
    }
    asked = [rows[index] for index in range(min(run.options["answers"], len(rows)))]
    if asked:
        right = await asyncio.gather(*(_right(run, row) for row in asked))
        numbers["exact"] = sum(right) / len(right)
    return numbers


async def _nll(run: rlt.Run, rows: list[rlt.JSON]) -> float:
    examples = [example for row in rows if (example := _example(run, row))]
    batch = [datum(example) for example in examples]
    request = run.training.forward(batch, "cross_entropy")
    result = await run.answered(request, "forward of held-out rows")
    return mean_nll(result.loss_fn_outputs, batch)[0]


def _example(run: rlt.Run, row: rlt.JSON) -> Example | None:
    try:
        return run.renderer.demonstration(row["prompt"], row["completion"], row.get("tools"))
    except Unrenderable:
        return None


async def _right(run: rlt.Run, row: rlt.Row) -> bool:
    data = row.data
    prompt = run.renderer.prompt(data["prompt"], data.get("tools"))
    (answer,) = await run.sample(prompt, seed=0, temperature=0.0)
    said, shown = run.renderer.text(answer.tokens), run.renderer.completion_text(data["completion"])
    return same_final_number(shown, said) and same_tool_calls(shown, said)
