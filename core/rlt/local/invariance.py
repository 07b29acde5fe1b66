"""How many rows may be computed together so that each comes out as if it were alone.

A matrix product picks its algorithm by the height of the batch; an activation is computed by vector
instructions but for the ends of each thread's share, where scalar ones round differently. For
heights that are multiples of 8 both were found to treat every row alike on common machines, but
that depends on the library, the processor and the number of threads. So it is measured, once for
each shape of weights: batches are up to 64 rows high where that is safe, else exactly 8, else 1,
which is slow and reproducible by construction.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[torch.Tensor], torch.Tensor]

STEP = 8
MOST_ROWS = 64

_HEIGHTS = (16, 24, 40, MOST_ROWS)
_ACTIVATIONS: tuple[Operation, ...] = (F.silu, partial(F.gelu, approximate="tanh"), F.gelu)


def most_rows(shapes: frozenset[tuple[int, int]], device: torch.device, dtype: torch.dtype) -> int:
    """The largest batch for weights of `shapes` (out, in) in which rows come out as if alone."""
    products = [_product_rows(out, inner, device, dtype) for out, inner in shapes]
    widths = {inner for _, inner in shapes}
    return min(*products, *(_activation_rows(width, device, dtype) for width in widths))


@cache
@torch.no_grad()
def _product_rows(out: int, inner: int, device: torch.device, dtype: torch.dtype) -> int:
    weight = _numbers(out, inner, device, dtype)
    return _safe_height(partial(F.linear, weight=weight), _numbers(MOST_ROWS, inner, device, dtype))


@cache
@torch.no_grad()
def _activation_rows(width: int, device: torch.device, dtype: torch.dtype) -> int:
    rows = _numbers(MOST_ROWS, width, device, dtype)
    return min(_safe_height(activation, rows) for activation in _ACTIVATIONS)


def _numbers(height: int, width: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    return torch.randn(height, width, generator=generator).to(device, dtype)


def _safe_height(operation: Operation, rows: torch.Tensor) -> int:
    alone = torch.cat([operation(part) for part in torch.split(rows, STEP)])
    turned = operation(rows[:STEP].roll(3, 0)).roll(-3, 0)
    if not torch.equal(turned, alone[:STEP]):
        return 1
    invariant = all(torch.equal(operation(rows[:h]), alone[:h]) for h in _HEIGHTS)
    return MOST_ROWS if invariant else STEP


def padded_height(rows: int, most: int) -> int:
    """The height at which to compute `rows` rows where `most` is the largest batch."""
    return rows if most == 1 else -(-rows // STEP) * STEP
