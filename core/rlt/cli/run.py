"""`rlt run`: train with a plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlt import launch, logs
from rlt.cli import closed_pipe_is_fine
from rlt.config import ENGINES, SCHEDULES, THINKING, RunConfig
from rlt.run_directory import RunDirectory
from rlt.session import Finished, resume_command
from rlt.types import JSON

_D = RunConfig()


def _once(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    if len(values) > 1:
        raise click.BadParameter("give one file; join several with cat", param=option)
    return values[0] if values else None


@click.command(short_help="Train a model with a plugin.")
@click.option(
    "--plugin",
    multiple=True,
    metavar="NAME|FILE.py",
    help="The algorithm; repeat it to add observers.",
)
@click.option(
    "--data",
    multiple=True,
    callback=_once,
    metavar="FILE",
    help="Training rows; - reads standard input.",
)
@click.option("--eval-data", multiple=True, callback=_once, metavar="FILE", help="Held-out rows.")
@click.option(
    "--eval-every", type=int, metavar="N", help=f"Steps between evaluations. [{_D.eval_every}]"
)
@click.option("--log", metavar="FILE", help="A second file for the metrics lines.")
@click.option("--steps", type=int, metavar="N", help=f"Optimizer steps in all. [{_D.steps}]")
@click.option("--rank", type=int, metavar="N", help=f"LoRA rank. [{_D.rank}]")
@click.option("--lr", type=float, metavar="X", help=f"Learning rate. [{_D.lr}]")
@click.option("--out", metavar="NAME", help="The run's name: its files go to runs/NAME/.")
@click.option("--seed", type=int, metavar="N", help=f"Decides order and samples. [{_D.seed}]")
@click.option("--resume", metavar="auto|PATH", help="Go on with a run, or from a tinker:// path.")
@click.option("--group-size", type=int, metavar="N", help="Samples a prompt. [the plugin's, or 1]")
@click.option(
    "--prompts-per-step", type=int, metavar="N", help=f"Rows a step. [{_D.prompts_per_step}]"
)
@click.option("--max-tokens", type=int, metavar="N", help=f"Longest sample. [{_D.max_tokens}]")
@click.option(
    "--temperature", type=float, metavar="X", help=f"Sampling temperature. [{_D.temperature}]"
)
@click.option(
    "--thinking", type=click.Choice(THINKING), help=f"A reasoning model's thoughts. [{_D.thinking}]"
)
@click.option(
    "--save-every", type=int, metavar="N", help=f"Steps between checkpoints. [{_D.save_every}]"
)
@click.option(
    "--keep",
    type=int,
    metavar="N",
    help=f"Checkpoints to keep besides the newest; 0 keeps all. [{_D.keep}]",
)
@click.option(
    "--ttl", type=int, metavar="SECONDS", help="When the service may delete them. [never]"
)
@click.option(
    "--schedule", type=click.Choice(SCHEDULES), help=f"How the learning rate falls. [{_D.schedule}]"
)
@click.option("--warmup", type=int, metavar="N", help=f"Steps to reach --lr. [{_D.warmup}]")
@click.option("--horizon", type=int, metavar="N", help="Where the schedule ends. [--steps]")
@click.option("--weight-decay", type=float, metavar="X", help=f"Adam's. [{_D.weight_decay}]")
@click.option(
    "--grad-clip",
    type=float,
    metavar="X",
    help=f"Largest gradient norm; 0 does not clip. [{_D.grad_clip}]",
)
@click.option("--beta1", type=float, metavar="X", help=f"Adam's. [{_D.beta1}]")
@click.option("--beta2", type=float, metavar="X", help=f"Adam's. [{_D.beta2}]")
@click.option(
    "--substeps", type=int, metavar="N", help=f"Parts to send a step's datums in. [{_D.substeps}]"
)
@click.option(
    "--max-wait",
    type=float,
    metavar="SECONDS",
    help="Give up on a request after this long; 0 never. [0]",
)
@click.option("--model", metavar="NAME|DIR", help="The base model. [the engine's default]")
@click.option("--engine", type=click.Choice(ENGINES), help=f"Who trains. [{_D.engine}]")
@click.option("--base-url", metavar="URL", help="A Tinker-compatible server.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file with these settings; the command line wins.",
)
@click.option(
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the plugin; `rlt plugins show NAME` lists them.",
)
@click.option("--dry-run", is_flag=True, help="Check all, show a prompt; train nothing.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to write the log. [text]",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    help="How much to log; debug adds tracebacks. [info]",
)
def command(
    file: Path | None, log_format: logs.Format, log_level: str, *, dry_run: bool, **settings: Any
) -> None:
    """Train a model with a plugin, and save checkpoints that can be resumed exactly.

    \b
    rlt run --plugin sdft --data traces.jsonl
    rlt run --plugin sdft --data traces.jsonl --out demo --steps 20
    rlt run --out demo --resume auto --steps 40
    """
    logs.configure(log_format, log_level)
    given = {k: v for k, v in settings.items() if v is not None and v != ()}
    if dry_run:
        lines = [(name, _indented(text)) for name, text in launch.rehearse(given, file=file)]
    else:
        lines = _results(launch.launch(given, file=file))
    with closed_pipe_is_fine():
        for name, text in lines:
            click.echo(f"{name:<11} {text}")


def _results(finished: Finished) -> list[tuple[str, str]]:
    run, outcome = finished.run, finished.outcome
    lines = [("directory", str(run.directory.path)), ("rows", _row_account(run.directory, run))]
    if outcome.reason:
        lines.append(("stopped", outcome.reason))
    if outcome.checkpoint:
        lines += [
            ("checkpoint", outcome.checkpoint.state),
            ("sampler", outcome.checkpoint.sampler),
            ("resume", resume_command(run, outcome)),
        ]
    if finished.sample:
        prompt, answer = finished.sample
        lines += [("prompt", _shortened(prompt)), ("sample", _indented(answer))]
    return lines


def _row_account(directory: RunDirectory, run: Any) -> str:
    """Say what became of every row that was read."""
    best: dict[tuple[str, int], JSON] = {}
    for line in directory.rows:
        key = (line["file"], line["line"])
        if key not in best or line["datums"]:
            best[key] = line
    dropped: dict[str, int] = {}
    for line in best.values():
        if not line["datums"]:
            dropped[line["dropped"]] = dropped.get(line["dropped"], 0) + 1
    read, reached, lost = len(run.train_rows), len(best), sum(dropped.values())
    reasons = f" ({', '.join(f'{n} {why}' for why, n in sorted(dropped.items()))})" if lost else ""
    return (
        f"{read} read = {reached - lost} trained + {lost} dropped{reasons} "
        f"+ {read - reached} never reached"
    )


def _shortened(text: str, width: int = 76) -> str:
    line = _visible(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def _indented(text: str) -> str:
    return _visible(text.strip()).replace("\n", "\n" + " " * 12)


def _visible(text: str) -> str:
    """Return text whose control characters are written out, so that none reaches the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
