"""Rollouts: all of a step's are in flight together, each for at most `deadline` seconds.

A row is one turn unless a plugin makes an environment of it. Then each sample is an episode: the
environment speaks, the model acts, until the environment is done, the model runs out of tokens or
`max_turns` have been taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import rlt
from rlt.rendering import Unrenderable, as_messages
from rlt_grpo.scoring import Fault, finite, reward, theirs
from rlt_grpo.trajectory import Trajectory

T = TypeVar("T")


async def group(run: rlt.Run, step: int, row: rlt.Row, size: int) -> list[Trajectory] | str:
    """Return `size` trajectories of a row, or why there are none."""
    environments = await _environments(run, row, size)
    try:
        if environments is None:
            return await _single_turns(run, step, row, size)
        episodes = (_episode(run, step, row, i, e) for i, e in enumerate(environments))
        return list(await asyncio.gather(*(_bounded(run, row, each) for each in episodes)))
    except Unrenderable as error:
        run.log.warning("row dropped", row=row.where, reason=str(error))
        return "unrenderable"
    except _TooLong:
        run.log.warning("row dropped", row=row.where, reason="longer than the model's context")
        return "too-long"


class _TooLong(Exception):  # noqa: N818 - it describes a row
    """There is no room for an answer."""


# ---- one turn


async def _single_turns(run: rlt.Run, step: int, row: rlt.Row, size: int) -> list[Trajectory]:
    prompt = _prompt(run, row, row.data["prompt"])
    seed = run.sampling_seed(step, row)
    sampled = asyncio.ensure_future(run.sample(prompt, seed=seed, samples=size))
    if not await _in_time(run, sampled):
        return [Trajectory(row, [], failure="deadline") for _ in range(size)]
    started = []
    for sequence in sampled.result():
        trajectory = Trajectory(row, list(prompt))
        trajectory.said(sequence, run.renderer.text(sequence.tokens))
        started.append(trajectory)
    scored = (_bounded(run, row, _scored(run, trajectory)) for trajectory in started)
    return list(await asyncio.gather(*scored))


async def _scored(run: rlt.Run, trajectory: Trajectory) -> Trajectory:
    trajectory.reward = await reward(run, trajectory.row, trajectory.actions[-1])
    return trajectory


# ---- several turns


async def _environments(run: rlt.Run, row: rlt.Row, size: int) -> list[rlt.Environment] | None:
    first = await run.hooks.call_async("make_environment", run=run, row=row)
    if first is None:
        return None
    rest = [
        await run.hooks.call_async("make_environment", run=run, row=row) for _ in range(size - 1)
    ]
    return [first, *rest]


async def _episode(
    run: rlt.Run, step: int, row: rlt.Row, index: int, environment: rlt.Environment
) -> Trajectory:
    turns, tools = run.options["max_turns"], row.data.get("tools")
    await theirs(environment.reset(run.sampling_seed(step, row, index)), "reset")
    observed = await theirs(environment.observe(), "observe")
    history = as_messages(observed, "user")
    trajectory = Trajectory(row, _prompt(run, row, observed))
    for turn in range(turns):
        if turn:
            observed = await theirs(environment.observe(), "observe")
            trajectory.given(run.renderer.follow_up(history[:-1], observed, tools))
            history += as_messages(observed, "user")
        if not run.fits(trajectory.tokens):
            trajectory.truncated = True
            break
        seed = run.sampling_seed(step, row, turns * index + turn)
        (sequence,) = await run.sample(trajectory.tokens, seed=seed)
        action = run.renderer.text(sequence.tokens)
        trajectory.said(sequence, action)
        history.append({"role": "assistant", "content": action})
        await theirs(environment.act(action), "act")
        # a turn that was cut has no end, so nothing can follow it
        if trajectory.truncated or await theirs(environment.done(), "done"):
            break
    earned = await theirs(environment.reward(), "reward")
    if earned is None:
        return await _scored(run, trajectory)
    trajectory.reward = finite(earned)
    return trajectory


# ---- what bounds and counts them


async def _bounded(
    run: rlt.Run, row: rlt.Row, rollout: Coroutine[Any, Any, Trajectory]
) -> Trajectory:
    """Await a rollout; past its deadline, or when a verifier fails, it is one without reward.

    :raises rlt.RunError: when a verifier fails and `on_score_error` is `fail`.
    """
    task = asyncio.ensure_future(rollout)
    if not await _in_time(run, task):
        return Trajectory(row, [], failure="deadline")
    try:
        return task.result()
    except Fault as fault:
        if run.options["on_score_error"] == "fail":
            raise rlt.RunError(
                f"{row.where}: {fault}; -o on_score_error=drop leaves such samples out"
            ) from fault
        run.log.warning("sample dropped", row=row.where, reason=str(fault))
        return Trajectory(row, [], failure="score-error")


async def _in_time(run: rlt.Run, task: asyncio.Future[Any]) -> bool:
    """Wait for a task until the deadline; then cancel it, without waiting for it to agree."""
    deadline = run.options["deadline"]
    await asyncio.wait({task}, timeout=deadline or None)
    if task.done():
        return True
    task.cancel()
    return False


def _prompt(run: rlt.Run, row: rlt.Row, messages: str | Sequence[rlt.JSON]) -> list[int]:
    prompt = run.renderer.prompt(messages, row.data.get("tools"))
    if not run.fits(prompt):
        raise _TooLong
    return prompt
