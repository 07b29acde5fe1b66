"""`rlt schemas`: the dataset types, and their schemas for an editor or another program."""

from __future__ import annotations

import json

import click


@click.group(invoke_without_command=True, short_help="List the dataset types, or print a schema.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of text.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the dataset types, or print a schema."""
    from rlt.plugins import dataset_types  # noqa: PLC0415 - not for `rlt --help`

    if ctx.invoked_subcommand:
        return
    types = dataset_types()
    if as_json:
        keys = ("name", "summary", "schema")
        found = [{key: getattr(kind, key) for key in keys} for kind in types]
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    width = max((len(kind.name) for kind in types), default=0)
    for kind in types:
        click.echo(f"{kind.name:<{width}}  {kind.summary}")


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the JSON Schema of the type NAME."""
    from rlt.plugins import dataset_types  # noqa: PLC0415

    click.echo(json.dumps(dataset_types()[name].schema, indent=2, ensure_ascii=False))
