"""Rows to pairs of token sequences. A pair is whole or it is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import rlt
from rlt.rendering import Example, Unrenderable


@dataclass(frozen=True, slots=True)
class Pair:
    """A row's two answers to one prompt; weight 1 on what each says."""

    row: rlt.Row
    chosen: Example
    rejected: Example

    @property
    def sides(self) -> tuple[Example, Example]:
        """Chosen first, the order in which everything about a pair is sent."""
        return self.chosen, self.rejected


def pair(run: rlt.Run, row: rlt.Row) -> Pair | str:
    """Render a row, or return why it must be dropped."""
    try:
        made = Pair(row, _side(run, row.data, "chosen"), _side(run, row.data, "rejected"))
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return "unrenderable"
    if any(len(side.tokens) > run.service.max_context for side in made.sides):
        run.log.warning("row dropped", row=row.where, reason="longer than the model's context")
        return "too-long"
    if not all(side.total for side in made.sides):
        return "nothing-to-learn"
    return made


def pairs(run: rlt.Run, rows: Sequence[rlt.Row]) -> tuple[list[Pair], list[rlt.RowOutcome]]:
    """Return the pairs of the rows that can be rendered, and an account of every row."""
    made = [pair(run, row) for row in rows]
    outcomes = [
        rlt.RowOutcome(row, 0, result) if isinstance(result, str) else rlt.RowOutcome(row, 2)
        for row, result in zip(rows, made, strict=True)
    ]
    return [each for each in made if isinstance(each, Pair)], outcomes


def _side(run: rlt.Run, data: rlt.JSON, name: str) -> Example:
    return run.renderer.demonstration(data["prompt"], data[name], data.get("tools"))
