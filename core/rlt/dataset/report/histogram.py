"""How long rows are, drawn with signs."""

from __future__ import annotations

from collections.abc import Iterator

from rlt.types import JSON

_BAR = 40


def histogram(tokens: JSON) -> Iterator[str]:
    """Write the totals and the histogram for a person."""
    yield (
        f"tokens for {tokens['model']}: {tokens['total']:,} in all, {tokens['trained']:,} trained "
        f"on; the longest sequence has {tokens['longest']:,} of at most {tokens['limit']:,}"
    )
    most = max(tokens["histogram"].values(), default=1)
    for upper, count in tokens["histogram"].items():
        yield f"  up to {int(upper):>8,}  {count:>9,}  {'#' * -(-_BAR * count // most)}"
