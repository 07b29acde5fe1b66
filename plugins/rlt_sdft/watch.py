"""Signs that self-distillation is going wrong, said while there is still something to save.

A teacher that is the current policy and a student that learns from it can feed each other: first
the rewrites stop passing, then they repeat each other, and the demonstrations become less likely.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise

import rlt
from rlt.rendering import datums, mean_nll
from rlt_sdft.tasks import Task

_WINDOW = 40
"""Rewrites that a judgement looks back on."""
_FEW = 0.05
_SAME = 3
_RISES = 3


class Watch:
    """What a run has seen of its rewrites and readings."""

    def __init__(self) -> None:
        self._accepted: deque[bool] = deque(maxlen=_WINDOW)
        self._texts: deque[tuple[str, str]] = deque(maxlen=_WINDOW)
        self._best = 0.0
        self._readings: deque[float] = deque(maxlen=_RISES + 1)
        self._said: set[str] = set()

    def rewrites(self, run: rlt.Run, samples: Sequence[rlt.JSON]) -> None:
        """Look at a step's rewrites."""
        for sample in samples:
            self._accepted.append(sample["fault"] is None)
            self._texts.append((sample["row"], sample["rewrite"].strip()))
        if len(self._accepted) == _WINDOW:
            share = sum(self._accepted) / _WINDOW
            self._best = max(self._best, share)
            if share <= _FEW or share < self._best / 3:
                self._warn(run, "few rewrites pass the checks", share=round(share, 3))
        rows = Counter(text for _, text in set(self._texts) if text)
        text, count = rows.most_common(1)[0] if rows else ("", 0)
        if count >= _SAME:
            self._warn(run, "rewrites of different rows are the same", rows=count, text=text[:60])

    async def demonstrations(self, run: rlt.Run, step: int, tasks: Sequence[Task]) -> float | None:
        """Return the demonstrations' mean negative log-likelihood, when a reading is due."""
        every = run.options["demo_every"]
        if not every or step % every or not tasks:
            return None
        batch = datums([task.demonstration for task in tasks])
        request = run.training.forward(batch, "cross_entropy")
        result = await run.answered(request, f"forward of the demonstrations of step {step}")
        return mean_nll(result.loss_fn_outputs, batch)[0]

    def reading(self, run: rlt.Run, nll: float | None) -> dict[str, float]:
        """Look at a reading, if there is one; rows differ, so only a trend counts."""
        if nll is None:
            return {}
        self._readings.append(nll)
        values = list(self._readings)
        if len(values) > _RISES and all(b > a for a, b in pairwise(values)):
            shown = [round(value, 3) for value in values]
            self._warn(run, "demonstrations become less likely", readings=shown)
        return {"demo_nll": nll}

    def _warn(self, run: rlt.Run, sign: str, **facts: object) -> None:
        if sign not in self._said:
            self._said.add(sign)
            run.log.warning(sign, **facts, hint="try -o teacher=base, a lower --lr, or stop here")
