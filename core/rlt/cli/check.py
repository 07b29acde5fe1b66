"""`rlt check`: everything that is wrong with datasets, before anything is paid for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from rlt.config import THINKING

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from rlt.dataset.source import Source
    from rlt.rendering import Thinking

_LARGE = 16 << 20
"""Bytes from which on a progress bar is worth its line."""


@click.command(short_help="Check datasets and report every finding.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--type", "kind", default="auto", show_default=True, help="The dataset type.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="How to print findings.",
)
@click.option("--against", metavar="TRAIN", help="A training file; its prompts must not come up.")
@click.option("--model", metavar="M", help="Also count tokens, as this model's template does.")
@click.option(
    "--thinking",
    type=click.Choice(THINKING),
    default="auto",
    help="With --model: as `rlt run`.",
)
@click.option("--max-findings", metavar="N", type=click.IntRange(0), help="Print no more than N.")
@click.option("--select", metavar="RULES", help="Apply only these rules (comma-separated).")
@click.option("--ignore", metavar="RULES", help="Do not apply these rules (comma-separated).")
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - one parameter for each option
    ctx: click.Context,
    files: tuple[str, ...],
    kind: str,
    form: str,
    against: str | None,
    model: str | None,
    thinking: Thinking,
    max_findings: int | None,
    select: str | None,
    ignore: str | None,
) -> None:
    """Check datasets and report every finding.

    FILE is JSON Lines, plain or compressed (.gz, .zst); `-` is standard input.

    Exits with 0 when there is no error (warnings are none), with 1 when there is one, and with 2
    when a file cannot be read.
    """
    from rlt.dataset.inspect import Inspection, hold_out, load_model  # noqa: PLC0415 - not for `rlt --help`
    from rlt.dataset.report import FORMATS  # noqa: PLC0415
    from rlt.dataset.rules import chosen  # noqa: PLC0415
    from rlt.plugins import dataset_types  # noqa: PLC0415

    rules, types = chosen(select, ignore), dataset_types()
    inspection = Inspection(types, kind, FORMATS[form](sys.stdout), rules)
    inspection.limit, inspection.progress = max_findings, _progress
    inspection.held = hold_out(against, types) if against else None
    inspection.model = load_model(model, thinking) if model else None
    code = inspection.run(files)
    for sentence in inspection.unreadable:
        click.echo(f"rlt: {sentence}", err=True)
    ctx.exit(code)


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[int], None]]:
    """Show how far a large file is read, if a person is watching."""
    if not sys.stderr.isatty() or (source.size or 0) < _LARGE:
        yield lambda _: None
        return
    bar: ProgressBar[int]
    with click.progressbar(length=source.size, label=source.label, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.pos)
