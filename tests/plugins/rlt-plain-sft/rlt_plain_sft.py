"""Supervised fine-tuning in one hook: learn each demonstration as it stands."""

from collections.abc import Sequence

import rlt
from rlt.rendering import datums

PLUGIN = rlt.PluginInfo(
    summary="Plain supervised fine-tuning, from outside.",
    dataset_type="sdft",
    options={"reduction": {"enum": ["token-mean", "sequence-mean", "sum"], "default": "sum"}},
    defaults={"lr": 1e-3, "prompts_per_step": 2},
)


@rlt.hookimpl
def make_datums(run: rlt.Run, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Render each row's prompt and completion; the loss is on what the assistant wrote."""
    examples = [
        run.renderer.demonstration(
            row.data["prompt"], row.data["completion"], row.data.get("tools")
        )
        for row in rows
    ]
    return rlt.Batch(
        datums=datums(examples, run.options["reduction"]),
        outcomes=[rlt.RowOutcome(row, datums=1) for row in rows],
    )
