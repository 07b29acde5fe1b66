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
from typing import TYPE_CHECKING, Any, cast

from rlt import contract
from rlt.dataset import Order
from rlt.errors import DiskError, RunError
from rlt.measures import merged, plain
from rlt.run import Run
from rlt.saving import Saver
from rlt.schedule import learning_rate
from rlt.types import JSON, Batch, Checkpoint, Loss, Outcome, Status, StepRecord

if TYPE_CHECKING:
    import tinker


_SHORT = 5.0


async def train(run: Run, start: Checkpoint | None = None) -> Outcome:
    """Do the run's steps, from the first or from where `start` was saved.

    :param run: with its rows loaded and its service attached.
    :param start: the checkpoint that `run.training` was created from.
    :return: how it ended; `on_finish` has been called with it.
    """
    loop = _Loop(run, start)
    try:
        await loop.steps()
    except BaseException as error:
        told = await loop.failed(error)
        if told is error:
            raise
        raise told from error
    outcome = loop.outcome(loop.status, run.stop_reason or "")
    run.hooks.call("on_finish", run=run, outcome=outcome)
    await run.settle()
    return outcome


class _Loop:
    """The state of one run's loop: how many steps are done, and what has been saved."""

    def __init__(self, run: Run, start: Checkpoint | None) -> None:
        self.run = run
        self.done = start.step if start else 0
        self.saver = Saver(run, start)
        self._order = Order(len(run.train_rows), run.config.seed)
        self._evaluated = {
            line["step"] for line in run.directory.metrics if line.get("split") == "eval"
        }
        self._trained = start is not None

    @property
    def status(self) -> Status:
        if not self.run.stop_reason:
            return "completed"
        return "interrupted" if self.run.interrupted else "stopped"

    def outcome(self, status: Status, reason: str = "") -> Outcome:
        return Outcome(status, self.done, self.saver.newest, reason)

    async def failed(self, error: BaseException) -> BaseException:
        """Bring a failed run to an orderly end, and return the error to raise."""
        told = error
        if isinstance(error, DiskError):
            told = await self._saved_elsewhere(error)
        elif isinstance(error, Exception):  # not when someone wants it to stop now
            await self.saver.salvage()
        if isinstance(error, Exception):
            await self.run.settle(_SHORT)
        try:
            outcome = self.outcome("failed", str(error))
            self.run.hooks.call("on_finish", run=self.run, outcome=outcome)
        except Exception as second:  # the first error is the one to tell
            self.run.log.warning("on_finish failed, too", why=str(second))
        return told

    async def _saved_elsewhere(self, error: DiskError) -> DiskError:
        """Let the service keep what this machine cannot write down, and say where."""
        await self.saver.salvage()
        if self.saver.newest is None or self.saver.newest.step < self.done:
            self.saver.begin(self.done)
            await self.saver.salvage()
        saved = self.saver.newest
        if saved is None:
            return error
        return DiskError(f"{error}; the weights after {saved.step} steps are in {saved.state}")

    async def steps(self) -> None:
        run, config = self.run, self.run.config
        run.hooks.call("on_start", run=run)
        contract.require_room(run.config.max_tokens, run.service.max_context, run.service.model)
        contract.require_renderer(run)
        if self.done in (0, config.steps) or _due(self.done, config.eval_every):
            await self._evaluate()
        while self.done < config.steps and not run.stop_reason:
            await self._step(self.done)
            await self.saver.finish()
            await asyncio.sleep(0)  # let a signal that came during the step be heard
            if _due(self.done, config.save_every) and self.done < config.steps:
                self.saver.begin(self.done)
            if _due(self.done, config.eval_every) and self.done < config.steps:
                await self._evaluate()
        if not self._trained and self.done:
            raise RunError(
                f"nothing was trained: all rows of {self.done} steps were dropped; "
                "rows.jsonl says why"
            )
        await self._save_last()
        if self.done == config.steps:
            await self._evaluate()
        await self.saver.finish()

    async def _save_last(self) -> None:
        """Save what no checkpoint has yet, however the run came to its end."""
        await self.saver.finish()
        if self.done and (self.saver.newest is None or self.saver.newest.step < self.done):
            self.saver.begin(self.done)

    async def _step(self, step: int) -> None:
        run, began = self.run, time.monotonic()
        batch = await self._make_datums(step)
        metrics = await self._optimize(step, batch) if batch.datums else {}
        run.weights_changed()
        self.done = step + 1
        self._trained = self._trained or bool(batch.datums)
        record: JSON = {
            "step": step,
            "mean_reward": None,
            "n_datums": len(batch.datums),
            "loss": None,
            **metrics,
            **plain(batch.metrics, "n_datums"),
            "lr": learning_rate(run.config, step),
            "seconds": round(time.monotonic() - began, 3),
        }
        run.hooks.call("on_step", run=run, record=StepRecord(step, record, batch))

    async def _make_datums(self, step: int) -> Batch:
        count = self.run.config.prompts_per_step
        positions = range(step * count, (step + 1) * count)
        rows = [self.run.train_rows[self._order.index(position)] for position in positions]
        arguments = {"run": self.run, "step": step, "rows": rows}
        batch = await self.run.hooks.call_async("make_datums", **arguments)
        contract.require_account(batch, rows, step)
        return cast("Batch", batch)

    async def _optimize(self, step: int, batch: Batch) -> JSON:
        """Submit every forward-backward and the optimizer's step; then await them."""
        run = self.run
        loss = run.hooks.call("compute_loss", run=run, step=step, batch=batch)
        contract.require_loss(loss, step)
        # a custom loss sees the step as a whole: it may pair datums, or average over them
        parts = _split(list(batch.datums), 1 if loss.custom else run.config.substeps)
        passes = [_forward_backward(run.training, part, loss) for part in parts]
        adam = run.training.optim_step(_adam(run, step))
        with run.hooks.boundary("compute_loss", {"step": step}):  # the loss may be a plugin's code
            results = [await run.answered(p, f"forward_backward of step {step}") for p in passes]
            numbers = _numbers(loss, step, results, parts)
        optimizer = await run.answered(adam, f"optim_step of step {step}")
        if not math.isfinite(numbers["loss"]):
            raise RunError(
                f"the loss of step {step} is {numbers['loss']}; no checkpoint of it was saved. "
                "Lower --lr, or look at the step's rows in rows.jsonl"
            )
        answers = [result.metrics for result in results] + [optimizer.metrics or {}]
        return {**plain(numbers, "n_datums", "mean_reward"), **plain(merged(answers), *numbers)}

    async def _evaluate(self) -> None:
        """Measure the held-out rows, unless a run that was resumed here has done so already."""
        run, began = self.run, time.monotonic()
        if not len(run.eval_rows) or self.done in self._evaluated:
            return
        self._evaluated.add(self.done)
        numbers = await run.hooks.call_async("evaluate", run=run, rows=run.eval_rows)
        seconds = round(time.monotonic() - began, 3)
        measured = plain(contract.require_measures(numbers, self.done))
        record = {"split": "eval", "step": self.done, "mean_reward": None, **measured}
        run.hooks.call("on_evaluate", run=run, record={**record, "seconds": seconds})


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


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


def _numbers(loss: Loss, step: int, results: Sequence[Any], parts: Sequence[list[Any]]) -> JSON:
    """Return the step's loss: as the plugin reads it, with what else it reads, or as the sum."""
    if not loss.read:
        return {"loss": float(sum(result.metrics.get("loss:sum", math.nan) for result in results))}
    outputs = [output for result in results for output in result.loss_fn_outputs]
    found = loss.read(outputs, [datum for part in parts for datum in part])
    return contract.require_loss_number(found, step)
