"""Serve the judge: the reward of a sample is how sure it is that the sample beats a reference.

A row names the reference in its metadata; a row without one is left to the next plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import rlt
from rlt_reward_model import judge

PLUGIN = rlt.PluginInfo(
    summary="Scores samples by a judge that `judge` has trained.",
    options={
        "judge": {
            "type": "string",
            "description": "the judge: the tinker:// path of a checkpoint's sampler weights",
        }
    },
)


class Judge:
    """The judge of one run, opened when it is first asked."""

    def __init__(self) -> None:
        self._client: asyncio.Future[Any] | None = None

    async def client(self, run: rlt.Run) -> Any:
        """Return the client that samples from the judge's weights."""
        if self._client is None:
            request = run.service.client.create_sampling_client(model_path=run.options["judge"])
            self._client = asyncio.ensure_future(run.answered(request, "the judge's weights"))
        return await self._client


@rlt.hookimpl
def load_rows(run: rlt.Run) -> None:
    """Say before anything starts when no judge is named."""
    if not run.options.get("judge", "").startswith("tinker://"):
        raise rlt.UsageError(
            "judge-score needs -o judge=tinker://…, the sampler of a trained judge"
        )


@rlt.hookimpl
def score(run: rlt.Run, row: rlt.Row, completion: str) -> Awaitable[float] | None:
    """Compare a completion with the row's reference."""
    reference = row.data["metadata"].get("reference")
    if reference is None:
        return None
    return _preference(run, judge.as_text(row.data["prompt"]), completion, str(reference))


async def _preference(run: rlt.Run, question: str, completion: str, reference: str) -> float:
    client = await run.state(Judge).client(run)
    return await judge.preference(run, client, question, completion, reference)
