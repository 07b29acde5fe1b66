"""The loop. Nothing in it knows an algorithm.

Rows are taken in the run's order, a hook turns them into datums, another names the loss; forward,
backward and the optimizer step are submitted together and then awaited; what came of it is recorded
by hooks. Steps are counted from 0, checkpoints and evaluations by completed steps.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from rlt.dataset import Order
from rlt.errors import DiskError, PluginError, RunError
from rlt.run import Run
from rlt.saving import Saver
from rlt.schedule import learning_rate
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
    except DiskError as error:
        raise await loop.saved_elsewhere(error) from error
    except BaseException as error:
        await loop.saver.salvage()
        await run.settle()
        run.hooks.call("on_finish", run=run, outcome=loop.outcome("failed", str(error)))
        raise
    outcome = loop.outcome(loop.status, run.stop_reason or "")
    run.hooks.call("on_finish", run=run, outcome=outcome)
    await run.settle()
    return outcome


Status = Literal["completed", "stopped", "interrupted", "failed"]


class _Loop:
    """The state of one run's loop: how many steps are done, and what has been saved."""

    def __init__(self, run: Run, start: Checkpoint | None) -> None:
        self.run = run
        self.done = start.step if start else 0
        self.saver = Saver(run, start)
        self._order = Order(len(run.train_rows), run.config.seed)

    @property
    def status(self) -> Status:
        if not self.run.stop_reason:
            return "completed"
        return "interrupted" if self.run.interrupted else "stopped"

    def outcome(self, status: Status, reason: str = "") -> Outcome:
        return Outcome(status, self.done, self.saver.newest, reason)

    async def saved_elsewhere(self, error: DiskError) -> DiskError:
        """Let the service keep what this machine cannot, and say where."""
        before = self.saver.newest
        await self.saver.salvage()
        self.saver.begin(self.done)
        await self.saver.salvage()
        saved = self.saver.newest
        if saved is None or saved == before:
            return error
        return DiskError(f"{error}; the weights after {saved.step} steps are in {saved.state}")

    async def steps(self) -> None:
        run, config = self.run, self.run.config
        run.hooks.call("on_start", run=run)
        if self.done == 0 or _due(self.done, config.eval_every):
            await self._evaluate()
        while self.done < config.steps and not run.stop_reason:
            await self._step(self.done)
            await self.saver.finish()
            await asyncio.sleep(0)  # let a signal that came during the step be heard
            last = self.done == config.steps or run.stop_reason is not None
            if last or _due(self.done, config.save_every):
                self.saver.begin(self.done)
            if self.done == config.steps or _due(self.done, config.eval_every):
                await self._evaluate()
        await self.saver.finish()

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
            "lr": learning_rate(run.config, step),
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
        """Submit every forward-backward and the optimizer's step; then await them."""
        run = self.run
        loss: Loss = run.hooks.call("compute_loss", run=run, step=step, batch=batch)
        parts = _split(list(batch.datums), run.config.substeps)
        passes = [_forward_backward(run.training, part, loss) for part in parts]
        adam = run.training.optim_step(_adam(run, step))
        results = [await run.answered(p, f"forward_backward of step {step}") for p in passes]
        optimizer = await run.answered(adam, f"optim_step of step {step}")
        value = _value(loss, results, parts)
        if not math.isfinite(value):
            raise RunError(
                f"the loss of step {step} is {value}; no checkpoint of it was saved. "
                "Lower --lr, or look at the step's rows in rows.jsonl"
            )
        extra = {_plain(name): number for name, number in (optimizer.metrics or {}).items()}
        return {"loss": value, **extra}

    async def _evaluate(self) -> None:
        """Measure the held-out rows, unless a run that was resumed here has done so already."""
        run, began = self.run, time.monotonic()
        if not len(run.eval_rows) or _evaluated(run, self.done):
            return
        numbers = await run.hooks.call_async("evaluate", run=run, rows=run.eval_rows)
        seconds = round(time.monotonic() - began, 3)
        record = {"split": "eval", "step": self.done, "mean_reward": None, **(numbers or {})}
        run.hooks.call("on_evaluate", run=run, record={**record, "seconds": seconds})


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


def _evaluated(run: Run, done: int) -> bool:
    lines = run.directory.metrics
    return any(line.get("split") == "eval" and line["step"] == done for line in lines)


def _split(data: list[Any], parts: int) -> list[list[Any]]:
    """Cut a step's datums into at most `parts` runs of nearly equal length, none empty."""
    parts = min(parts, len(data))
    bounds = [len(data) * i // parts for i in range(parts + 1)]
    return [data[a:b] for a, b in pairwise(bounds)]


def _adam(run: Run, step: int) -> tinker.AdamParams:
    import tinker  # noqa: PLC0415 - loaded with the service

    config = run.config
    return tinker.AdamParams(
        learning_rate=learning_rate(config, step),
        beta1=config.beta1,
        beta2=config.beta2,
        weight_decay=config.weight_decay,
        grad_clip_norm=config.grad_clip,
    )


def _forward_backward(
    training: tinker.TrainingClient, data: list[Any], loss: Loss
) -> Awaitable[tinker.ForwardBackwardOutput]:
    if loss.custom:
        return training.forward_backward_custom(data, loss.custom)
    config = dict(loss.config) if loss.config else None
    return training.forward_backward(data, loss.name, config)  # type: ignore[arg-type]


def _value(loss: Loss, results: Sequence[Any], parts: Sequence[list[Any]]) -> float:
    """Return the step's loss: as the plugin reads it, or as the service sums it."""
    if loss.read:
        outputs = [output for result in results for output in result.loss_fn_outputs]
        return loss.read(outputs, [datum for part in parts for datum in part])
    sums = [result.metrics.get("loss:sum", math.nan) for result in results]
    return float(sum(sums))


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
