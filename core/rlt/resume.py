"""Where a run begins: at step 0, at a checkpoint of its own, or from other weights.

`--resume auto` takes the newest entry of the run's ledger that the service still has. A `tinker://`
path that a ledger knows goes on from its step, in the run it belongs to. One that no ledger knows
starts a new run at step 0 from those weights.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt.config import RunConfig, to_json
from rlt.errors import UsageError
from rlt.run_directory import RUNS, RunDirectory, directory_for
from rlt.types import JSON, Checkpoint

_FIXED = ("model", "rank", "seed", "prompts_per_step")
"""What a resumed run cannot change: its weights or its row order would no longer be the run's."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Which directory a run works in and which weights it starts from."""

    directory: RunDirectory
    resumes: bool = False
    """Whether it goes on with what the directory holds."""
    candidates: tuple[Checkpoint, ...] = ()
    """Checkpoints to go on from, the best first; empty for fresh weights."""
    weights: str | None = None
    """Weights of another run to start from, at step 0."""
    saved: Mapping[str, Any] | None = None
    """What `config.json` holds, when resuming."""

    @property
    def starting_weights(self) -> str | None:
        """What step 0 began with when it was not fresh weights, also for a run that goes on."""
        # only a run that began from other weights has such a path in its own configuration
        began: str | None = self.saved["config"]["resume"] if self.saved else None
        return self.weights or began


def find(out: str | None, resume: str | None, plugin: str) -> Beginning:
    """Decide where a run begins, from its `--out` and `--resume`.

    :param plugin: names the directory when `--out` does not.
    :raises UsageError: when there is nothing to resume.
    """
    if resume is None:
        return Beginning(directory_for(out or _new_name(plugin)))
    if resume == "auto":
        return _newest(out)
    if not resume.startswith("tinker://"):
        raise UsageError(f"--resume takes auto or a tinker:// path, not {resume!r}")
    owner = _owner(out, resume)
    if owner is None:
        return Beginning(directory_for(out or _new_name(plugin)), weights=resume)
    known = tuple(c for c in owner.ledger() if c.state == resume)
    return Beginning(owner, True, known, saved=owner.read_config())


def layer(saved: JSON) -> JSON:
    """Return a saved configuration as a layer for the resumed run.

    Paths were relative to where the run began; from elsewhere they are found there.
    """
    config = {**to_json(RunConfig()), **saved["config"]}  # an older rlt had fewer settings
    config.pop("resume", None)
    config.pop("out", None)
    began = Path(saved.get("directory", "."))
    for name in ("data", "eval_data", "log"):
        config[name] = _from(began, config[name])
    config["plugin"] = [_from(began, name) if name.endswith(".py") else name
                        for name in config["plugin"]]  # fmt: skip
    return {**config, "model": saved["model"], "engine": saved["engine"]}


def _from(began: Path, path: str | None) -> str | None:
    if not path or path == "-" or Path(path).exists() or not (began / path).exists():
        return path
    return str(began / path)


def require_plugins(saved: JSON, names: Sequence[str]) -> None:
    """Check that a resumed run has its plugins, before their options are looked at.

    :raises UsageError: when others are named.
    """
    before = list(layer(saved)["plugin"])
    if list(names) != before:
        raise UsageError(
            f"--plugin {'+'.join(names)}: the run being resumed has {'+'.join(before)}; "
            "keep it, or start a new run with another --out"
        )


def require_same(saved: JSON, config: RunConfig, data_sha256: str | None) -> None:
    """Check that a resumed run is still the same run.

    :raises UsageError: naming the first setting, or the data, that differs.
    """
    before = layer(saved)
    for name in _FIXED:
        now = getattr(config, name)
        then = before[name]
        if now != then:
            raise UsageError(
                f"--{name.replace('_', '-')} {now}: the run being resumed has "
                f"{then}; keep it, or start a new run with another --out"
            )
    if saved.get("data_sha256") != data_sha256:
        raise UsageError(
            f"{config.data} is not the data that the run began with; "
            "restore it, or start a new run with another --out"
        )


def changes(saved: JSON, config: RunConfig) -> JSON:
    """Return the settings that differ from the saved ones and may: name -> [before, now]."""
    before = layer(saved)
    names = ("lr", "schedule", "warmup", "horizon", "weight_decay", "grad_clip", "beta1", "beta2",
             "substeps", "group_size", "max_tokens", "temperature", "thinking")  # fmt: skip
    then = {**{name: before[name] for name in names}, **before["options"]}
    now = {**{name: getattr(config, name) for name in names}, **config.options}
    return {name: [then.get(name), now[name]] for name in now if then.get(name) != now[name]}


def _newest(out: str | None) -> Beginning:
    if out is None:
        raise UsageError("--resume auto needs --out NAME, the run to go on with")
    directory = directory_for(out)
    saved = directory.read_config()
    return Beginning(directory, True, tuple(reversed(directory.ledger())), saved=saved)


def _owner(out: str | None, state: str) -> RunDirectory | None:
    """Return the run whose ledger knows `state`: the one named by `--out`, or any under `runs/`."""
    if out is not None:
        places = [directory_for(out)]
    else:
        places = [RunDirectory(path.parent) for path in sorted(RUNS.glob("*/checkpoints.jsonl"))]
    return next((p for p in places if any(c.state == state for c in p.ledger())), None)


def _new_name(plugin: str) -> str:
    """Name a run after its plugin and the time, and number those of one second."""
    name = f"{plugin}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(each for each in names if not (RUNS / each).exists())
