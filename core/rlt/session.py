"""A run while its service is open: weights to start from, the loop, a last sample."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import rlt
from rlt import engine
from rlt.errors import RunError, UsageError
from rlt.resume import Beginning
from rlt.run import Run
from rlt.run_directory import RUNS, keep_metrics
from rlt.service_errors import explain, is_refusal
from rlt.types import Checkpoint, Outcome

if TYPE_CHECKING:
    from rlt.service import Service


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended, and what is worth showing of it."""

    run: Run
    outcome: Outcome
    sample: tuple[str, str] | None
    """(the first row's prompt, what the trained model answers)."""


async def session(
    run: Run, opened: Service, beginning: Beginning, metadata: dict[str, str]
) -> Finished:
    """Do a run on an open service.

    :raises rlt.Interrupted: when a signal ended it.
    :raises rlt.RunError: when it failed.
    """
    training, start = await _training_client(run, opened, beginning, metadata)
    if beginning.resumes:
        _rewind(run, start.step if start else 0)
    run.starting_weights = beginning.starting_weights
    run.attach(opened, training)
    with _signals(run):
        outcome = await engine.train(run, start)
        if outcome.status == "interrupted":
            raise rlt.Interrupted(_way_on(run, outcome))
        return Finished(run, outcome, await _final_sample(run))


async def _training_client(
    run: Run, opened: Service, beginning: Beginning, metadata: dict[str, str]
) -> tuple[Any, Checkpoint | None]:
    """Return the SDK's training client and the checkpoint that it starts from."""
    client, config, foreign = opened.client, run.config, beginning.starting_weights
    for checkpoint in beginning.candidates:
        request = client.create_training_client_from_state_with_optimizer(
            checkpoint.state, user_metadata=metadata
        )
        try:
            training = await run.answered(request, f"the weights after {checkpoint.step} steps")
        except Exception as error:
            if not is_refusal(error):  # the service is away, or the key: no fault of the checkpoint
                raise
            run.log.warning(
                "a checkpoint cannot be loaded; trying the one before",
                step=checkpoint.step, reason=str(explain(error)),
            )  # fmt: skip
            continue
        run.log.info("resuming", step=checkpoint.step, state=checkpoint.state)
        return training, checkpoint
    if beginning.candidates:
        raise RunError("none of the run's checkpoints can be loaded; start a new run")
    if foreign:
        if not beginning.resumes:
            run.log.warning(
                "these weights are none of this run's: a new run starts from them at step 0",
                weights=foreign,
            )
        request = client.create_training_client_from_state(foreign, user_metadata=metadata)
        return await _created(run, request, f"the weights {foreign}"), None
    request = client.create_lora_training_client(
        opened.model, rank=config.rank, seed=config.seed, user_metadata=metadata
    )
    return await _created(run, request, "a training client"), None


async def _created(run: Run, request: Awaitable[T], what: str) -> T:
    """Await a training client; a refusal is about the request, and nothing was trained."""
    try:
        return await run.answered(request, what)
    except Exception as error:
        if not is_refusal(error):
            raise
        raise UsageError(str(explain(error))) from error


def _rewind(run: Run, step: int) -> None:
    """Set aside what the run will do again."""
    superseded = run.directory.rewind(step)
    for file in run.metrics_files:
        file.rewind(keep_metrics(step))
    if superseded:
        run.log.info("metrics after the checkpoint are set aside", lines=superseded)


@contextlib.contextmanager
def _signals(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM finish the step and save; a second one stops at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(number: signal.Signals) -> None:
        if run.interrupted:
            run.log.warning("stopping now", signal=number.name)
            task.cancel()
            return
        run.interrupted = True
        run.stop(f"{number.name} received")
        run.log.warning("stopping after this step; once more to stop now", signal=number.name)

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _final_sample(run: Run) -> tuple[str, str] | None:
    """Sample once from the first row's prompt; the run is over, so a failure is only logged."""
    try:
        row = run.train_rows[0]
        asked = row.data["prompt"]
        prompt = run.renderer.prompt(asked, row.data.get("tools"))
        if not run.fits(prompt):
            return None
        seed = run.sampling_seed(run.config.steps, row)
        (sequence,) = await run.sample(prompt, seed=seed)
        shown = asked if isinstance(asked, str) else asked[-1].get("content")
        return str(shown), run.renderer.text(sequence.tokens)
    except Exception as error:
        run.log.warning("no last sample", why=" ".join(str(error).split()))
        return None


def _way_on(run: Run, outcome: Outcome) -> str:
    if outcome.checkpoint is None:
        return "interrupted before the first step was done; nothing was saved"
    return (
        f"interrupted; {outcome.checkpoint.step} steps are saved; "
        f"go on with: {resume_command(run, outcome)}"
    )


def resume_command(run: Run, outcome: Outcome) -> str:
    """Return the command that goes on with a run."""
    path = run.directory.path
    out = path.name if path.parent == RUNS else str(path) if "/" in str(path) else f"{path}/"
    more = f" --steps {2 * outcome.steps}" if outcome.status == "completed" else ""
    return f"rlt run --out {shlex.quote(out)} --resume auto{more}"
