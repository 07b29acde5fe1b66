"""The nouns of plugins and hooks.

A plugin declares itself with `PluginInfo`. Rows come in; it turns a step's rows into a `Batch`;
the engine answers with a `StepRecord` and, now and then, a `Checkpoint`. Everything here is plain,
frozen data, cheap to import: the SDK's own types appear in annotations only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import tinker
    import torch

Split = Literal["train", "eval"]
"""Which of a run's two row sources is meant: `--data` or `--eval-data`."""

JSON = dict[str, Any]
"""One JSON object."""

CustomLoss = Callable[
    [list["tinker.Datum"], list["torch.Tensor"]], tuple["torch.Tensor", dict[str, float]]
]
"""A loss written by a plugin: (datums, their log-probabilities) -> (scalar to minimise, metrics).

It is handed to the SDK's `forward_backward_custom`; metric names have the form `name:reduction`."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin declares about itself, as its module attribute `PLUGIN`."""

    summary: str = ""
    """One line for `rlt plugins`."""

    dataset_type: str | None = None
    """The type of rows it eats; None for a plugin that only observes."""

    options: Mapping[str, JSON] = field(default_factory=dict)
    """Its options: name -> JSON Schema with `default` and `description`. Set by `-o name=value`."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Its own defaults for fields of `RunConfig`, under the config file and the command line."""

    example: JSON | None = None
    """A row to run on when there is no `--data`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dataset, exactly as its file holds it."""

    data: JSON
    """The JSON object; keys keep their order, values are never coerced."""

    id: str
    """A hash of the row's bytes: the same content has the same id in any file, run or machine."""

    path: str
    """The file it came from, as the user named it."""

    line: int
    """Its line there, counted from 1."""

    @property
    def where(self) -> str:
        """`file:line`, for messages."""
        return f"{self.path}:{self.line}"


class Rows(Protocol):
    """What `load_rows` returns: rows by number, read when asked for. A list of `Row` is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Row: ...


class Environment(Protocol):
    """One episode of an environment row. It speaks first; then the model and it take turns.

    `reset`, `observe`, then `act` and, unless it is `done`, `observe` again, and so on; at the end
    `reward`. Every method is async, so that all episodes of a step go on together.
    """

    async def reset(self, seed: int) -> None:
        """Begin. The same seed must give the same episode."""
        ...

    async def observe(self) -> str | Sequence[JSON]:
        """Return what the model has not seen yet: a user's text, or messages (tool results too)."""
        ...

    async def act(self, action: str) -> None:
        """Take what the model said, without its stop token."""
        ...

    async def done(self) -> bool:
        """Say whether the episode is over."""
        ...

    async def reward(self) -> float | None:
        """Return the episode's reward; None leaves it to `score`, which gets the last action."""
        ...


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What became of one row in one step; the row ledger's line."""

    row: Row
    datums: int
    """How many datums were made of it; 0 when it was dropped."""

    dropped: str | None = None
    """Why nothing of it was trained on (`too-long`, `rejected:empty`, …); None when it was."""

    truncated: bool = False
    """Whether a completion of it was cut at `--max-tokens`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A step's training data, with an account of every row that was given."""

    datums: Sequence[tinker.Datum]
    outcomes: Sequence[RowOutcome]
    """One for each row of the step, in the order given."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further numbers for the step's metrics line; `mean_reward` is one the engine knows."""

    samples: Sequence[JSON] = ()
    """Lines for `samples.jsonl`: what was sampled, beside what it was sampled from."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What to minimise: one of the service's losses by name, or a plugin's own function."""

    name: str = "cross_entropy"
    config: Mapping[str, float | str] | None = None
    custom: CustomLoss | None = None
    """Takes the place of `name`; needs torch."""

    read: Callable[[Sequence[Any], Sequence[tinker.Datum]], float | Mapping[str, float]] | None = (
        None
    )
    """Reads the step's `loss` out of (`loss_fn_outputs`, datums); None takes the service's sum.

    A mapping holds the `loss` and further numbers for the metrics line."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished optimizer step."""

    step: int
    """Counted from 0; never twice in a run, resumed or not."""

    metrics: JSON
    """The metrics line: `step`, `mean_reward`, `n_datums`, `loss` and whatever plugins add."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights that the service has confirmed."""

    step: int
    """Completed steps, so also the step that a resumed run does next."""

    state: str
    """`tinker://` path of weights and optimizer state: what `--resume` takes."""

    sampler: str
    """`tinker://` path of the same weights for sampling."""


Status = Literal["completed", "stopped", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    steps: int
    """Completed steps, those before a resume included."""

    checkpoint: Checkpoint | None
    """The newest one."""

    reason: str = ""
