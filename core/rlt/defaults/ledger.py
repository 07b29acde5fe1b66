"""The ledgers: which row was used when and what became of it, and which checkpoints exist."""

from __future__ import annotations

import time

import rlt


@rlt.hookimpl
def on_step(run: rlt.Run, record: rlt.StepRecord) -> None:
    """Account for the step's rows and keep its samples."""
    uses = [
        {
            "step": record.step,
            "row": outcome.row.id,
            "file": outcome.row.path,
            "line": outcome.row.line,
            "datums": outcome.datums,
            "dropped": outcome.dropped,
            "truncated": outcome.truncated,
        }
        for outcome in record.batch.outcomes
    ]
    run.directory.rows.append(*uses)
    run.directory.samples.append(*({"step": record.step, **x} for x in record.batch.samples))


@rlt.hookimpl(tryfirst=True)
def on_checkpoint(run: rlt.Run, checkpoint: rlt.Checkpoint) -> None:
    """Write the checkpoint down; the service has confirmed it.

    What a run resumed here will build on is synced first, so that no crash leaves a checkpoint
    without the lines of the steps before it.
    """
    for file in (run.directory.metrics, run.directory.rows, run.directory.samples):
        file.sync()
    run.directory.checkpoints.append(
        {
            "step": checkpoint.step,
            "state": checkpoint.state,
            "sampler": checkpoint.sampler,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    )
    run.log.info("checkpoint", step=checkpoint.step, state=checkpoint.state)
