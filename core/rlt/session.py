"""A run while its service is open: weights to start from, the loop, a last sample."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlt
from rlt import engine
from rlt.errors import RunError
from rlt.rendering import Unrenderable
from rlt.resume import Beginning
from rlt.run import Run
from rlt.run_directory import JsonLines, keep_metrics
from rlt.service_errors import explain
from rlt.types import Checkpoint, Outcome

if TYPE_CHECKING:
    from rlt.service import Service


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

    :raises rlt.Interrupted: when a signal ended it, after a checkpoint.
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
    client, config = opened.client, run.config
    if beginning.weights:
        run.log.warning(
            "no ledger knows these weights: a new run starts from them at step 0",
            weights=beginning.weights,
        )
        return await client.create_training_client_from_state(
            beginning.weights, user_metadata=metadata
        ), None
    for checkpoint in beginning.candidates:
        try:
            training = await client.create_training_client_from_state_with_optimizer(
                checkpoint.state, user_metadata=metadata
            )
        except Exception as error:
            if explain(error) is None:
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
    return await client.create_lora_training_client(
        opened.model, rank=config.rank, seed=config.seed, user_metadata=metadata
    ), None


def _rewind(run: Run, step: int) -> None:
    """Set aside what the run will do again."""
    superseded = run.directory.rewind(step)
    run.directory.checkpoints.rewind(lambda line: line["step"] <= step)
    if run.config.log:
        JsonLines(Path(run.config.log)).rewind(keep_metrics(step))
    if superseded:
        run.log.info("metrics after the checkpoint are set aside", lines=superseded)


@contextlib.contextmanager
def _signals(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM finish the step and save; a second one stops at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(number: signal.Signals) -> None:
        run.interrupted = True
        run.stop(f"{number.name} received")
        run.log.warning("stopping after this step; once more to stop now", signal=number.name)
        for each in numbers:
            loop.remove_signal_handler(each)

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _final_sample(run: Run) -> tuple[str, str] | None:
    row = run.train_rows[0]
    if "prompt" not in row.data:
        return None
    try:
        prompt = run.renderer.prompt(row.data["prompt"], row.data.get("tools"))
    except Unrenderable:
        return None
    if not run.fits(prompt):
        return None
    seed = run.sampling_seed(run.config.steps, row)
    (sequence,) = await run.sample(prompt, seed=seed)
    asked = row.data["prompt"]
    shown = asked if isinstance(asked, str) else asked[-1].get("content")
    return str(shown), run.renderer.text(sequence.tokens)


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
    out = path.name if path.parent == Path("runs") else f"{path}/" if "/" not in str(path) else path
    more = f" --steps {2 * outcome.steps}" if outcome.status == "completed" else ""
    return f"rlt run --out {out} --resume auto{more}"
