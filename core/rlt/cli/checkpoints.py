"""`rlt checkpoints`: what a run has saved, and how to make room."""

from __future__ import annotations

import asyncio
import shutil

import click

from rlt.config import resolve
from rlt.defaults.keep import surplus
from rlt.errors import UsageError
from rlt.run_directory import RunDirectory, existing
from rlt.types import Checkpoint
from rlt.verify import folder


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
    number = keep if keep is not None else saved["config"].get("keep", 3)
    run.claim(resume=True)  # not while the run is going on
    try:
        doomed = surplus(run.ledger(), number)
        for checkpoint in doomed:
            run.checkpoints.append({"step": checkpoint.step, "deleted": checkpoint.state})
        if saved["engine"] == "local":
            _delete_local(run, doomed)
        else:
            asyncio.run(_delete_hosted(saved["config"], doomed))
    finally:
        run.release()
    click.echo(f"deleted {len(doomed)} checkpoints", err=True)


def _delete_local(run: RunDirectory, doomed: list[Checkpoint]) -> None:
    for checkpoint in doomed:
        for path in (checkpoint.state, checkpoint.sampler):
            shutil.rmtree(folder(run, path), ignore_errors=True)


async def _delete_hosted(config: dict[str, object], doomed: list[Checkpoint]) -> None:
    import tinker  # noqa: PLC0415 - slow, and only for hosted runs

    from rlt import service  # noqa: PLC0415

    plan = service.plan(resolve([config]))
    rest = tinker.RestClient(base_url=plan.base_url, api_key=service.key(plan))
    try:
        for checkpoint in doomed:
            for path in (checkpoint.state, checkpoint.sampler):
                await rest.delete_checkpoint_from_tinker_path(path)
    except tinker.TinkerError as error:
        raise UsageError(f"the service did not delete a checkpoint: {error}") from error
