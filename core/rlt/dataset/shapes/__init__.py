"""The formats that other tools write, and how their rows become ours.

Each format is a file with two things: how to tell it from its keys, and how to turn one row into an
`Example`, from which any of our types is made. A row that cannot be turned raises `Unconvertible`
with the reason; it is never guessed at.
"""

from __future__ import annotations

from rlt.dataset.shapes import alpaca, messages, own, preference, sharegpt
from rlt.dataset.shapes.example import Example, Shape, Unconvertible
from rlt.types import JSON

SHAPES: tuple[Shape, ...] = (
    messages.SHAPE,
    sharegpt.SHAPE,
    alpaca.SHAPE,
    preference.OPENAI,
    preference.IMPLICIT,
    own.SHAPE,
)
"""In the order in which they are tried."""

FOREIGN = tuple(shape for shape in SHAPES if shape is not own.SHAPE)
"""Those whose rows are none of our types."""


def shape_of(row: JSON) -> Shape | None:
    """Return the format of a row, told from its keys."""
    return next((shape for shape in SHAPES if shape.matches(row)), None)


__all__ = ["FOREIGN", "SHAPES", "Example", "Shape", "Unconvertible", "shape_of"]
