"""The loop. Nothing in it knows an algorithm.

Rows are taken in the run's order, a hook turns them into datums, another names the loss; forward,
backward and the optimizer step are submitted together and then awaited; what came of it is recorded
by hooks. Steps are counted from 0, checkpoints and evaluations by completed steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rlt.dataset import Order
from rlt.errors import PluginError, RunError
from rlt.run import Run
from rlt.types import JSON, Batch, Checkpoint, Loss, Outcome, Row, StepRecord

if TYPE_CHECKING:
    import tinker


async def train(run: Run, start: Checkpoint | None = None) -> Outcome:
    """Do the run's steps, from the first or from where `start` was saved.

    :param run: with its rows loaded and its service attached.
    :param start: the checkpoint that `run.training` was created from.
    :return: how it ended; `on_finish` has been called with it.
    """
    loop = _Loop(run, start)
    try:
        await loop.steps()
        outcome = loop.outcome("completed")
        if run.stop_reason:
            status: Literal["interrupted", "stopped"] = (
                "interrupted" if run.interrupted else "stopped"
            )
            outcome = loop.outcome(status, run.stop_reason)
    except BaseException as error:
        run.hooks.call("on_finish", run=run, outcome=loop.outcome("failed", str(error)))
        raise
    run.hooks.call("on_finish", run=run, outcome=outcome)
    return outcome


class _Loop:
    """The state of one run's loop: how many steps are done, and the newest checkpoint."""

    def __init__(self, run: Run, start: Checkpoint | None) -> None:
        self.run = run
        self.done = start.step if start else 0
        self.checkpoint = start
        self._order = Order(len(run.train_rows), run.config.seed)

    def outcome(
        self, status: Literal["completed", "stopped", "interrupted", "failed"], reason: str = ""
    ) -> Outcome:
        return Outcome(status, self.done, self.checkpoint, reason)

    async def steps(self) -> None:
        run, config = self.run, self.run.config
        run.hooks.call("on_start", run=run)
        if self.done == 0:
            await self._evaluate()
        while self.done < config.steps and not run.stop_reason:
            await self._step(self.done)
            last = self.done == config.steps or run.stop_reason is not None
            if last or _due(self.done, config.save_every):
                await self._save()
            if self.done == config.steps or _due(self.done, config.eval_every):
                await self._evaluate()

    async def _step(self, step: int) -> None:
        run, began = self.run, time.monotonic()
        batch = await self._make_datums(step)
        metrics = await self._optimize(step, batch) if batch.datums else {}
        run.weights_changed()
        self.done = step + 1
        record: JSON = {
            "step": step,
            "mean_reward": None,
            "n_datums": len(batch.datums),
            "loss": None,
            **metrics,
            **batch.metrics,
            "lr": run.config.lr,
            "seconds": round(time.monotonic() - began, 3),
        }
        run.hooks.call("on_step", run=run, record=StepRecord(step, record, batch))

    async def _make_datums(self, step: int) -> Batch:
        count = self.run.config.prompts_per_step
        positions = range(step * count, (step + 1) * count)
        rows = [self.run.train_rows[self._order.index(position)] for position in positions]
        arguments = {"run": self.run, "step": step, "rows": rows}
        batch: Batch | None = await self.run.hooks.call_async("make_datums", **arguments)
        if batch is None:
            raise PluginError(
                f"no selected plugin made datums at step {step}; --plugin must name an algorithm"
            )
        _require_account(batch, rows, step)
        return batch

    async def _optimize(self, step: int, batch: Batch) -> JSON:
        """Submit forward, backward and the optimizer's step; then await them."""
        import tinker  # noqa: PLC0415 - loaded with the service

        run, data = self.run, list(batch.datums)
        loss: Loss = run.hooks.call("compute_loss", run=run, step=step, batch=batch)
        passes = _forward_backward(run.training, data, loss)
        adam = run.training.optim_step(tinker.AdamParams(learning_rate=run.config.lr))
        result, optimizer = await passes, await adam
        value = loss.read(result, data) if loss.read else _service_loss(result)
        if not math.isfinite(value):
            raise RunError(
                f"the loss of step {step} is {value}; no checkpoint of it was saved. "
                "Lower --lr, or look at the step's rows in rows.jsonl"
            )
        extra = {_plain(name): number for name, number in (optimizer.metrics or {}).items()}
        return {"loss": value, **extra}

    async def _save(self) -> None:
        """Save weights twice, to resume and to sample, and wait until the service has both."""
        name = f"step-{self.done:06d}"
        training = self.run.training
        state, sampler = training.save_state(name), training.save_weights_for_sampler(name)
        self.checkpoint = Checkpoint(self.done, (await state).path, (await sampler).path)
        self.run.hooks.call("on_checkpoint", run=self.run, checkpoint=self.checkpoint)

    async def _evaluate(self) -> None:
        run, began = self.run, time.monotonic()
        if not len(run.eval_rows):
            return
        numbers = await run.hooks.call_async("evaluate", run=run, rows=run.eval_rows)
        seconds = round(time.monotonic() - began, 3)
        record = {"split": "eval", "step": self.done, "mean_reward": None, **(numbers or {})}
        run.hooks.call("on_evaluate", run=run, record={**record, "seconds": seconds})


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


def _forward_backward(training: tinker.TrainingClient, data: list[Any], loss: Loss) -> Any:
    if loss.custom:
        return training.forward_backward_custom(data, loss.custom)
    config = dict(loss.config) if loss.config else None
    return training.forward_backward(data, loss.name, config)  # type: ignore[arg-type]


def _service_loss(result: Any) -> float:
    """Return the loss that the service, or the custom loss, reports by itself."""
    for name in ("loss:sum", "loss:mean", "loss"):
        if name in result.metrics:
            return float(result.metrics[name])
    return math.nan


def _plain(name: str) -> str:
    """Return a metric's name without the service's reduction suffix."""
    return name.partition(":")[0]


def _require_account(batch: Batch, rows: Sequence[Row], step: int) -> None:
    told = [outcome.row.id for outcome in batch.outcomes]
    if told != [row.id for row in rows]:
        raise PluginError(
            f"make_datums accounted for {len(told)} of {len(rows)} rows at step {step}; "
            "return one RowOutcome for each row, in their order"
        )
