"""From a quantised GGUF file to a directory that loads in seconds, once.

Dequantising SmolLM2 takes half a minute, so the result is kept in a cache. It appears there under
its final name in one step: a conversion that was interrupted, or two that race, leave either nothing
or a whole model.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_FORMAT = "v1"  # part of the cache's name: raise it when the conversion changes


def cache_directory() -> Path:
    """Where converted models are kept: `$RLT_CACHE`, else the user's cache directory."""
    if chosen := os.environ.get("RLT_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rlt"


def converted(gguf: Path) -> Path:
    """The directory with the weights and the tokenizer of `gguf`, converting it if need be."""
    final = cache_directory() / "models" / f"{gguf.stem}-{gguf.stat().st_size}-{_FORMAT}"
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    logger.info("converting %s for the embedded engine, once (about 40 seconds)", gguf.name)
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        _convert(gguf, partial)
        _publish(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _publish(partial: Path, final: Path) -> None:
    try:
        partial.rename(final)
    except OSError:
        if not final.is_dir():  # otherwise another process was first, with the same result
            raise


def _convert(gguf: Path, to: Path) -> None:
    from rlt.local.quiet import quiet_libraries

    with quiet_libraries():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
        AutoTokenizer.from_pretrained(**source).save_pretrained(to)
        model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        # A model that was loaded from a GGUF refuses save_pretrained, as being quantised; its
        # weights are plain floats by now, so a fresh model of the same shape saves them.
        config = type(model.config).from_dict(_plain(model.config.to_dict()))
        fresh: Any = type(model)(config)
        fresh.load_state_dict(model.state_dict())
        fresh.save_pretrained(to)
        fresh.generation_config.save_pretrained(to)
    json.loads((to / "config.json").read_text("utf-8"))


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in config.items()
        if key not in {"quantization_config", "_name_or_path", "_model_name_or_path"}
    }
