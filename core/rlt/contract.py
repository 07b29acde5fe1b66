"""What a hook may return, checked where it returns: the plugin is told, and not a stranger."""

from __future__ import annotations

from collections.abc import Sequence

from rlt.errors import PluginError, UsageError
from rlt.rendering import Unrenderable
from rlt.run import Run
from rlt.types import Batch, Loss, Row


def require_loss(loss: object, step: int) -> None:
    """Check the result of `compute_loss`.

    :raises PluginError: when it is no `Loss`.
    """
    if not isinstance(loss, Loss):
        raise PluginError(
            f"compute_loss returned {type(loss).__name__} at step {step}, not an rlt.Loss"
        )


def require_renderer(run: Run) -> None:
    """Refuse a model whose chat template cannot be used, before a row is blamed for it.

    :raises UsageError: when it cannot.
    """
    try:
        run.renderer.prompt("?")
    except Unrenderable as error:
        raise UsageError(
            f"the chat template of {run.service.model} cannot be used: {error}"
        ) from None


def require_account(batch: object, rows: Sequence[Row], step: int) -> None:
    """Check that the result of `make_datums` accounts for every row and every datum.

    :raises PluginError: when it does not.
    """
    if batch is None:
        raise PluginError(
            f"no selected plugin made datums at step {step}; --plugin must name an algorithm"
        )
    if not isinstance(batch, Batch):
        raise PluginError(
            f"make_datums returned {type(batch).__name__} at step {step}, not an rlt.Batch"
        )
    told = [outcome.row.id for outcome in batch.outcomes]
    if told != [row.id for row in rows]:
        raise PluginError(
            f"make_datums accounted for {len(told)} of {len(rows)} rows at step {step}; "
            "return one RowOutcome for each row, in their order"
        )
    count = sum(outcome.datums for outcome in batch.outcomes)
    if count != len(batch.datums):
        raise PluginError(
            f"make_datums returned {len(batch.datums)} datums at step {step}, but its RowOutcomes "
            f"speak of {count}"
        )
    silent = next((o for o in batch.outcomes if not o.datums and not o.dropped), None)
    if silent:
        raise PluginError(
            f"make_datums dropped {silent.row.where} at step {step} without a reason; "
            "set RowOutcome(dropped=…)"
        )
