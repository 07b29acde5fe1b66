"""Which weights a sampling session draws from, and which of them are in memory.

Weights that were saved under a name can be read again at any time; those of an unnamed save exist
only here, so when memory for them runs out the least recently used are lost, and said to be.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt.local.refusal import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlt.local.adapters import Adapter

_BUDGET_BYTES = 1 << 30
_FEWEST = 8


@dataclass(frozen=True)
class Sampler:
    """A sampling session."""

    sampler_id: str
    tinker_path: str | None = None
    version: str | None = None
    """When the checkpoint of that path was created: an overwritten one is another."""

    snapshot: bool = False
    """Draws from an unnamed save."""

    @property
    def weights_key(self) -> Hashable:
        """The same for sessions that draw from the same weights."""
        if self.snapshot:
            return self.sampler_id
        return (self.tinker_path, self.version) if self.tinker_path else None


class WeightsCache:
    """Adapters by key, within a budget of memory. Used by the engine's thread only."""

    def __init__(self, budget: int = _BUDGET_BYTES, fewest: int = _FEWEST) -> None:
        """Keep up to `budget` bytes, and `fewest` adapters in any case."""
        self._budget = budget
        self._fewest = fewest
        self._adapters: OrderedDict[Hashable, Adapter] = OrderedDict()

    def put(self, key: Hashable, adapter: Adapter) -> None:
        """Keep an adapter, dropping those that were not used for longest."""
        self._adapters[key] = adapter
        self._adapters.move_to_end(key)
        while len(self._adapters) > self._fewest and self._bytes() > self._budget:
            self._adapters.popitem(last=False)

    def get(self, key: Hashable, read: Callable[[], Adapter] | None) -> Adapter:
        """The adapter of `key`, by `read` when it is not in memory. Raises NotFound."""
        if key in self._adapters:
            self._adapters.move_to_end(key)
            return self._adapters[key]
        if read is None:
            raise NotFound(
                f"the weights of sampler {key} were dropped: too many newer ones were saved "
                "without a name (save_weights_for_sampler(name) keeps them)"
            )
        adapter = read()
        self.put(key, adapter)
        return adapter

    def drop(self, key: Hashable) -> None:
        """Forget an adapter, if it is there."""
        self._adapters.pop(key, None)

    def _bytes(self) -> int:
        return sum(adapter.nbytes() for adapter in self._adapters.values())
