"""Signs that self-distillation is going wrong, said while there is still something to save.

A teacher that is the student itself (`teacher=current`) can be fed by what it feeds: first the
rewrites stop passing, then they repeat each other, and the demonstrations become less likely.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise

import rlt
from rlt.rendering import Example, datums, mean_nll
from rlt_sdft.tasks import demonstration

_ENOUGH = 40
"""Rewrites that a judgement looks back on, at least."""
_FEW = 0.05
_ROWS = 40
"""Rows whose rewrites are compared."""
_SAME = 3
_PROBE = 4
"""Demonstrations that are read, always the same: those of other rows would differ anyway."""
_RISES = 3
_RISE = 0.02
"""Nats a token over all rises: less is noise."""


class Watch:
    """What a run has seen of its rewrites and readings."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        self._texts: deque[tuple[str, frozenset[str]]] = deque(maxlen=_ROWS)
        self._best = 0.0
        self._probe: list[Example] | None = None
        self._readings: deque[float] = deque(maxlen=_RISES + 1)
        self._said: set[str] = set()

    def rewrites(self, run: rlt.Run, samples: Sequence[rlt.JSON]) -> None:
        """Look at a step's rewrites."""
        self._judge_shares(run, samples)
        by_row: dict[str, set[str]] = {}
        for sample in samples:
            by_row.setdefault(sample["row"], set()).add(sample["rewrite"].strip())
        self._texts.extend((row, frozenset(texts)) for row, texts in by_row.items())
        said = {(row, text) for row, texts in self._texts for text in texts if text}
        rows = Counter(text for _, text in said)
        text, count = rows.most_common(1)[0] if rows else ("", 0)
        if count >= _SAME:
            self._warn(run, "rewrites of different rows are the same", rows=count, text=text[:60])

    def _judge_shares(self, run: rlt.Run, samples: Sequence[rlt.JSON]) -> None:
        """Look at whole steps, as few of the last as are enough."""
        self._steps.append((sum(sample["fault"] is None for sample in samples), len(samples)))
        while sum(count for _, count in self._steps) - self._steps[0][1] >= _ENOUGH:
            self._steps.popleft()
        passed, seen = map(sum, zip(*self._steps, strict=True))
        if seen < _ENOUGH:
            return
        share = passed / seen
        self._best = max(self._best, share)
        if share <= _FEW or share < self._best / 3:
            self._warn(run, "few rewrites pass the checks", share=round(share, 3))

    async def demonstrations(self, run: rlt.Run, step: int) -> float | None:
        """Return some demonstrations' mean negative log-likelihood, when a reading is due."""
        every = run.options["demo_every"]
        if not every or step % every:
            return None
        if self._probe is None:
            self._probe = _probe(run)
        if not self._probe:
            return None
        batch = datums(self._probe)
        request = run.training.forward(batch, "cross_entropy")
        result = await run.answered(request, f"forward of the demonstrations of step {step}")
        return mean_nll(result.loss_fn_outputs, batch)[0]

    def reading(self, run: rlt.Run, nll: float | None) -> dict[str, float]:
        """Look at a reading, if there is one."""
        if nll is None:
            return {}
        self._readings.append(nll)
        values = list(self._readings)
        rising = len(values) > _RISES and all(b > a for a, b in pairwise(values))
        if rising and values[-1] - values[0] > _RISE:
            shown = [round(value, 3) for value in values]
            self._warn(run, "demonstrations become less likely", readings=shown)
        return {"demo_nll": nll}

    def _warn(self, run: rlt.Run, sign: str, **facts: object) -> None:
        if sign not in self._said:
            self._said.add(sign)
            first = "" if run.options["teacher"] == "base" else "-o teacher=base, "
            hint = f"see samples.jsonl; try {first}a lower --lr, or stop here"
            run.log.warning(sign, **facts, hint=hint)


def _probe(run: rlt.Run) -> list[Example]:
    """Return demonstrations from all over the training rows; no reading depends on the step."""
    rows = run.train_rows
    chosen = sorted({len(rows) * part // _PROBE for part in range(_PROBE)})
    found = [demonstration(run, rows[index]) for index in chosen]
    return [example for example in found if example is not None]
