"""Rows from a JSON Lines file, each checked against the schema of the plugin's dataset type."""

from __future__ import annotations

import hashlib
import json
import re

import rlt

_LIKENESS = re.compile(r"these look like (\S+) rows")
"""How `open_rows` says that a file is of another type."""


@rlt.hookimpl
def load_rows(run: rlt.Run, split: rlt.Split) -> rlt.Rows:
    """Open the split's file, or take the plugin's example when there is no `--data`."""
    path = run.config.data if split == "train" else run.config.eval_data
    if path is None:
        return [_example(run)]
    if run.algorithm.dataset_type is None:
        raise rlt.UsageError(
            f"plugin {run.name!r} names no dataset type, so rlt cannot read {path} for it; "
            "declare PluginInfo(dataset_type=…) or implement load_rows"
        )
    try:
        return rlt.open_rows(path, run.dataset_types[run.algorithm.dataset_type])
    except rlt.UsageError as error:
        raise rlt.UsageError(f"{error}{_takers(run, str(error))}") from error


def _takers(run: rlt.Run, refusal: str) -> str:
    """Name the plugins that take what a refused file seems to hold."""
    likeness = _LIKENESS.search(refusal)
    if likeness is None:
        return ""
    kind = likeness[1]
    takers = run.plugins_for(kind)
    ways = f"there is --plugin {' or '.join(takers)}" if takers else "no plugin is installed"
    return f"; {run.name} takes {run.algorithm.dataset_type} rows, for {kind} rows {ways}"


def _example(run: rlt.Run) -> rlt.Row:
    if run.algorithm.example is None:
        raise rlt.UsageError(f"plugin {run.name!r} has no built-in example; give --data FILE")
    data = run.algorithm.example
    digest = hashlib.blake2b(json.dumps(data).encode(), digest_size=8).hexdigest()
    run.log.warning("no --data: the built-in example is a smoke test, not training")
    return rlt.Row(data, digest, f"<{run.name} example>", 1)
