"""SDFT: a model learns a demonstration in its own words.

Shown an expert's demonstration, the model is its own teacher: it rewrites the demonstration, and
then learns that rewrite without seeing the demonstration. What it learns from is close to what it
would have said, so that it forgets less than by imitating the expert.

The loop is the one that rlt grew from, with the checks of Yang et al., "Self-Distillation Bridges
Distribution Gap in Language Model Fine-Tuning" (ACL 2024): a rewrite that fails one is not learnt;
the demonstration takes its place, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import rlt
from rlt.rendering import RawRenderer
from rlt_sdft import rewrite

PLUGIN = rlt.PluginInfo(
    summary="Self-distillation: the model rewrites each demonstration and learns its own words.",
    dataset_type="sdft",
    options={
        "checks": {
            "enum": ["on", "off"],
            "default": "on",
            "description": "off learns every rewrite, whatever it is; small models collapse so",
        },
        "fallback": {
            "enum": ["demo", "drop"],
            "default": "demo",
            "description": "what replaces a rejected rewrite: the demonstration, or nothing",
        },
        "teacher": {
            "enum": ["current", "base"],
            "default": "current",
            "description": "which weights rewrite: the trained ones, or those before step 0",
        },
        "reduction": {
            "enum": ["token-mean", "sequence-mean", "sum"],
            "default": "token-mean",
            "description": "how the tokens of a step are averaged in the gradient",
        },
        "render": {
            "enum": ["chat", "raw"],
            "default": "chat",
            "description": "raw uses no chat template, as the original loop did",
        },
    },
    defaults={"group_size": 1},
    example={
        "prompt": "What is the weather in Paris? You can use get_weather(city).",
        "completion": 'I will look it up: get_weather(city="Paris").',
    },
)


@rlt.hookimpl
def on_start(run: rlt.Run) -> None:
    """Drop the chat template when `-o render=raw` asks for it."""
    if run.options["render"] == "raw":
        run.renderer = RawRenderer(run.tokenizer)


@rlt.hookimpl
async def make_datums(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Have the teacher rewrite each row's demonstration; all requests are in flight together."""
    return await rewrite.batch(run, step, rows)
