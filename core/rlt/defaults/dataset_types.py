"""The dataset types that rlt ships: environment, dpo and sdft."""

from __future__ import annotations

from collections.abc import Callable

import rlt
import rlt_schemas


@rlt.hookimpl
def register_dataset_types(register: Callable[..., None]) -> None:
    """Register the schemas of `rlt_schemas`."""
    for name in rlt_schemas.NAMES:
        schema = rlt_schemas.load(name)
        register(name, schema, summary=schema["title"])
