"""The operations of a sampling client: choose weights, and sample from them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from rlt.local.invariance import most_rows
from rlt.local.refusal import NotFound, Refusal
from rlt.local.sampling import Job, Lane, SampleResult
from rlt.local.wire_sampling import decode_sample, encode_sample

if TYPE_CHECKING:
    from tinker import types

    from rlt.local.adapters import Adapter
    from rlt.local.promises import Promise
    from rlt.local.samplers import Sampler
    from rlt.local.work import Workshop


class SamplingService:
    """Sampling clients of one engine. Methods raise Refusal for what cannot be accepted."""

    def __init__(self, shop: Workshop) -> None:
        """Work with the parts of `shop`."""
        self._shop = shop

    def create_sampling_session(self, request: types.CreateSamplingSessionRequest) -> Sampler:
        """A sampling session over the base model or a checkpoint. Raises Refusal or NotFound."""
        self._shop.registry.session(request.session_id)
        number, path = request.sampling_session_seq_id, request.model_path
        if path is None:
            if request.base_model is None:
                raise Refusal("a sampling client needs a base_model or a model_path")
            self._shop.check_base(request.base_model)
            return self._shop.registry.new_sampler(request.session_id, number)
        info = self._shop.store.find(path)[1]
        self._shop.check_base(info.base_model)
        return self._shop.registry.new_sampler(
            request.session_id, number, tinker_path=path, version=info.created
        )

    def sample(self, request: types.SampleRequest) -> Promise:
        """Samples from a sampling session. Raises NotFound."""
        if request.sampling_session_id is None:
            raise Refusal("sample needs a sampling_session_id")
        sampler = self._shop.registry.sampler(request.sampling_session_id)
        key = None if request.seq_id is None else ("sample", sampler.sampler_id, request.seq_id)
        promise, new = self._shop.promises.make(key)
        if not new:
            return promise
        count = max(1, request.num_samples)
        promise.extra["sample_sequence_ids"] = [uuid.uuid4().hex for _ in range(count)]
        try:
            wanted = decode_sample(request, self._shop.network)
        except Exception as error:  # becomes the answer
            promise.fail(error)
            return promise

        def deliver(result: SampleResult) -> None:
            promise.keep(encode_sample(result, request))

        job = Job(wanted, deliver, promise.fail, promise.done)
        self._shop.scheduler.submit_sample(sampler.weights_key, lambda: self._lane(sampler), job)
        return promise

    def _lane(self, sampler: Sampler) -> Lane:
        key = sampler.weights_key
        read = None if sampler.snapshot else lambda: self._read(sampler)
        adapter = None if key is None else self._shop.weights.get(key, read)
        weights = adapter.weights.values() if adapter else ()
        shapes = self._shop.network.weight_shapes() | {(w.shape[0], w.shape[1]) for w in weights}
        rows = most_rows(frozenset(shapes), self._shop.network.device, self._shop.network.dtype)
        return Lane(self._shop.network, self._shop.bank, adapter, rows)

    def _read(self, sampler: Sampler) -> Adapter:
        path = sampler.tinker_path or ""
        info, stored = self._shop.store.load(path)
        if info.created != sampler.version:
            raise NotFound(f"{path} was overwritten after this sampling client was created")
        return self._shop.bank.trainable(stored)
