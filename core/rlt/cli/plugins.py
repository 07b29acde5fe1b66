"""`rlt plugins`: which plugins there are, what they take, and which are broken."""

from __future__ import annotations

import json

import click

from rlt import plugins
from rlt.plugins import Plugin
from rlt.types import JSON


@click.group(invoke_without_command=True, short_help="List plugins, and show what one takes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of text.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List plugins, and show what one takes."""
    if ctx.invoked_subcommand:
        return
    found = [
        plugin for plugin in plugins.installed().values() if plugin.name not in plugins.DEFAULTS
    ]
    if as_json:
        click.echo(json.dumps([_as_json(plugin) for plugin in found], indent=2))
        return
    width = max((len(plugin.name) for plugin in found), default=0)
    for plugin in found:
        text = f"BROKEN: {plugin.failure}" if plugin.failure else plugin.info.summary
        click.echo(f"{plugin.name:<{width}}  {text}  [{plugin.origin}]")


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Show a plugin's dataset type, hooks, options and defaults.

    NAME is an installed plugin or a path to a .py file.
    """
    plugin = plugins.find(name)
    info = plugin.info
    click.echo(f"{plugin.name}: {info.summary}")
    click.echo(f"from      {plugin.origin}")
    click.echo(f"rows      {info.dataset_type or 'any'}")
    click.echo(f"hooks     {', '.join(plugin.hooks)}")
    for key, value in info.defaults.items():
        click.echo(f"default   --{key.replace('_', '-')} {value}")
    for key, schema in info.options.items():
        click.echo(f"option    -o {key}={_values(schema)}  {schema.get('description', '')}")


def _values(schema: JSON) -> str:
    default = schema.get("default")
    if "enum" in schema:
        others = [str(value) for value in schema["enum"] if value != default]
        return "|".join([f"[{default}]", *others])
    return f"[{json.dumps(default)}]"


def _as_json(plugin: Plugin) -> JSON:
    info = plugin.info
    return {
        "name": plugin.name,
        "origin": plugin.origin,
        "failure": plugin.failure or None,
        "summary": info.summary,
        "dataset_type": info.dataset_type,
        "hooks": list(plugin.hooks),
        "options": dict(info.options),
        "defaults": dict(info.defaults),
    }
