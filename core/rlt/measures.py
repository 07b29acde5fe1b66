"""Metrics from the service and from plugins, as the plain numbers of a metrics line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from rlt.types import JSON

_RESERVED = ("step", "lr", "seconds", "split")
"""Keys of a metrics line that are the engine's alone."""


def merged(answers: Sequence[Mapping[str, float]]) -> JSON:
    """Merge the service's metrics over requests, by the reduction that each name ends in.

    `grad_norm:mean` becomes `grad_norm`. The loss is left out: the plugin's reading of it counts.
    """
    found: dict[str, list[float]] = {}
    for answer in answers:
        for name, value in answer.items():
            found.setdefault(name, []).append(value)
    reductions: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
    return {
        name.partition(":")[0]: reductions.get(name.partition(":")[2], mean)(values)
        for name, values in found.items()
        if not name.startswith(("loss:", "surrogate_loss:"))
    }


def plain(metrics: Mapping[str, Any], *reserved: str) -> JSON:
    """Return metrics as plain JSON numbers; one that is not finite is null, as JSON has none.

    :param reserved: names that the caller gives itself, besides those that only the engine does.
    """
    numbers = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in metrics.items()
        if name not in (*_RESERVED, *reserved)
    }
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in numbers.items()
    }
