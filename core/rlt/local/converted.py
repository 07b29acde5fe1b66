"""The cache of models that were converted from a GGUF file.

Dequantising SmolLM2 takes half a minute, so the result is kept. It appears under its final name
in one step: a conversion that was interrupted, or two that race, leave either nothing or a whole
model.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

_FORMAT = "v1"  # part of the cache's names: raise it when the conversion changes


def cache_directory() -> Path:
    """Where converted models are kept: `$RLT_CACHE`, else `rlt` in the user's cache directory."""
    if chosen := os.environ.get("RLT_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rlt"


def converted(gguf: Path) -> Path:
    """The directory with the weights and the tokenizer of `gguf`, converting it if need be."""
    final = cache_directory() / "models" / f"{gguf.stem}-{gguf.stat().st_size}-{_FORMAT}"
    if final.is_dir():
        return final
    from rlt.local.gguf import convert  # noqa: PLC0415 - brings torch and transformers

    logger.info("converting %s for the embedded engine, once (about 40 seconds)", gguf.name)
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        convert(gguf, partial)
        _publish(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _publish(partial: Path, final: Path) -> None:
    partial.chmod(0o755)  # a temporary directory is private; a cache need not be
    try:
        partial.rename(final)
    except OSError:
        if not final.is_dir():  # otherwise another process was first, with the same result
            raise
