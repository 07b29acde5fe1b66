"""An environment of several turns in one file: sums, with a calculator to call.

    rlt run --plugin grpo --plugin docs/examples/arithmetic.py --data sums.jsonl

with rows such as {"prompt": "What is 17 * 23?", "metadata": {"answer": "391"}}. The model may write
`calc(17 * 23)`; it is shown the result and goes on. An answer without a call ends the episode and
is scored by `grpo`'s own verifier of expected answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import rlt

_CALL = re.compile(r"calc\(\s*(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})\s*\)")
_SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
_HOW = "\nYou may write calc(2 + 3) to be told a result. End with: The answer is …"


class Arithmetic:
    """One episode."""

    def __init__(self, row: rlt.Row) -> None:
        self._row = row
        self._result: int | None = None
        self._begun = self._over = False

    async def reset(self, seed: int) -> None:
        """Begin anew; nothing here is left to chance."""
        del seed
        self._begun = self._over = False

    async def observe(self) -> str | Sequence[rlt.JSON]:
        """Show the question, and then the results of calls."""
        if not self._begun:
            self._begun = True
            return str(self._row.data["prompt"]) + _HOW
        return [{"role": "tool", "name": "calc", "content": str(self._result)}]

    async def act(self, action: str) -> None:
        """Work out the call, if there is one."""
        call = _CALL.search(action)
        self._over = call is None
        if call:
            self._result = _SIGNS[call[2]](int(call[1]), int(call[3]))

    async def done(self) -> bool:
        """Say whether the last action was an answer."""
        return self._over

    async def reward(self) -> float | None:
        """Leave the reward to `score`."""
        return None


@rlt.hookimpl
def make_environment(row: rlt.Row) -> rlt.Environment | None:
    """Take the rows that have an expected answer."""
    return Arithmetic(row) if "answer" in row.data["metadata"] else None
