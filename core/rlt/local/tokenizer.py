"""The tokenizer of a model directory.

`SamplingClient.get_tokenizer()` reads names its own way and asks the hub, so rlt and the engine
both load it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt.local.quiet import quiet_libraries

if TYPE_CHECKING:
    from pathlib import Path


def load_tokenizer(directory: Path) -> Any:
    """The `PreTrainedTokenizer` saved in `directory`, without asking the network."""
    with quiet_libraries():
        from transformers import AutoTokenizer  # noqa: PLC0415

        return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
