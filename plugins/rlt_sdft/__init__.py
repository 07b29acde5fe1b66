"""SDFT: a model learns a demonstration in its own words.

Shown an expert's demonstration, the model is its own teacher. What it then says, or thinks of what
the student says, is close to what the student would have said anyway, so that it learns the new and
forgets less than by imitating the expert.

- `mode=rewrite`: the teacher rewrites the demonstration and the student learns the rewrite (Yang et
  al., "Self-Distillation Bridges Distribution Gap in Language Model Fine-Tuning", ACL 2024).
- `mode=topk`, `reverse`, `sampled`: the student answers, and the teacher, shown the demonstration,
  says at each token what it would have said (Shenfeld et al., arXiv 2601.19897, 2026).
"""

from __future__ import annotations

from collections.abc import Sequence

import rlt
from rlt.rendering import RawRenderer
from rlt_sdft import distill, rewrite
from rlt_sdft.options import OPTIONS, TEXTS, keep_texts, text_of

PLUGIN = rlt.PluginInfo(
    summary="Self-distillation: the model teaches itself each demonstration in its own words.",
    dataset_type="sdft",
    options=OPTIONS,
    defaults={"group_size": 1},
    example={
        "prompt": "What is the weather in Paris? You can use get_weather(city).",
        "completion": 'I will look it up: get_weather(city="Paris").',
    },
)


@rlt.hookimpl
def load_rows(run: rlt.Run) -> None:
    """Read the files that options name, before anything is paid for; leave rows to the default."""
    for name in TEXTS:
        text_of(run, name)


@rlt.hookimpl
def on_start(run: rlt.Run) -> None:
    """Keep the prompts, and drop the chat template when `-o render=raw` asks for it."""
    keep_texts(run)
    if run.options["render"] == "raw":
        run.renderer = RawRenderer(run.tokenizer)
    if run.options["mode"] == "sampled" and run.config.temperature != 1:
        run.log.warning(
            "mode=sampled weighs samples by their probability at temperature 1",
            temperature=run.config.temperature,
        )


@rlt.hookimpl
async def make_datums(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Ask the teacher about each row; all requests are in flight together."""
    if run.options["mode"] == "rewrite":
        return await rewrite.batch(run, step, rows)
    return await distill.batch(run, step, rows)


@rlt.hookimpl
def compute_loss(run: rlt.Run, batch: rlt.Batch) -> rlt.Loss | None:
    """Choose the mode's loss; datums that another plugin made are left to the default."""
    if run.options["mode"] != "rewrite":
        return distill.loss(run, batch)
    return rewrite.loss(batch) if isinstance(batch, rewrite.RewriteBatch) else None
