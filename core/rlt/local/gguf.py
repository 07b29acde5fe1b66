"""From a quantised GGUF file to a model directory of safetensors and a tokenizer."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlt.local.quiet import quiet_libraries

if TYPE_CHECKING:
    from pathlib import Path

# What a GGUF leaves in the configuration and a saved model should not have.
_LEFTOVERS = {"quantization_config", "_name_or_path", "_model_name_or_path"}


def convert(gguf: Path, to: Path) -> None:
    """Write the model in `gguf`, in float32, and its tokenizer into the directory `to`."""
    # The reader draws a progress bar of its own, which has no switch.
    with quiet_libraries(), redirect_stderr(io.StringIO()):
        tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.save_pretrained(to)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        # A model that was loaded from a GGUF refuses save_pretrained, as being quantised; its
        # weights are plain floats by now, so a fresh model of the same shape saves them.
        settings = loaded.config.to_dict().items()
        kept = {key: value for key, value in settings if key not in _LEFTOVERS}
        fresh: Any = type(loaded)(type(loaded.config).from_dict(kept))
        fresh.load_state_dict(loaded.state_dict())
        fresh.save_pretrained(to)
