"""Which weights teach: the current ones, those before step 0, or a copy renewed now and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import rlt

if TYPE_CHECKING:
    import tinker


async def teacher(run: rlt.Run, step: int) -> tinker.SamplingClient:
    """Return the teacher of a step."""
    chosen = run.options["teacher"]
    if chosen != "sync":
        return await run.sampler(chosen)
    renewed = step - step % run.options["sync_every"]
    if renewed == 0:
        return await run.sampler("base")
    return await run.state(_Copies).of(run, step, renewed)


class _Copies:
    """The teacher's copy of the weights; its path is written down, so that a resume finds it."""

    def __init__(self) -> None:
        self._renewed = -1
        self._client: asyncio.Future[tinker.SamplingClient] | None = None

    async def of(self, run: rlt.Run, step: int, renewed: int) -> tinker.SamplingClient:
        """Return the copy made at step `renewed`; a step's rows ask for it together."""
        if self._client is None or self._renewed != renewed:
            self._renewed = renewed
            self._client = asyncio.ensure_future(self._made(run, step, renewed))
        return await self._client

    async def _made(self, run: rlt.Run, step: int, renewed: int) -> tinker.SamplingClient:
        path = await self._path(run, step, renewed)
        request = run.service.client.create_sampling_client(model_path=path)
        client: tinker.SamplingClient = await run.answered(request, "the teacher's sampler")
        return client

    async def _path(self, run: rlt.Run, step: int, renewed: int) -> str:
        ledger = rlt.JsonLines(run.directory.path / "teacher.jsonl", durable=True)
        if step == renewed:
            request = run.training.save_weights_for_sampler(f"teacher-{renewed:06d}")
            path = str((await run.answered(request, "the teacher's weights")).path)
            ledger.append({"step": renewed, "sampler": path})
            return path
        known = [line["sampler"] for line in ledger if line["step"] == renewed]
        if not known:
            raise rlt.RunError(f"{ledger.path} does not know the teacher's weights of {renewed}")
        return str(known[-1])
