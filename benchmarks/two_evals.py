"""An rlt plugin that measures two things: the new task, and what was known before.

Select it beside an algorithm: `--plugin sdft --plugin benchmarks/two_evals.py -o retained=FILE`.
`loss` is the held-out loss of the new task; `retained` that of FILE's plain chats; `exact` the
share of held-out prompts whose greedy answer passes sdft's checks on numbers and tool calls;
`named` the share whose answer calls the functions that the demonstration calls, if it calls any.
`-o base=FILE` keeps the numbers of the untrained model, which are the same for every run.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import rlt
from rlt.rendering import Example, Unrenderable, datum, mean_nll
from rlt_sdft.calls import same_tool_calls
from rlt_sdft.checks import same_final_number

PLUGIN = rlt.PluginInfo(
    summary="Measures the new task and what was known before.",
    options={
        "retained": {"type": "string", "description": "sdft rows of plain chats"},
        "answers": {"type": "integer", "minimum": 0, "default": 0,
                    "description": "held-out prompts to answer greedily"},
        "base": {"type": "string", "default": "",
                 "description": "where to keep the numbers before step 0 for the next run"},
    },
)  # fmt: skip

_NAME = re.compile(r'<tool_call>\s*\{"name": "(\w+)", "arguments"')


@rlt.hookimpl(tryfirst=True)
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Score both files in two forward calls, and answer some prompts."""
    untrained = not any(run.directory.metrics)
    known = Path(run.options["base"]) if run.options["base"] and untrained else None
    if known and known.exists():
        numbers: dict[str, float] = json.loads(known.read_text("utf-8"))
        return numbers
    numbers = await _measured(run, [rows[index] for index in range(len(rows))])
    if known:
        known.write_text(json.dumps(numbers), "utf-8")
    return numbers


async def _measured(run: rlt.Run, rows: list[rlt.Row]) -> dict[str, float]:
    lines = Path(run.options["retained"]).read_text("utf-8").splitlines()
    numbers = {
        "loss": await _nll(run, [row.data for row in rows]),
        "retained": await _nll(run, [json.loads(line) for line in lines]),
        "n_datums": len(rows),
    }
    answers = await asyncio.gather(*(_answer(run, row) for row in rows[: run.options["answers"]]))
    for key in ("exact", "named"):
        found = [answer[key] for answer in answers if key in answer]
        numbers |= {key: sum(found) / len(found)} if found else {}
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


async def _answer(run: rlt.Run, row: rlt.Row) -> dict[str, bool]:
    data = row.data
    prompt = run.renderer.prompt(data["prompt"], data.get("tools"))
    (answer,) = await run.sample(prompt, seed=0, temperature=0.0)
    said, shown = run.renderer.text(answer.tokens), run.renderer.completion_text(data["completion"])
    right = {"exact": same_final_number(shown, said) and same_tool_calls(shown, said)}
    called = _NAME.findall(shown)
    return right | ({"named": called == _NAME.findall(said)} if called else {})
