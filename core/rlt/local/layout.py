"""Where a checkpoint is on disk; nothing here needs torch."""

from __future__ import annotations

from pathlib import Path


def checkpoint_folder(store: Path, tinker_path: str) -> Path:
    """Return the folder of `tinker://<model id>/<kind>/<name>` in a store."""
    model_id, kind, name = tinker_path.removeprefix("tinker://").split("/")
    return store / model_id.replace(":", "_") / kind / name
