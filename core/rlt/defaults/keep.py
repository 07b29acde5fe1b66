"""Storage: the newest checkpoints stay, older ones of this run are deleted from the service."""

from __future__ import annotations

import rlt


@rlt.hookimpl(trylast=True)
def on_checkpoint(run: rlt.Run) -> None:
    """Delete what `--keep` does not cover, once the new checkpoint is in the ledger."""
    if not run.config.keep:
        return
    for old in surplus(run.directory.ledger(), run.config.keep):
        # Written down first: a ledger never offers what may already be gone.
        run.directory.checkpoints.append({"step": old.step, "deleted": old.state})
        for path in (old.state, old.sampler):
            run.in_background(run.service.delete_checkpoint(path), f"deletion of {path}")


def surplus(ledger: list[rlt.Checkpoint], keep: int) -> list[rlt.Checkpoint]:
    """Return all but the newest checkpoint and the `keep` before it, by their steps."""
    return sorted(ledger, key=lambda checkpoint: checkpoint.step)[: -(keep + 1)]
