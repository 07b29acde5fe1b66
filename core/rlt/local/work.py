"""What the operations of the service share: the network, its adapters, and how work is ordered.

An operation is called in the HTTP thread. It looks things up, and hands what computes to the
scheduler's thread, which alone touches the network; the promise it returns is answered from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlt.local.promises import Promise, PromiseBook
from rlt.local.refusal import NotFound
from rlt.local.registry import Registry
from rlt.local.samplers import WeightsCache
from rlt.local.scheduler import Scheduler, Work

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rlt.local.adapters import AdapterBank
    from rlt.local.checkpoints import CheckpointStore
    from rlt.local.network import Network


@dataclass(frozen=True)
class Workshop:
    """The parts of one running engine."""

    network: Network
    bank: AdapterBank
    store: CheckpointStore
    registry: Registry = field(default_factory=Registry)
    promises: PromiseBook = field(default_factory=PromiseBook)
    weights: WeightsCache = field(default_factory=WeightsCache)
    scheduler: Scheduler = field(default_factory=Scheduler)

    def once(self, key: Hashable, work: Work, **extra: Any) -> Promise:
        """Do `work` when its turn comes, once for each key; `extra` goes with the promise."""
        promise, new = self.promises.make(key)
        if new:
            promise.extra.update(extra)
            self.scheduler.submit(promise, work)
        return promise

    def in_order(self, model_id: str, number: int | None, work: Work) -> Promise:
        """Do `work` after all that this training client asked before, and once."""
        key = None if number is None else ("train", model_id, number)
        promise, new = self.promises.make(key)
        if new:
            promise.extra["model_id"] = model_id
            self.scheduler.submit_in_order(model_id, number, promise, work)
        return promise

    def check_base(self, base_model: str) -> None:
        """Raises NotFound unless this engine has that model."""
        if base_model != self.network.name:
            raise NotFound(
                f"model {base_model!r} is not served here; this engine has {self.network.name!r}"
            )
