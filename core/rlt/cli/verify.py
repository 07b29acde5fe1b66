"""`rlt verify`: hold a run against what it promises, or two against each other."""

from __future__ import annotations

import click

from rlt import verify
from rlt.run_directory import existing


@click.command(short_help="Check a run's files, or compare two runs.")
@click.argument("names", nargs=-1, required=True, metavar="RUN [RUN]")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Check a run's files, or compare two runs.

    RUN is a name under runs/ or a path with a slash. One run: every row used as planned, no step
    missing or twice, checkpoints labelled with their steps, the configuration unchanged. Two: also
    where they differ. Exit code 1 when anything is found.
    """
    if len(names) > 2:
        raise click.UsageError("one run to check, or two to compare")
    runs = [existing(name) for name in names]
    reports = [(run, verify.inspect(run)) for run in runs]
    found = [f"{run.path}: {problem}" for run, report in reports for problem in report.problems]
    if len(runs) == 2:
        found += verify.differences(*runs)
    for line in found:
        click.echo(line)
    for run, report in reports:
        if why := report.unchecked:
            click.echo(f"{run.path}: the order of rows was not checked: {why}", err=True)
    if not found:
        click.echo("the runs are equal" if len(runs) == 2 else "all is as it should be")
    ctx.exit(bool(found))
