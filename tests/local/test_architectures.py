"""Models other than Llama: used when their numbers are right, refused when they would not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from rlt.errors import UsageError
from rlt.local.adapters import AdapterBank, Shape
from rlt.local.models import LocalModel
from rlt.local.network import Network
from rlt.local.quiet import quiet_libraries
from tiny_model import make_tiny_model

SIZES = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GPT = {"vocab_size": 384, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 16}


def _save(directory: Path, config: Any) -> LocalModel:
    make_tiny_model(directory)  # for its tokenizer
    with torch.random.fork_rng(devices=[]), quiet_libraries():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.2)
        model.tie_weights()
        model.save_pretrained(directory)
    return LocalModel("tests/other", directory)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("Qwen3", GROUPED),
        ("Mistral", {**GROUPED, "sliding_window": 3}),
        ("Gemma3Text", {**GROUPED, "sliding_window": 4}),
        ("GPT2", GPT),
        ("GPTNeoX", SIZES),
        ("Granite", {**SIZES, "num_key_value_heads": 2, "logits_scaling": 3.0}),
    ],
)
def test_decoding_in_a_batch_is_the_models_own_forward_pass(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = getattr(transformers, f"{family}Config")(**settings)
    network = Network(_save(tmp_path, config))
    bank = AdapterBank(network)
    bank.hang(bank.create(Shape(4), seed=1))
    prompts = [list(range(10, 10 + length)) for length in (5, 9, 3)]
    with torch.no_grad():
        rows = [network.prefill(prompt)[1] for prompt in prompts]
        for token in (7, 8, 9):
            hidden = network.advance(rows, [token] * 3, 8)
        for row, prompt in enumerate(prompts):
            whole = network.module(torch.tensor([[*prompt, 7, 8, 9]]), use_cache=False)
            assert torch.allclose(network.logits(hidden[row]), whole.logits[0, -1], atol=1e-3)


@pytest.mark.parametrize(
    ("family", "settings", "why"),
    [
        ("Gemma2", GROUPED, "its attention uses softcap"),
        (
            "Bloom",
            {"vocab_size": 384, "hidden_size": 64, "n_layer": 2, "n_head": 4},
            "does not keep keys and values",
        ),
        (
            "Mamba",
            {"vocab_size": 384, "hidden_size": 64, "num_hidden_layers": 2},
            "cannot run on the embedded engine",
        ),
    ],
)
def test_an_architecture_that_is_computed_otherwise_is_refused(
    family: str, settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    model = _save(tmp_path, getattr(transformers, f"{family}Config")(**settings))
    with pytest.raises(UsageError, match=why):
        Network(model)
