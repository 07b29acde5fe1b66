"""`rlt convert`: datasets of other tools, as one of rlt's types."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlt.errors import UsageError

if TYPE_CHECKING:
    from rlt.dataset.convert import Conversion


@click.command(short_help="Convert other tools' datasets to rlt's types.")
@click.argument("file")
@click.option("--to", "target", required=True, metavar="sdft|dpo|environment", help="The type.")
@click.option("-o", "--output", metavar="OUT", help="Where to write; standard output by default.")
@click.option("--rejects", metavar="F", help="Where rows go that cannot be converted.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.pass_context
def command(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: click.Context,
    file: str,
    target: str,
    output: str | None,
    rejects: str | None,
    force: bool,
) -> None:
    """Convert other tools' datasets to rlt's types.

    FILE holds OpenAI chat rows (`messages`), ShareGPT, Alpaca, TRL's preference and
    prompt-completion rows, or rows of rlt's own types: as JSON Lines, as one JSON list, or as
    Parquet. Each row is told by its keys.

    What is written passes `rlt check`. Rows that cannot be converted go to a file of rejects, each
    with the reason, and the exit code is then 1.
    """
    from rlt.dataset.containers import rows_of  # noqa: PLC0415 - not for `rlt --help`
    from rlt.dataset.convert import Conversion  # noqa: PLC0415
    from rlt.dataset.files import FirstWrite, Replacement  # noqa: PLC0415
    from rlt.plugins import dataset_types  # noqa: PLC0415

    aside = Path(rejects or _beside(output or file))
    others = [path for path in (output, aside) if path and str(path) != file]
    taken = [path for path in others if Path(path).is_file()]
    if taken and not force:
        raise UsageError(f"{taken[0]} is there already; --force writes over it")
    with ExitStack() as files:
        write: Callable[[bytes], object] = sys.stdout.buffer.write
        if output:
            write = files.enter_context(Replacement(Path(output), keep=file)).write
        reject = files.enter_context(FirstWrite(aside, keep=file)).write
        conversion = Conversion(dataset_types()[target], write, reject)
        conversion.run(rows_of(file))
    sys.stdout.flush()
    _summarise(conversion, aside)
    ctx.exit(1 if conversion.reasons or not conversion.converted else 0)


def _beside(path: str) -> str:
    """Name the rejects after the output, or after the input in the current directory."""
    name = "stdin" if path == "-" else path
    return name.removesuffix(".jsonl") + ".rejects.jsonl"


def _summarise(conversion: Conversion, aside: Path) -> None:
    kinds = ", ".join(conversion.shapes)
    text = f"{conversion.converted:,} rows converted to {conversion.kind.name}"
    click.echo(text + (f" from {kinds}" if kinds else ""), err=True)
    if not conversion.reasons:
        return
    click.echo(f"{conversion.reasons.total():,} rows rejected, see {aside}:", err=True)
    for reason, count in conversion.reasons.most_common(5):
        click.echo(f"  {count:>6,}  {reason}", err=True)
    if len(conversion.reasons) > 5:
        click.echo(f"  and {len(conversion.reasons) - 5} other reasons", err=True)
