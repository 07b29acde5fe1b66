"""Every hook, in the order a run calls them.

A plugin is a module (or any object) with functions of these names marked `@rlt.hookimpl`. A
function may leave out arguments it does not need. "First result" hooks ask plugins one after
another, the selected ones before the built-in defaults, until one returns something other than
None; the others call every plugin. Where a hook "may be async", the engine awaits what it returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from rlt.types import (
    JSON,
    Batch,
    Checkpoint,
    Environment,
    Loss,
    Outcome,
    Row,
    Rows,
    Split,
    StepRecord,
)

if TYPE_CHECKING:
    from rlt.run import Run

hookspec = pluggy.HookspecMarker("rlt")
hookimpl = pluggy.HookimplMarker("rlt")
"""Marks a function of a plugin as the implementation of the hook of the same name."""

# ---- before a run: also called by `rlt check` and `rlt schemas`


@hookspec
def register_dataset_types(register: Callable[..., None]) -> None:
    """Add dataset types, which `rlt check`, `rlt run` and `rlt schemas` then know.

    Called on every installed plugin, selected or not, before any file is read.

    :param register: call it as `register(name, schema, summary="…")` with a JSON Schema of one row.
    """


# ---- the start of a run


@hookspec(firstresult=True)
def load_rows(run: Run, split: Split) -> Rows | None:
    """Return the rows of a split. First result; called once a split, before anything is paid for.

    The default reads the file of `--data` or `--eval-data`, checked against the schema of the
    plugin's dataset type.

    :param run: the run; its service is not open yet.
    :param split: `"train"` or `"eval"` (only when there is `--eval-data`).
    :return: anything with `len()` and `[index]` giving `Row`s; None to leave it to the next plugin.
    :raises rlt.UsageError: when the rows cannot be used; nothing has been trained then.
    """


@hookspec
def on_start(run: Run) -> None:
    """Called once, when the service is open and before the first step."""


# ---- each step


@hookspec(firstresult=True)
def make_datums(run: Run, step: int, rows: Sequence[Row]) -> Batch | Awaitable[Batch] | None:
    """Turn a step's rows into training data. First result; every step; may be async.

    This is where an algorithm samples, scores and masks. Submit all requests of the step before
    awaiting any of them.

    :param run: the run: `run.sampler()`, `run.renderer`, `run.options`, `run.sampling_seed(…)`.
    :param step: the step's number, from 0.
    :param rows: `--prompts-per-step` rows in the run's order.
    :return: a `Batch`, which accounts for each of `rows` with one `RowOutcome`.
    """


@hookspec(firstresult=True)
def compute_loss(run: Run, step: int, batch: Batch) -> Loss | None:
    """Choose what to minimise on `batch`. First result; every step that has datums.

    The default is the service's `cross_entropy`, whose mean over the weights becomes `loss`.

    :return: a `Loss`: a built-in by name with its config, or a custom function; None to decline.
    """


@hookspec
def on_step(run: Run, record: StepRecord) -> None:
    """Called after the optimizer step of `record.step` has been confirmed.

    May call `run.stop(reason)`: the run then saves a checkpoint and ends.
    """


@hookspec
def on_checkpoint(run: Run, checkpoint: Checkpoint) -> None:
    """Called when the service has confirmed that `checkpoint` is durable.

    Saving overlaps the next step: this may come before or after that step's `on_step`.
    """


# ---- evaluation


@hookspec(firstresult=True)
def evaluate(run: Run, rows: Rows) -> Mapping[str, float] | Awaitable[Mapping[str, float]] | None:
    """Measure the current weights on the held-out rows. First result; may be async.

    Called before step 0, every `--eval-every` completed steps and after the last of `--steps`.
    The default is the token-weighted mean negative log-likelihood (nats a token) of the rows'
    completions.

    :return: numbers for the metrics line, `loss` among them.
    """


@hookspec
def on_evaluate(run: Run, record: JSON) -> None:
    """Called after each evaluation with its metrics line.

    :param record: `{"split": "eval", "step": completed steps, "loss": …}`.
    """


# ---- environments


@hookspec(firstresult=True)
def make_environment(run: Run, row: Row) -> Environment | Awaitable[Environment] | None:
    """Return a new episode of an environment row. First result; may be async.

    Called once for each sample of the row, before any of them is begun.

    :return: an `Environment`; None when this plugin does not know the row. When none does, the
        row is one turn: its prompt, one completion, `score`.
    """


@hookspec(firstresult=True)
def score(run: Run, row: Row, completion: str) -> float | Awaitable[float] | None:
    """Reward one completion of an environment row. First result; may be async.

    :param completion: the sampled text, without its stop token.
    :return: the reward; None when this plugin does not know the row.
    """


# ---- the end


@hookspec
def on_finish(run: Run, outcome: Outcome) -> None:
    """Called once at the end, however the run ended; the service is still open."""


HOOKS: tuple[str, ...] = tuple(
    name for name, value in list(globals().items()) if hasattr(value, "rlt_spec")
)
"""The hooks' names, in the order of this file."""

ASYNC = ("make_datums", "evaluate", "make_environment", "score")
"""Those that may be async."""
