"""The frozen base model, cut where the engine needs it: tokens -> hidden states -> logits.

The cut lets the vocabulary, by far the widest layer, be computed a few positions at a time.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from rlt.errors import UsageError
from rlt.local.attention import ATTENTION, RowCache, RowsCache, decoding
from rlt.local.compute import choose_device, choose_dtype
from rlt.local.quiet import quiet_libraries
from rlt.local.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt.local.models import LocalModel

_TOLERANCE = 1e-2
_UNLIMITED = 1 << 20


class Network:
    """A causal language model whose parameters do not change."""

    def __init__(self, model: LocalModel) -> None:
        """Load the weights and the tokenizer. Raises UsageError for a model that cannot be used."""
        self.name = model.name
        self.device = choose_device()
        self.dtype = choose_dtype(self.device)
        self.tokenizer_id = str(model.directory)
        self.tokenizer = load_tokenizer(model.directory)
        self.module = _load(model, self.device, self.dtype)
        self.vocabulary = int(self.module.get_input_embeddings().num_embeddings)
        text = self.module.config.get_text_config()
        self.max_context = int(getattr(text, "max_position_embeddings", None) or _UNLIMITED)
        self.architecture = str(self.module.config.model_type)
        self.ends = _ends(self.module, self.tokenizer)
        self._text_config = text
        self._decoder = self.module.base_model
        known = inspect.signature(self._decoder.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._shapes = {
            (int(layer.weight.shape[0]), int(layer.weight.shape[1]))
            for layer in self.linear_layers().values()
        }
        self._check()

    def hidden(self, tokens: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Last hidden states (batch, length, width) of `tokens` (batch, length), padded right.

        `valid` is 1 where there is a token, None when there is one everywhere.
        """
        output = self._decoder(input_ids=tokens, attention_mask=valid, use_cache=False)
        states: torch.Tensor = output.last_hidden_state
        return states

    def prefill(self, tokens: Sequence[int]) -> tuple[torch.Tensor, RowCache]:
        """Hidden states (length, width) of one prompt, alone and unpadded, and its cache."""
        row = RowCache()
        ids = torch.tensor([list(tokens)], device=self.device)
        cache: Any = {self._cache_name: RowsCache([row])}
        output = self._decoder(input_ids=ids, use_cache=True, **cache)
        row.length = len(tokens)
        states: torch.Tensor = output.last_hidden_state[0]
        return states, row

    def advance(self, rows: Sequence[RowCache], tokens: Sequence[int], width: int) -> torch.Tensor:
        """Feed one token to each row; hidden states (width, features), the first len(rows) real.

        The batch is padded to `width` rows, because a matrix product rounds alike only for
        suitable heights (see `rlt.local.invariance`).
        """
        padding = [0] * (width - len(rows))
        ids = torch.tensor([*tokens, *padding], device=self.device)[:, None]
        places = torch.tensor([*(row.length for row in rows), *padding], device=self.device)
        cache: Any = {self._cache_name: RowsCache(rows)}
        with decoding(rows):
            output = self._decoder(
                input_ids=ids, position_ids=places[:, None], use_cache=True, **cache
            )
        for row in rows:
            row.length += 1
        states: torch.Tensor = output.last_hidden_state[:, 0]
        return states

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Next-token logits (…, vocabulary), float32, of hidden states (…, width)."""
        raw: torch.Tensor = self.module.get_output_embeddings()(hidden).float()
        scale = getattr(self._text_config, "logit_scale", None)  # Cohere
        divisor = getattr(self._text_config, "logits_scaling", None)  # Granite
        cap = getattr(self._text_config, "final_logit_softcapping", None)  # Gemma 2
        if scale:
            raw = raw * scale
        if divisor:
            raw = raw / divisor
        return torch.tanh(raw / cap) * cap if cap else raw

    def linear_layers(self) -> dict[str, torch.nn.Linear | Conv1D]:
        """Every linear layer by its name, the output embedding included."""
        return {
            name: layer
            for name, layer in self.module.named_modules()
            if isinstance(layer, torch.nn.Linear | Conv1D)
        }

    def weight_shapes(self) -> set[tuple[int, int]]:
        """The (out, in) shapes of the linear layers."""
        return self._shapes

    @torch.no_grad()
    def _check(self) -> None:
        """Compare with the model's own forward pass: not every architecture is built as assumed.

        Raises UsageError for one whose numbers would be wrong.
        """
        tokens = [token % self.vocabulary for token in range(4)]
        ids = torch.tensor([tokens], device=self.device)
        try:
            theirs = self.module(input_ids=ids, use_cache=False).logits[0].float()
            ours = self.logits(self.hidden(ids)[0])
            _, row = self.prefill(tokens[:3])
            decoded = self.logits(self.advance([row], tokens[3:], 1))[0]
        except (ValueError, TypeError, AttributeError, LookupError, RuntimeError) as error:
            raise self._unsupported(str(error)) from error
        if not torch.allclose(ours, theirs, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise self._unsupported("its logits are computed in an unknown way")
        if not torch.allclose(decoded, theirs[3], rtol=_TOLERANCE, atol=_TOLERANCE):
            raise self._unsupported("it does not keep keys and values for each position")

    def _unsupported(self, why: str) -> UsageError:
        return UsageError(
            f"model {self.name!r} ({self.architecture}) cannot run on the embedded engine: {why}"
        )


def _load(model: LocalModel, device: torch.device, dtype: torch.dtype) -> Any:
    module: Any
    with quiet_libraries():
        try:
            module = AutoModelForCausalLM.from_pretrained(
                str(model.directory),
                dtype=dtype,
                attn_implementation=ATTENTION,
                local_files_only=True,
            )
        except (OSError, ValueError, KeyError) as error:
            first = (
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            )
            raise UsageError(f"model {model.directory} cannot be loaded: {first}") from error
    # The loaded weights are views of the file. Own memory is aligned, which decides how some
    # products round, and stays when the system is short of it.
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
    return module.to(device).eval().requires_grad_(False)


def _ends(module: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer: the model's generation config and its tokenizer may differ."""
    configured = module.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(int(end) for end in [*listed, tokenizer.eos_token_id] if end is not None)
