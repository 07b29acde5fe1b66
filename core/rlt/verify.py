"""Hold a run's files against what they promise, and two runs against each other.

The row order is a function of the configuration, so the row ledger can be recomputed; steps count
up from 0; a checkpoint's label is the number of steps behind it. Whatever differs is said in one
line each.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlt.config import RunConfig, fingerprint, resolve
from rlt.dataset import Order, open_rows
from rlt.local.layout import checkpoint_folder
from rlt.plugins import dataset_types
from rlt.run_directory import RunDirectory
from rlt.types import JSON, Rows

_TIMES = ("seconds", "time")


@dataclass(frozen=True, slots=True)
class Report:
    """What is found in one run's files."""

    problems: Sequence[str]
    """What is wrong; empty when all is as it should be."""
    unchecked: str
    """Why the order of rows could not be recomputed; empty when it could."""


def inspect(run: RunDirectory) -> Report:
    """Hold one run's files against what they promise; its data is read once."""
    saved = run.read_config()
    config = resolve([saved["config"]])
    steps = [line for line in run.metrics if "split" not in line]
    data = _data(saved, config)
    problems = [
        *_config(saved, config),
        *_steps(steps, [line for line in run.metrics if line.get("split") == "eval"]),
        *_rows(run, data, config, len(steps)),
        *_checkpoints(run, saved["engine"], len(steps)),
    ]
    return Report(problems, data if isinstance(data, str) else "")


def differences(one: RunDirectory, other: RunDirectory) -> list[str]:
    """Return where two runs differ: settings, metrics but for times, rows, samples, weights."""
    found = []
    prints = [run.read_config()["fingerprint"] for run in (one, other)]
    if prints[0] != prints[1]:
        found.append(f"the configurations differ ({prints[0]} and {prints[1]})")
    for name in ("metrics", "rows", "samples"):
        files = [list(map(_timeless, getattr(run, name))) for run in (one, other)]
        found += _first_difference(f"{name}.jsonl", *files)
    found += _weights(one, other)
    return found


def _config(saved: JSON, config: RunConfig) -> Iterator[str]:
    if saved["fingerprint"] != fingerprint(config):
        yield "config.json: the settings were changed after the run began (fingerprint)"


def _steps(steps: Sequence[JSON], evaluations: Sequence[JSON]) -> Iterator[str]:
    numbers = [line["step"] for line in steps]
    for step, count in Counter(numbers).items():
        if count > 1:
            yield f"metrics.jsonl: step {step} is there {count} times"
    missing = sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers))
    if missing:
        yield f"metrics.jsonl: step {missing[0]} is missing"
    for step, count in Counter(line["step"] for line in evaluations).items():
        if count > 1:
            yield f"metrics.jsonl: the evaluation after {step} steps is there {count} times"


def _rows(run: RunDirectory, rows: Rows | str, config: RunConfig, steps: int) -> Iterator[str]:
    used: dict[int, list[JSON]] = {}
    for line in run.rows:
        used.setdefault(line["step"], []).append(line)
    for step in range(steps):
        count = len(used.get(step, ()))
        if count != config.prompts_per_step:
            yield f"rows.jsonl: step {step} used {count} rows, not {config.prompts_per_step}"
    if isinstance(rows, str):
        return
    order = Order(len(rows), config.seed)
    for step, lines in used.items():
        first = step * config.prompts_per_step
        planned = [rows[order.index(first + i)].id for i in range(config.prompts_per_step)]
        if [line["row"] for line in lines] != planned:
            yield f"rows.jsonl: the rows of step {step} are not those of the run's order"


def _data(saved: JSON, config: RunConfig) -> Rows | str:
    """Return the run's rows, or why they cannot be had any more."""
    kind, path = saved["dataset_type"], config.data
    if path is None or path == "-" or kind is None:
        return "the run did not read them from a file"
    if not Path(path).exists():
        return f"{path} is not there"
    rows = open_rows(path, dataset_types()[kind])
    if rows.sha256 != saved["data_sha256"]:
        return f"{path} has changed since"
    return rows


def _checkpoints(run: RunDirectory, engine: str, steps: int) -> Iterator[str]:
    for checkpoint in run.ledger():
        label = checkpoint.state.rpartition("/")[2]
        if label != f"step-{checkpoint.step:06d}":
            yield f"checkpoints.jsonl: {label} is written down as step {checkpoint.step}"
        if checkpoint.step > steps:
            yield f"checkpoints.jsonl: step {checkpoint.step} is saved but only {steps} were done"
        if engine == "local" and not checkpoint_folder(run.weights, checkpoint.state).is_dir():
            yield f"checkpoints.jsonl: {checkpoint.state} is not in {run.weights}"


def _timeless(line: JSON) -> JSON:
    return {key: value for key, value in line.items() if key not in _TIMES}


def _first_difference(name: str, one: list[JSON], other: list[JSON]) -> Iterator[str]:
    for number, (a, b) in enumerate(zip(one, other, strict=False), 1):
        if a != b:
            keys = [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
            yield f"{name}:{number}: {_shown(sorted(keys)[0], a, b)}"
            return
    if len(one) != len(other):
        yield f"{name}: {len(one)} lines and {len(other)}"


def _shown(key: str, a: JSON, b: JSON) -> str:
    return f"{key} is {str(a.get(key))[:60]!r} and {str(b.get(key))[:60]!r}"


def _weights(one: RunDirectory, other: RunDirectory) -> Iterator[str]:
    """Compare the newest weights that both have at the same step, when they are on this machine."""
    ledgers = [{c.step: c for c in run.ledger()} for run in (one, other)]
    common = sorted(ledgers[0].keys() & ledgers[1].keys())
    if not common:
        return
    digests = []
    for run, ledger in zip((one, other), ledgers, strict=True):
        file = (
            checkpoint_folder(run.weights, ledger[common[-1]].sampler) / "adapter_model.safetensors"
        )
        if not file.exists():
            return
        digests.append(hashlib.sha256(file.read_bytes()).hexdigest())
    if digests[0] != digests[1]:
        yield f"the weights after {common[-1]} steps differ"
