"""What a hook may return, checked where it returns: the plugin is told, and not a stranger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlt.errors import PluginError, UsageError
from rlt.rendering import Unrenderable
from rlt.run import Run
from rlt.types import JSON, Batch, Loss, Row, RowOutcome


def require_room(max_tokens: int, context: int, model: str) -> None:
    """Refuse a `--max-tokens` that no prompt would fit beside.

    :raises UsageError: when it fills the context.
    """
    if max_tokens >= context:
        raise UsageError(
            f"--max-tokens {max_tokens} leaves no room for a prompt: "
            f"the context of {model} is {context} tokens"
        )


def require_loss(loss: object, step: int) -> None:
    """Check the result of `compute_loss`.

    :raises PluginError: when it is no `Loss`.
    """
    if not isinstance(loss, Loss):
        raise PluginError(
            f"compute_loss returned {type(loss).__name__} at step {step}, not an rlt.Loss"
        )


def require_loss_number(found: object, step: int) -> JSON:
    """Return what `Loss.read` found as numbers by name, `loss` among them.

    :raises PluginError: when its `loss` is not one number.
    """
    numbers: JSON = dict(found) if isinstance(found, Mapping) else {"loss": found}
    try:
        return {**numbers, "loss": float(numbers["loss"])}
    except (KeyError, TypeError, ValueError, RuntimeError):  # an array or tensor of several
        shown = f"{numbers.get('loss')!r}"[:80]
        raise PluginError(
            f"compute_loss's Loss.read returned {shown} as the loss of step {step}, not a number"
        ) from None


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


def require_measures(numbers: object, step: int) -> Mapping[str, Any]:
    """Check the result of `evaluate`.

    :raises PluginError: when it is no mapping.
    """
    if not isinstance(numbers, Mapping):
        raise PluginError(
            f"evaluate returned {type(numbers).__name__} after {step} steps, not numbers by name"
        )
    return numbers


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
    odd = next((o for o in batch.outcomes if not isinstance(o, RowOutcome)), None)
    if odd is not None:
        raise PluginError(
            f"make_datums gave {type(odd).__name__} as an outcome at step {step}, not RowOutcome"
        )
    stranger = next((d for d in batch.datums if not hasattr(d, "loss_fn_inputs")), None)
    if stranger is not None:
        raise PluginError(
            f"make_datums gave {type(stranger).__name__} as a datum at step {step}, "
            "not a tinker.Datum"
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
