"""One frozen configuration, put together in layers.

From the lowest: the defaults here, the plugin's own defaults, the configuration of the run that is
resumed, the file given by `--config`, the command line. Each layer is a plain mapping of field
names, so that a field is set exactly where a layer names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from rlt.errors import UsageError
from rlt.types import JSON

ENGINES = ("auto", "tinker", "local")
SCHEDULES = ("constant", "linear", "cosine")
THINKING = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that decides a run; the names are those of the command line."""

    plugin: tuple[str, ...] = ()
    """Algorithm and observer plugins, by name or as a path to a `.py` file."""
    data: str | None = None
    """The training file; `-` is standard input; None runs the plugin's example row."""
    eval_data: str | None = None
    """The held-out file."""
    eval_every: int = 10
    """Completed steps between evaluations; 0 evaluates before and after only."""
    log: str | None = None
    """A further file for the metrics lines."""
    steps: int = 50
    """Optimizer steps in all, those before a resume included."""
    rank: int = 32
    """LoRA rank."""
    lr: float = 5e-4
    """Adam's learning rate."""
    out: str | None = None
    """The run's name (its directory is `runs/NAME`), or a directory when it has a slash."""
    seed: int = 0
    """Decides the LoRA initialisation, the order of rows and every sample."""
    resume: str | None = None
    """`auto`, or the `tinker://` path of a saved state."""
    group_size: int = 1
    """Samples for each prompt."""
    prompts_per_step: int = 1
    """Rows in a step."""
    max_tokens: int = 256
    """The longest sample, in tokens."""
    temperature: float = 0.5
    """The sampling temperature; 0 takes the likeliest token."""
    thinking: str = "auto"
    """A reasoning model's thoughts; `auto`: off where an answer without one needs it."""
    save_every: int = 10
    """Completed steps between checkpoints; 0 saves at the end only."""
    model: str | None = None
    """The base model; None takes the engine's default."""
    engine: str = "auto"
    """`tinker`, `local` or `auto`."""
    base_url: str | None = None
    """The address of a Tinker-compatible server."""
    schedule: str = "constant"
    """How the learning rate falls: `constant`, `linear` or `cosine`."""
    warmup: int = 0
    """Steps over which the learning rate rises to `lr`."""
    horizon: int | None = None
    """The step at which the schedule ends; None is `steps`. A resumed run keeps it."""
    weight_decay: float = 0.0
    """Adam's decoupled weight decay."""
    grad_clip: float = 0.0
    """The largest global gradient norm; 0 does not clip."""
    beta1: float = 0.9
    """Adam's decay of the first moment."""
    beta2: float = 0.95
    """Adam's decay of the second moment."""
    substeps: int = 1
    """Parts that a step's datums are sent in; the gradient is the same for any number."""
    keep: int = 3
    """Checkpoints to keep besides the newest; 0 keeps all."""
    ttl: int | None = None
    """Seconds after which the service may delete a checkpoint; None never."""
    max_wait: float = 0.0
    """Seconds to wait for one request; 0 waits for ever."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The selected plugins' options, defaults filled in."""


FIELDS = {f.name: f for f in dataclasses.fields(RunConfig)}
_AT_LEAST = {"eval_every": 0, "steps": 1, "rank": 1, "seed": 0, "group_size": 1,
             "prompts_per_step": 1, "max_tokens": 1, "temperature": 0, "save_every": 0,
             "warmup": 0, "horizon": 1, "weight_decay": 0, "grad_clip": 0, "beta1": 0, "beta2": 0,
             "substeps": 1, "keep": 0, "ttl": 3600, "max_wait": 0}  # fmt: skip
_BELOW_ONE = ("beta1", "beta2")
_CHOICES = {"engine": ENGINES, "schedule": SCHEDULES, "thinking": THINKING}
_NOT_THE_TRAJECTORY = ("log", "out", "resume", "steps", "eval_data", "eval_every", "save_every",
                       "engine", "base_url", "keep", "ttl", "max_wait")  # fmt: skip


def resolve(layers: Sequence[Mapping[str, Any]]) -> RunConfig:
    """Lay the mappings over each other, the last on top, and check every value.

    :raises UsageError: for an unknown field, a value of the wrong type or out of range.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in layer.items() if key != "options"}
    for key, value in merged.items():
        merged[key] = _checked(key, value)
    options = {key: value for layer in layers for key, value in layer.get("options", {}).items()}
    return RunConfig(**merged, options=options)


def read_file(path: Path) -> JSON:
    """Read a layer from a TOML file: fields by name (`-` or `_`), options in `[options]`."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    layer = {key.replace("-", "_"): value for key, value in data.items()}
    if not isinstance(layer.get("options", {}), dict):
        raise UsageError(f"--config {path}: options must be a table, [options]")
    if isinstance(layer.get("plugin"), str):
        layer["plugin"] = [layer["plugin"]]
    try:
        for key, value in layer.items():
            if key != "options":
                _checked(key, value)
    except UsageError as error:
        raise UsageError(f"--config {path}: {error}") from None
    return layer


def to_json(config: RunConfig) -> JSON:
    """Return the configuration as JSON, without secrets: a URL loses its user and password."""
    data = dataclasses.asdict(config)
    data["plugin"] = list(config.plugin)
    data["base_url"] = config.base_url and without_credentials(config.base_url)
    return data


def fingerprint(config: RunConfig) -> str:
    """Hash what decides a run's trajectory: two runs with the same one do the same steps."""
    data = {k: v for k, v in to_json(config).items() if k not in _NOT_THE_TRAJECTORY}
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=8).hexdigest()


def without_credentials(url: str) -> str:
    """Return `url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _checked(key: str, value: Any) -> Any:
    if key not in FIELDS:
        raise UsageError(f"the configuration has no {key!r}{suggestion(key, FIELDS)}")
    hint = str(get_type_hints(RunConfig)[key])
    if key == "plugin":
        if not (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)):
            raise UsageError(f"plugin must be a list of names, not {value!r}")
        return tuple(value)
    if value is None and "None" in hint:
        return None
    if "float" in hint and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    expected = float if "float" in hint else int if "int" in hint else str
    if type(value) is not expected:
        raise UsageError(f"{_flag(key)} must be {_NOUN[expected]}, not {value!r}")
    _check_range(key, value)
    return value


_NOUN: dict[type, str] = {int: "a whole number", float: "a number", str: "a string"}


def _check_range(key: str, value: Any) -> None:
    if key in _AT_LEAST and not value >= _AT_LEAST[key]:
        raise UsageError(f"{_flag(key)} must be at least {_AT_LEAST[key]}, not {value}")
    if key == "lr" and not 0 < value < float("inf"):
        raise UsageError(f"--lr must be a number above 0, not {value}")
    if key == "seed" and not value < 2**63:
        raise UsageError(f"--seed must be below 2**63, not {value}")
    if key in _BELOW_ONE and not value < 1:
        raise UsageError(f"{_flag(key)} must be below 1, not {value}")
    if isinstance(value, float) and not value < float("inf"):
        raise UsageError(f"{_flag(key)} must be finite, not {value}")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise UsageError(f"{_flag(key)} must be one of {', '.join(_CHOICES[key])}, not {value!r}")


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def suggestion(word: str, known: Any) -> str:
    """Return `; did you mean 'x'?` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
