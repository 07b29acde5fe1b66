"""`rlt runs`: the runs in this directory."""

from __future__ import annotations

import click

from rlt.errors import RltError
from rlt.run_directory import RUNS, RunDirectory
from rlt.types import JSON


@click.command(short_help="List the runs under runs/.")
def command() -> None:
    """List the runs under runs/: plugin, model, steps done, last loss, checkpoints."""
    found = [RunDirectory(path.parent) for path in sorted(RUNS.glob("*/config.json"))]
    if not found:
        click.echo(f"no runs under {RUNS}/", err=True)
    for row in _aligned([_row(run) for run in found]):
        click.echo(row)


def _row(run: RunDirectory) -> list[str]:
    try:
        return _told(run, run.read_config())
    except (RltError, LookupError, TypeError) as error:
        return [run.name, f"broken: {' '.join(str(error).split())}", "", "", "", ""]


def _told(run: RunDirectory, saved: JSON) -> list[str]:
    steps = [line for line in run.metrics if "split" not in line]
    losses = [line["loss"] for line in steps if line["loss"] is not None]
    return [
        run.name,
        "+".join(saved["config"]["plugin"]),
        saved["model"],
        f"{len(steps)}/{saved['config']['steps']} steps",
        f"loss {losses[-1]:.4f}" if losses else "no loss",
        f"{len(run.ledger())} checkpoints",
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
