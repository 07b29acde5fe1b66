"""A step of environment RL: roll out, score, centre within each group, weigh the tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rlt
from rlt_grpo.advantages import advantages, is_constant, with_penalty
from rlt_grpo.objective import datum, scaled
from rlt_grpo.rollout import group
from rlt_grpo.trajectory import Trajectory

if TYPE_CHECKING:
    from tinker import Datum


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one row in one step."""

    row: rlt.Row
    everything: Sequence[Trajectory]
    dropped: str | None = None
    """Why there are none."""

    @property
    def usable(self) -> list[Trajectory]:
        """Those that have a reward."""
        return [each for each in self.everything if not each.failure]

    @property
    def rewards(self) -> list[float]:
        """Shape (G,)."""
        return [each.reward for each in self.usable]

    @property
    def teaches(self) -> bool:
        """Whether its samples did not all do equally well."""
        return not is_constant(self.rewards)


async def batch(run: rlt.Run, step: int, rows: Sequence[rlt.Row]) -> rlt.Batch:
    """Return the step's training data.

    Groups of constant reward are left out, unless all are: then their gradient is zero, but for
    the KL penalty's.
    """
    groups = await _groups(run, step, rows, run.config.group_size)
    teaching = [each for each in groups if each.teaches]
    learnt = teaching or [each for each in groups if each.usable]
    datums, strayed = await _datums(run, learnt)
    return rlt.Batch(
        datums,
        [_outcome(each, used=each in learnt) for each in groups],
        metrics={**metrics(groups), **strayed},
        samples=[_sample(each) for group in groups for each in group.everything if each.actions],
    )


async def evaluate(run: rlt.Run, rows: rlt.Rows) -> dict[str, float]:
    """Sample each held-out row once; `loss` is the mean reward's negative."""
    held_out = [rows[index] for index in range(len(rows))]
    groups = await _groups(run, -1, held_out, 1)  # no step's seeds, and the same each time
    numbers = metrics(groups)
    if numbers["mean_reward"] is None:
        raise rlt.RunError("none of the --eval-data rows could be sampled and scored")
    of_groups = ("n_groups", "n_constant")
    told = {name: number for name, number in numbers.items() if name not in of_groups}
    return {"loss": -numbers["mean_reward"], **told, "n_rows": len(rows)}


def metrics(groups: Sequence[Group]) -> rlt.JSON:
    """Return what the rollouts came to."""
    samples = [each for group in groups for each in group.everything]
    usable = [each for each in samples if not each.failure]
    failures = [each.failure for each in samples if each.failure]
    count = len(usable)
    return {
        "mean_reward": sum(each.reward for each in usable) / count if count else None,
        "n_samples": count,
        "n_groups": sum(bool(group.usable) for group in groups),
        "n_constant": sum(bool(group.usable) and not group.teaches for group in groups),
        "n_truncated": sum(each.truncated for each in usable),
        **{f"failed/{reason}": failures.count(reason) for reason in sorted(set(failures))},
        "mean_tokens": sum(each.length for each in usable) / count if count else 0.0,
        "mean_turns": sum(len(each.actions) for each in usable) / count if count else 0.0,
    }


async def _groups(run: rlt.Run, step: int, rows: Sequence[rlt.Row], size: int) -> list[Group]:
    rolled = await asyncio.gather(*(group(run, step, row, size) for row in rows))
    return [
        Group(row, (), made) if isinstance(made, str) else Group(row, made)
        for row, made in zip(rows, rolled, strict=True)
    ]


async def _datums(run: rlt.Run, groups: Sequence[Group]) -> tuple[list[Datum], rlt.JSON]:
    scale, coefficient = run.options["scale"] == "std", run.options["kl"]
    trajectories = [each for group in groups for each in group.usable]
    values = [a for group in groups for a in advantages(group.rewards, scale=scale)]
    per_token = [[a] * t.length for a, t in zip(values, trajectories, strict=True)]
    strayed: rlt.JSON = {}
    if coefficient and trajectories:
        drift = await asyncio.gather(*(_drift(run, each) for each in trajectories))
        per_token = with_penalty(per_token, drift, coefficient)
        strayed["kl"] = sum(map(sum, drift)) / sum(map(len, drift))
    weighed = scaled(trajectories, per_token, run.options["reduction"]) if trajectories else []
    return [datum(t, a) for t, a in zip(trajectories, weighed, strict=True)], strayed


async def _drift(run: rlt.Run, trajectory: Trajectory) -> list[float]:
    """Return log p - log r of the sampled tokens, r being the weights before step 0."""
    from tinker import ModelInput  # noqa: PLC0415 - loaded with the service

    base = await run.sampler("base")
    request = base.compute_logprobs(ModelInput.from_ints(trajectory.tokens))
    reference = await run.answered(request, "the reference's log-probabilities")
    places = zip(trajectory.sampled, trajectory.logprobs, reference, strict=True)
    return [p - (r or 0.0) for sampled, p, r in places if sampled]


def _outcome(group: Group, *, used: bool) -> rlt.RowOutcome:
    dropped = group.dropped
    if dropped is None and not group.usable:
        dropped = group.everything[0].failure
    if dropped is None and not used:
        dropped = "constant-reward"
    return rlt.RowOutcome(
        group.row,
        len(group.usable) if used else 0,
        dropped,
        truncated=any(each.truncated for each in group.everything),
    )


def _sample(trajectory: Trajectory) -> rlt.JSON:
    return {
        "row": trajectory.row.id,
        "line": trajectory.row.line,
        "actions": trajectory.actions,
        "reward": trajectory.reward,
        "truncated": trajectory.truncated,
        "tokens": trajectory.tokens,
        "sampled": [int(each) for each in trajectory.sampled],
    }
