"""rlt: rows go in, Tinker calls come out, and everything in between is a hook.

A plugin needs these names and `rlt.rendering`; nothing else here is a promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt.errors import Interrupted, PluginError, RltError, RunError, UsageError
from rlt.hookspecs import hookimpl
from rlt.types import (
    JSON,
    Batch,
    Checkpoint,
    Loss,
    Outcome,
    PluginInfo,
    Row,
    RowOutcome,
    Rows,
    Split,
    StepRecord,
)

if TYPE_CHECKING:
    from rlt.run import Run

__version__ = "0.1.0"

__all__ = [
    "JSON",
    "Batch",
    "Checkpoint",
    "Interrupted",
    "Loss",
    "Outcome",
    "PluginError",
    "PluginInfo",
    "RltError",
    "Row",
    "RowOutcome",
    "Rows",
    "Run",
    "RunError",
    "Split",
    "StepRecord",
    "UsageError",
    "__version__",
    "hookimpl",
]


def __getattr__(name: str) -> object:
    if name == "Run":  # brings structlog, which `rlt --help` does without
        from rlt.run import Run  # noqa: PLC0415

        return Run
    raise AttributeError(f"module 'rlt' has no attribute {name!r}")
