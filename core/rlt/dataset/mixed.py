"""Arguments written in two ways in one file.

Both ways are read, but a chat template treats them differently, so a file that mixes them trains on
two spellings of the same call. Reported once, where the second way first comes up.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt.dataset.findings import Problem
from rlt.dataset.tools import calls
from rlt.dataset.types import DatasetType
from rlt.types import JSON


class ArgumentEncoding:
    """A rule that remembers which way the file began with."""

    def __init__(self) -> None:
        """Start with no call seen."""
        self._first: type | None = None
        self._told = False

    def __call__(self, row: JSON, kind: DatasetType) -> Iterator[Problem]:
        """Look at the calls of a further row."""
        for pointer, function in calls(row, kind):
            way = type(function.get("arguments"))
            if way not in (str, dict) or self._told:
                continue
            self._first = self._first or way
            if way is not self._first:
                self._told = True
                names: dict[type, str] = {str: "JSON strings", dict: "objects"}
                message = (
                    f"arguments are {names[way]} from here on, and were {names[self._first]} before"
                )
                hint = "write all of them one way; said once a file"
                yield Problem("mixed-argument-encoding", (*pointer, "arguments"), message, hint)
