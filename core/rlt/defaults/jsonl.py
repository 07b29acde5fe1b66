"""Rows from a JSON Lines file, each checked against the schema of the plugin's dataset type."""

from __future__ import annotations

import hashlib
import json

import rlt


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
    return rlt.open_rows(path, run.dataset_types[run.algorithm.dataset_type])


def _example(run: rlt.Run) -> rlt.Row:
    if run.algorithm.example is None:
        raise rlt.UsageError(f"plugin {run.name!r} has no built-in example; give --data FILE")
    data = run.algorithm.example
    digest = hashlib.blake2b(json.dumps(data).encode(), digest_size=8).hexdigest()
    run.log.warning("no --data: the built-in example is a smoke test, not training")
    return rlt.Row(data, digest, f"<{run.name} example>", 1)
