"""rlt: rows go in, Tinker calls come out, and everything in between is a hook.

A plugin needs these names and `rlt.rendering`; nothing else here is a promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlt.dataset import open_rows as open_rows
    from rlt.errors import Interrupted as Interrupted
    from rlt.errors import PluginError as PluginError
    from rlt.errors import RltError as RltError
    from rlt.errors import RunError as RunError
    from rlt.errors import UsageError as UsageError
    from rlt.hookspecs import hookimpl as hookimpl
    from rlt.run import Run as Run
    from rlt.run_directory import JsonLines as JsonLines
    from rlt.types import JSON as JSON
    from rlt.types import Batch as Batch
    from rlt.types import Checkpoint as Checkpoint
    from rlt.types import CustomLoss as CustomLoss
    from rlt.types import Environment as Environment
    from rlt.types import Loss as Loss
    from rlt.types import Outcome as Outcome
    from rlt.types import PluginInfo as PluginInfo
    from rlt.types import Row as Row
    from rlt.types import RowOutcome as RowOutcome
    from rlt.types import Rows as Rows
    from rlt.types import Split as Split
    from rlt.types import StepRecord as StepRecord

__version__ = "0.1.0"

_HOMES = {
    "rlt.dataset": ("open_rows",),
    "rlt.errors": ("Interrupted", "PluginError", "RltError", "RunError", "UsageError"),
    "rlt.hookspecs": ("hookimpl",),
    "rlt.run": ("Run",),
    "rlt.run_directory": ("JsonLines",),
    "rlt.types": (
        "JSON",
        "Batch",
        "Checkpoint",
        "CustomLoss",
        "Environment",
        "Loss",
        "Outcome",
        "PluginInfo",
        "Row",
        "RowOutcome",
        "Rows",
        "Split",
        "StepRecord",
    ),
}
"""Where each public name lives; it is imported when it is first asked for."""

__all__ = sorted([*(name for names in _HOMES.values() for name in names), "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415

    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'rlt' has no attribute {name!r}")
