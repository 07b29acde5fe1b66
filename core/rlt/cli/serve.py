"""`rlt serve`: the embedded engine by itself, for any Tinker client."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from rlt import logs
from rlt.local import models


@click.command(short_help="Run the embedded engine for any Tinker client.")
@click.option("--model", metavar="NAME|DIR", help=f"The base model. [{models.DEFAULT_MODEL}]")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="0 takes a free one.")  # fmt: skip
@click.option("--checkpoints", type=click.Path(path_type=Path), default=Path("checkpoints"),
              show_default=True, metavar="DIR", help="Where saved weights go.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text",
              help="How to write the log. [text]")  # fmt: skip
def command(model: str | None, port: int, checkpoints: Path, log_format: logs.Format) -> None:
    """Serve a model on 127.0.0.1 to any Tinker client, until interrupted.

    Prints the URL when it is ready; give it to a client as base_url or TINKER_BASE_URL, with any
    key that starts with tml-.
    """
    logs.configure(log_format)
    models.require_local_extra()
    resolved = models.resolve(model)
    from rlt.local import server  # noqa: PLC0415 - brings torch

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server.start(resolved, store=checkpoints, port=port) as running:
        click.echo(running.url)
        logs.get_logger().info("serving", model=resolved.name, checkpoints=str(checkpoints))
        stopped.wait()
