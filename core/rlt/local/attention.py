"""Attention that does not care who else is in the batch.

While decoding, many samples go through the model together, one new token each. The linear layers
treat the rows of a batch alike; attention would not, if rows of different lengths were padded to
one length: a softmax over more (masked) positions adds up in another order and rounds differently.
So each row keeps its own keys and values and attends to exactly those.

The mode travels in a context variable, because the models' own code lies between the caller and the
attention function. Everything outside `decoding` is plain scaled dot-product attention.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ATTENTION = "rlt_rowwise"
_GROW = 64
_UNKNOWN = ("softcap", "s_aux", "position_bias")  # they change what attention computes

_rows: ContextVar[Sequence[RowCache] | None] = ContextVar("decoding_rows", default=None)


class RowCache:
    """Keys and values of one sequence in every layer: tensors (kv heads, capacity, head size).

    The capacity depends on the row's own length only, so that its memory layout, and with it the
    rounding of what is computed from it, is the same in every batch.
    """

    def __init__(self) -> None:
        """An empty cache; layers appear as they are written."""
        self.length = 0
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}

    def fork(self) -> RowCache:
        """An independent copy, for another sample of the same prompt."""
        copy = RowCache()
        copy.length = self.length
        copy._keys = {layer: keys.clone() for layer, keys in self._keys.items()}
        copy._values = {layer: values.clone() for layer, values in self._values.items()}
        return copy

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put `keys` and `values` (kv heads, new, head size) behind the known positions."""
        end = self.length + keys.shape[1]
        self._keys[layer] = _room(self._keys.get(layer), keys, end)
        self._values[layer] = _room(self._values.get(layer), values, end)
        self._keys[layer][:, self.length : end] = keys
        self._values[layer][:, self.length : end] = values

    def read(self, layer: int, window: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (kv heads, positions, head size) incl. the one just written."""
        end = self.length + 1
        start = max(0, end - window) if window else 0
        return self._keys[layer][:, start:end], self._values[layer][:, start:end]


def _room(buffer: torch.Tensor | None, new: torch.Tensor, needed: int) -> torch.Tensor:
    if buffer is not None and buffer.shape[1] >= needed:
        return buffer
    capacity = -(-needed // _GROW) * _GROW
    larger = new.new_zeros(new.shape[0], capacity, new.shape[2])
    if buffer is not None:
        larger[:, : buffer.shape[1]] = buffer
    return larger


class RowsCache(Cache):
    """What the model sees as its cache: writes go to the rows, one batch row each.

    Rows of the batch beyond the given ones are padding and are not kept.
    """

    def __init__(self, rows: Sequence[RowCache]) -> None:
        """Keep `rows` as the destination of what the layers write."""
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self._rows = rows

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values (batch, kv heads, new, head size) of one layer."""
        for index, row in enumerate(self._rows):
            row.write(layer_idx, key_states[index], value_states[index])
        return key_states, value_states


@contextmanager
def decoding(rows: Sequence[RowCache]) -> Iterator[None]:
    """Inside, every forward pass is one new token for each of `rows`."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


def _attend(  # noqa: PLR0913, PLR0917 - the signature is transformers'
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    for name in _UNKNOWN:
        if kwargs.get(name) is not None:
            raise ValueError(f"its attention uses {name}")
    rows = _rows.get()
    if rows is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    layer: Any = module.layer_idx
    output = query.new_zeros(query.shape[0], 1, query.shape[1], value.shape[3])
    for index, row in enumerate(rows):
        keys, values = row.read(layer, sliding_window)
        # A copy, so that the row's place in the batch does not decide its alignment in memory.
        grouped = query[index].reshape(keys.shape[0], -1, query.shape[3]).clone()
        attended = F.scaled_dot_product_attention(
            grouped[None], keys[None], values[None], scale=scaling
        )
        output[index, 0] = attended.reshape(query.shape[1], value.shape[3])
    return output, None


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    return None if _rows.get() is not None else sdpa_mask(*args, **kwargs)


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, _mask)
