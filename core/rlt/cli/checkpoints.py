"""`rlt checkpoints`: what a run has saved, and how to make room."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import click

from rlt.config import resolve
from rlt.defaults.keep import surplus
from rlt.errors import RunError
from rlt.local.layout import checkpoint_folder
from rlt.run_directory import RunDirectory, existing
from rlt.types import JSON, Checkpoint

Delete = Callable[[Checkpoint], None]
"""Deletes a checkpoint's weights, both kinds; one that is gone already is no error."""


@click.command(short_help="List a run's checkpoints, or delete old ones.")
@click.argument("run", metavar="RUN")
@click.option("--prune", is_flag=True, help="Delete all but the newest and --keep before it.")
@click.option("--keep", type=click.IntRange(0), metavar="N",
              help="How many to keep besides the newest. [the run's]")  # fmt: skip
def command(run: str, prune: bool, keep: int | None) -> None:
    """List a run's checkpoints, or delete old ones. The newest always stays."""
    directory = existing(run)
    if prune:
        _prune(directory, keep)
    for checkpoint in directory.ledger():
        click.echo(f"{checkpoint.step:>8}  {checkpoint.state}  {checkpoint.sampler}")


def _prune(run: RunDirectory, keep: int | None) -> None:
    saved = run.read_config()
    number = keep if keep is not None else saved["config"]["keep"]
    run.claim(resume=True)  # not while the run is going on
    try:
        doomed = surplus(run.ledger(), number)
        delete = _deleter(run, saved)
        for checkpoint in doomed:
            delete(checkpoint)
            run.checkpoints.append({"step": checkpoint.step, "deleted": checkpoint.state})
            click.echo(f"deleted step {checkpoint.step}", err=True)
        if saved["engine"] == "local":
            _delete_orphans(run)
    finally:
        run.release()


def _deleter(run: RunDirectory, saved: JSON) -> Delete:
    def delete(checkpoint: Checkpoint) -> None:
        for path in (checkpoint.state, checkpoint.sampler):
            folder = checkpoint_folder(run.weights, path)
            if folder.exists():
                shutil.rmtree(folder)

    return delete if saved["engine"] == "local" else _hosted_deleter(saved)


def _hosted_deleter(saved: JSON) -> Delete:
    import tinker  # noqa: PLC0415 - slow, and only for hosted runs

    from rlt import service  # noqa: PLC0415

    plan = service.plan(resolve([saved["config"], {"engine": saved["engine"]}]))
    rest = tinker.RestClient(base_url=plan.base_url, api_key=service.key(plan))

    async def delete(checkpoint: Checkpoint) -> None:
        for path in (checkpoint.state, checkpoint.sampler):
            try:
                await rest.delete_checkpoint_from_tinker_path(path)
            except tinker.NotFoundError:
                continue
            except tinker.TinkerError as error:
                raise RunError(f"the service did not delete {path}: {error}") from error

    return lambda checkpoint: asyncio.run(delete(checkpoint))


def _delete_orphans(run: RunDirectory) -> None:
    """Delete weights that no ledger line speaks of: a killed run's last save, or half of one."""
    known = {
        checkpoint_folder(run.weights, path)
        for checkpoint in run.ledger()
        for path in (checkpoint.state, checkpoint.sampler)
    }
    for path in [*run.weights.glob("*/*/*"), *run.weights.glob("*/*/.*")]:
        if path not in known:
            shutil.rmtree(path)
            click.echo(f"deleted {path}, which no ledger knows", err=True)
