"""The shapes of a row, as files that an editor, a service or another language can use.

Each is a self-contained JSON Schema (2020-12). Two annotations carry what the rules of `rlt check`
need beyond the schema, and any plugin's schema may use them: `x-rlt-text` on a property says that
it is the `"prompt"` or a `"completion"`, and `x-rlt-different` lists properties that must not be
equal.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

NAMES = ("sdft", "dpo", "environment")
"""The dataset types that ship with rlt."""


def load(name: str) -> dict[str, Any]:
    """Return the schema of one of `NAMES`.

    :raises KeyError: for any other name.
    """
    if name not in NAMES:
        raise KeyError(name)
    schema: dict[str, Any] = json.loads((resources.files(__name__) / f"{name}.json").read_bytes())
    return schema
