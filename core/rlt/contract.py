"""What a hook may return, checked where it returns: the plugin is told, and not a stranger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from rlt.errors import PluginError, UsageError
from rlt.rendering import Unrenderable
from rlt.run import Run
from rlt.types import Batch, Loss, Row, RowOutcome


def require_room(run: Run) -> None:
    """Refuse a `--max-tokens` that no prompt would fit beside.

    :raises UsageError: when it fills the context.
    """
    if run.config.max_tokens >= run.service.max_context:
        raise UsageError(
            f"--max-tokens {run.config.max_tokens} leaves no room for a prompt: "
            f"the context of {run.service.model} is {run.service.max_context} tokens"
        )


def require_loss(loss: object, step: int) -> None:
    """Check the result of `compute_loss`.

    :raises PluginError: when it is no `Loss`.
    """
    if not isinstance(loss, Loss):
        raise PluginError(
            f"compute_loss returned {type(loss).__name__} at step {step}, not an rlt.Loss"
        )


def require_loss_number(numbers: Mapping[str, Any]) -> None:
    """Check what a plugin read out of the service's answer.

    :raises TypeError: when it has no `loss` that is a number.
    """
    value = numbers.get("loss")
    if not (isinstance(value, Real) or hasattr(value, "item")):  # an array's or tensor's scalar
        raise TypeError(f"Loss.read returned {value!r} as the loss, not a number")


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
