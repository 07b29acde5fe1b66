"""The command line: one file for each command, loaded when it is called.

The table below is all that `rlt --help` needs, so it starts as fast as its libraries do. This is
also the only place that prints an error: one line, and the exit code of its kind.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

COMMANDS = {
    "run": "Train a model with a plugin.",
    "check": "Check datasets and report every finding.",
    "convert": "Convert other tools' datasets to rlt's types.",
    "schemas": "List the dataset types, or print a schema.",
    "plugins": "List plugins, and show what one takes.",
    "runs": "List the runs under runs/.",
    "checkpoints": "List a run's checkpoints, or delete old ones.",
    "verify": "Check a run's files, or compare two runs.",
    "serve": "Run the embedded engine for any Tinker client.",
}
"""Each command and its one-line help; a test holds them to the commands' own."""


class _Lazy(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"rlt.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from rlt.config import suggestion  # noqa: PLC0415 - only for a mistake

        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}{suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rlt", message="rlt %(version)s")
def rlt() -> None:
    """Train language models through Tinker: rows in, calls out, hooks in between."""


@contextlib.contextmanager
def closed_pipe_is_fine() -> Iterator[None]:
    """Print results inside: a reader that has seen enough (`| head`) is no failure of the run."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(_status(list(sys.argv[1:] if arguments is None else arguments)))


def _status(arguments: list[str]) -> int:
    from rlt.errors import RltError  # noqa: PLC0415

    if "rlt.logs" in sys.modules:
        from rlt import logs  # noqa: PLC0415 - slow, and only when several commands share a process

        logs.chosen = logs.DEFAULT
    try:
        result = rlt.main(arguments, prog_name="rlt", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        hint = f"; see {where.command_path} --help" if where else ""
        return _report(error.format_message().rstrip(".") + hint, 2)
    except (click.Abort, KeyboardInterrupt):
        return _report("interrupted", 130)
    except RltError as error:
        return _report(str(error), error.exit_code, error)
    except OSError as error:
        return _report(f"cannot write the output: {error.strerror}", 1)


def _report(message: str, code: int, error: Any = None) -> int:
    """Print an error as the log is printed, if a command has begun to log."""
    logs = sys.modules.get("rlt.logs")
    fmt, level = logs.chosen if logs else ("text", "info")
    line = " ".join(message.split())
    if error is not None and level == "debug":
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    if fmt == "json":
        import json  # noqa: PLC0415

        click.echo(json.dumps({"level": "error", "event": line, "exit_code": code}), err=True)
    else:
        click.echo(f"rlt: {line}", err=True)
    return code
