"""One engine over a tiny model for the whole folder, driven by the real SDK."""

from __future__ import annotations

import os
import warnings

os.environ["TINKER_TELEMETRY"] = "0"  # before tinker is imported

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import tinker
import torch
from peft import PeftModel
from tinker import types
from transformers import AutoModelForCausalLM

from rlt.local.models import LocalModel
from rlt.local.server import LocalServer, start
from rlt.local.tokenizer import load_tokenizer
from tiny_model import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODEL = "tests/tiny"


@dataclass
class Tools:
    """What most tests need, in few words."""

    service: tinker.ServiceClient
    server: LocalServer
    store: Path
    directory: Path

    def client(self, rank: int = 8, seed: int = 1, **options: Any) -> tinker.TrainingClient:
        return self.service.create_lora_training_client(
            base_model=MODEL, rank=rank, seed=seed, **options
        ).result()

    def folder(self, tinker_path: str) -> Path:
        model_id, kind, name = tinker_path.removeprefix("tinker://").split("/")
        return self.store / model_id.replace(":", "_") / kind / name

    def plain(self) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(self.directory, dtype=torch.float32)
        return model

    def with_adapter(self, tinker_path: str, *, trainable: bool = False) -> Any:
        with warnings.catch_warnings():  # what peft says to whoever loads a tied output layer
            warnings.simplefilter("ignore")
            folder = self.folder(tinker_path)
            return PeftModel.from_pretrained(self.plain(), folder, is_trainable=trainable)


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tools(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    store = tmp_path_factory.mktemp("engine") / "store"
    with start(LocalModel(MODEL, tiny_directory), store=store) as server:
        service = tinker.ServiceClient(api_key="tml-local", base_url=server.url)
        yield Tools(service, server, store, tiny_directory)
        service.close("success").result()


@pytest.fixture(scope="session")
def tokenizer(tiny_directory: Path) -> Any:
    return load_tokenizer(tiny_directory)


@pytest.fixture
def http(tools: Tools) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{tools.server.url}/api/v1/", timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def prompt() -> Any:
    return types.ModelInput.from_ints


@pytest.fixture(scope="session")
def datum() -> Any:
    def make(tokens: Sequence[int], targets: Any, **inputs: Any) -> types.Datum:
        return types.Datum(
            model_input=types.ModelInput.from_ints(list(tokens)),
            loss_fn_inputs={"target_tokens": targets, **inputs},
        )

    return make


@pytest.fixture(scope="session")
def logprobs_of() -> Any:
    """Log-probabilities after every position of `tokens`, by the model's own forward pass."""

    def compute(model: Any, tokens: Sequence[int]) -> torch.Tensor:
        logits = model(input_ids=torch.tensor([list(tokens)])).logits[0].float()
        return torch.log_softmax(logits, dim=-1)

    return compute
