"""How many rows may be computed together so that each comes out as if it were alone.

A matrix product picks its algorithm by the height of the batch, and algorithms round differently.
For heights that are multiples of 8 the CPU libraries were found to round every row alike, but that
is a property of the machine and not a promise. So it is measured once for each shape of weights;
where it does not hold, batches are always exactly 8 rows high, which is slower and reproducible by
construction.
"""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional as F

STEP = 8
MOST_ROWS = 64
_HEIGHTS = (16, 24, 40, MOST_ROWS)


def most_rows(shapes: frozenset[tuple[int, int]], device: torch.device, dtype: torch.dtype) -> int:
    """The largest batch for weights of `shapes` (out, in) in which rows come out as if alone."""
    invariant = all(_invariant(out, inner, device, dtype) for out, inner in sorted(shapes))
    return MOST_ROWS if invariant else STEP


@cache
@torch.no_grad()
def _invariant(out: int, inner: int, device: torch.device, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(MOST_ROWS + out, inner, generator=generator).to(device, dtype)
    rows, weight = numbers[:MOST_ROWS], numbers[MOST_ROWS:]
    alone = torch.cat([F.linear(part, weight) for part in torch.split(rows, STEP)])
    return all(torch.equal(F.linear(rows[:h], weight), alone[:h]) for h in _HEIGHTS)
