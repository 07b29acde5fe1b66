"""The service as a whole: what the endpoints talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt.local.adapters import AdapterBank
from rlt.local.promises import Promise
from rlt.local.refusal import Refusal
from rlt.local.sampling_service import SamplingService
from rlt.local.training_service import TrainingService
from rlt.local.work import Workshop

if TYPE_CHECKING:
    from rlt.local.checkpoints import CheckpointStore
    from rlt.local.network import Network
    from rlt.local.promises import Result

_CLOSE_SECONDS = 30.0


class Engine:
    """A service over one network, with a thread that computes."""

    def __init__(self, network: Network, store: CheckpointStore) -> None:
        """Start the thread."""
        self._shop = Workshop(network, AdapterBank(network), store)
        self.network = network
        self.store = store
        self.registry = self._shop.registry
        self.promises = self._shop.promises
        self.training = TrainingService(self._shop)
        self.sampling = SamplingService(self._shop)

    def finish_session(self, session_id: str) -> None:
        """Forget a session with its clients; their checkpoints stay. Raises NotFound."""
        models, samplers = self.registry.end_session(session_id)
        for model_id in models:
            self._shop.scheduler.forget(model_id)
        doomed = [sampler.weights_key for sampler in samplers if sampler.snapshot]

        def drop() -> Result:
            for key in doomed:
                self._shop.weights.drop(key)
            return {}

        self._shop.scheduler.submit(Promise(None), drop)

    def close(self) -> None:
        """End what is running; every open request is answered with a refusal."""
        self._shop.scheduler.stop(_CLOSE_SECONDS)
        self.promises.fail_all(Refusal("the embedded engine was closed"))
