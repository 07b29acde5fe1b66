"""GRPO: a model learns from the rewards of its own samples.

For each `environment` row a group of samples is drawn, scored by the `score` hook, and learnt in
proportion to how much better each did than its group. Rows with an expected answer, a test file or
a Lean goal are scored here; any other reward is a plugin with `score`, and any dialogue of several
turns one with `make_environment`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import rlt
from rlt_grpo import step as steps
from rlt_grpo import verifiers
from rlt_grpo.objective import loss
from rlt_grpo.options import DEFAULTS, OPTIONS

PLUGIN = rlt.PluginInfo(
    summary="Environment RL: groups of samples, scored and learnt by how they compare.",
    dataset_type="environment",
    options=OPTIONS,
    defaults=DEFAULTS,
    example={"prompt": "What is 2 + 2? Answer with a number.", "metadata": {"answer": "4"}},
)


@rlt.hookimpl
def load_rows(run: rlt.Run) -> None:
    """Refuse settings that cannot learn, before anything starts; read no rows."""
    if run.config.group_size < 2:
        raise rlt.UsageError("--group-size must be at least 2: a sample is compared with its group")
    if run.config.temperature == 0:
        raise rlt.UsageError("--temperature 0 makes all samples of a group the same; give 1")


@rlt.hookimpl
def on_start(run: rlt.Run) -> None:
    """Refuse rows that nothing can score, before any sampling."""
    verifiers.require(run)


@rlt.hookimpl
async def make_datums(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Roll out a group for each row; all rollouts are in flight together."""
    return await steps.batch(run, step, rows)


@rlt.hookimpl
def compute_loss(run: rlt.Run) -> rlt.Loss:
    """Choose the policy loss of `-o loss`."""
    options = run.options
    return loss(options["loss"], options["clip_low"], options["clip_high"])


@rlt.hookimpl
async def evaluate(run: rlt.Run, rows: rlt.Rows) -> rlt.JSON:
    """Measure the mean reward of one sample for each held-out row."""
    return await steps.evaluate(run, rows)


@rlt.hookimpl(trylast=True)
def score(run: rlt.Run, row: rlt.Row, completion: str) -> Awaitable[float] | None:
    """Verify an answer, a test file or a Lean goal; any other plugin is asked first."""
    return verifiers.score(run, row, completion)
