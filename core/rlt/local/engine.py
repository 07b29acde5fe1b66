"""What the service is: sessions, training clients, samplers, and the operations on them.

Methods are called from the HTTP thread. Those that compute hand their work to the scheduler's
thread, which alone touches the network, and return a promise; the others only look things up.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tinker import types
from tinker.types.optimizer import AdamOptimizerConfig

from rlt.local.adam import AdamSettings
from rlt.local.adapters import AdapterBank, Shape
from rlt.local.checkpoints import SAMPLER_WEIGHTS, WEIGHTS, CheckpointStore, Info, expiry, now
from rlt.local.draw import fresh_seed
from rlt.local.invariance import most_rows
from rlt.local.promises import Promise, PromiseBook, Result
from rlt.local.refusal import NotFound, Refusal
from rlt.local.samplers import Sampler, WeightsCache
from rlt.local.sampling import Job, Lane, SampleResult
from rlt.local.scheduler import Scheduler
from rlt.local.training import Trainee
from rlt.local.wire import decode_examples, encode_outcome
from rlt.local.wire_sampling import decode_sample, encode_sample

if TYPE_CHECKING:
    from tinker.proto import tinker_public_pb2 as pb

    from rlt.local.adapters import Adapter
    from rlt.local.network import Network


@dataclass
class Session:
    """One client's visit."""

    session_id: str
    user_metadata: dict[str, Any] | None = None
    display_name: str | None = None
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)


@dataclass
class Model:
    """One training client."""

    model_id: str
    shape: Shape
    user_metadata: dict[str, Any] | None
    created: str
    trainee: Trainee | None = None
    """None until the engine's thread has made it."""

    def ready(self) -> Trainee:
        """The trainee. Raises Refusal when its creation failed."""
        if self.trainee is None:
            raise Refusal(f"training client {self.model_id} was never created")
        return self.trainee


class Engine:
    """The service over one network."""

    def __init__(self, network: Network, store: CheckpointStore) -> None:
        """Start the thread that computes."""
        self.network = network
        self.store = store
        self.promises = PromiseBook()
        self.sessions: dict[str, Session] = {}
        self.models: dict[str, Model] = {}
        self.samplers: dict[str, Sampler] = {}
        self._bank = AdapterBank(network)
        self._weights = WeightsCache()
        self._lock = threading.RLock()
        self._scheduler = Scheduler()

    def close(self) -> None:
        """End what is running; every open request is answered with a refusal."""
        self._scheduler.stop(timeout=30)
        self.promises.fail_all(Refusal("the embedded engine was closed"))

    def create_session(self, request: types.CreateSessionRequest) -> Session:
        """A new session."""
        session = Session(
            f"local-{uuid.uuid4().hex[:16]}", request.user_metadata, request.display_name
        )
        self.sessions[session.session_id] = session
        return session

    def finish_session(self, session_id: str) -> None:
        """Forget a session with its clients; their checkpoints stay. Raises NotFound."""
        session = self.session(session_id)
        with self._lock:
            for model_id in session.models:
                self.models.pop(model_id, None)
                self._scheduler.forget(model_id)
            doomed = [self.samplers.pop(s) for s in session.samplers if s in self.samplers]
            del self.sessions[session_id]
        keys = [sampler.weights_key for sampler in doomed if sampler.snapshot]
        self._scheduler.submit(Promise(None), lambda: self._drop_weights(keys))

    def session(self, session_id: str) -> Session:
        """Raises NotFound."""
        if session_id not in self.sessions:
            raise NotFound(f"session {session_id!r} is not known, or is finished")
        return self.sessions[session_id]

    def model(self, model_id: str) -> Model:
        """Raises NotFound."""
        if model_id not in self.models:
            raise NotFound(f"training client {model_id!r} is not known, or its session is finished")
        return self.models[model_id]

    def sampler(self, sampler_id: str) -> Sampler:
        """Raises NotFound."""
        if sampler_id not in self.samplers:
            raise NotFound(f"sampler {sampler_id!r} is not known, or its session is finished")
        return self.samplers[sampler_id]

    # Training clients

    def create_model(self, request: types.CreateModelRequest) -> Promise:
        """A training client with a new adapter. Raises Refusal."""
        self._check_base(request.base_model)
        _check_optimizer(request.optimizer_config)
        wanted = request.lora_config or types.LoraConfig(rank=32)
        shape = Shape(wanted.rank, wanted.train_attn, wanted.train_mlp, wanted.train_unembed)
        model = self._new_model(
            request.session_id, request.model_seq_id, shape, request.user_metadata
        )

        def work() -> Result:
            seed = fresh_seed() if wanted.seed is None else wanted.seed
            model.trainee = self._trainee(self._bank.create(shape, seed))
            return {"type": "create_model", "model_id": model.model_id}

        return self._once(("create", model.model_id), work, model_id=model.model_id)

    def load_weights(self, request: types.LoadWeightsRequest) -> Promise:
        """Weights from a checkpoint, into a new training client or an existing one."""
        if request.model_id is not None:
            model = self.model(request.model_id)
            return self._in_order(
                model.model_id, request.seq_id, lambda: self._load_into(model, request)
            )
        if request.session_id is None or request.model_seq_id is None:
            raise Refusal("load_weights needs a model_id, or a session_id and a model_seq_id")
        shape = self.store.find(request.path)[1].shape
        created = self._new_model(
            request.session_id, request.model_seq_id, shape, request.user_metadata
        )
        return self._once(
            ("create", created.model_id),
            lambda: self._load_into(created, request),
            model_id=created.model_id,
        )

    def forward_backward(self, message: pb.ForwardBackwardRequest) -> Promise:
        """A forward pass, and a backward one unless it is forward only."""
        model = self.model(message.model_id)
        network = self.network

        def work() -> Result:
            examples, config = decode_examples(
                message, network.vocabulary, network.max_context, network.device
            )
            outcome = model.ready().forward(
                examples,
                message.loss_fn,
                config,
                backward=not message.forward_only,
                check=self._scheduler.check,
            )
            return encode_outcome(outcome)

        return self._in_order(model.model_id, message.seq_id or None, work)

    def optim_step(self, request: types.OptimStepRequest) -> Promise:
        """An AdamW step."""
        model = self.model(request.model_id)

        def work() -> Result:
            return {"metrics": dict(model.ready().optimizer_step(_adam(request.optim_params)))}

        return self._in_order(model.model_id, request.seq_id, work)

    def save_weights(self, request: types.SaveWeightsRequest) -> Promise:
        """Weights and optimizer, for training on."""
        model = self.model(request.model_id)

        def work() -> Result:
            trainee = model.ready()
            info = self._info(model, WEIGHTS, request)
            self.store.save(
                info, self._bank, trainee.adapter, trainee.adam.state(), overwrite=request.overwrite
            )
            return {"type": "save_weights", "path": info.tinker_path}

        return self._in_order(model.model_id, request.seq_id, work)

    def save_weights_for_sampler(self, request: types.SaveWeightsForSamplerRequest) -> Promise:
        """Weights for sampling: on disk under a name, or in memory for one sampling session."""
        model = self.model(request.model_id)

        def named() -> Result:
            info = self._info(model, SAMPLER_WEIGHTS, request)
            self.store.save(info, self._bank, model.ready().adapter, None, overwrite=False)
            return {"type": "save_weights_for_sampler", "path": info.tinker_path}

        def unnamed() -> Result:
            session_id = model.model_id.split(":")[0]
            number = request.sampling_session_seq_id
            sampler = self._new_sampler(session_id, number, snapshot=True)
            self._weights.put(sampler.weights_key, model.ready().adapter.snapshot())
            return {
                "type": "save_weights_for_sampler",
                "sampling_session_id": sampler.sampler_id,
            }

        work = named if request.path else unnamed
        return self._in_order(model.model_id, request.seq_id, work)

    # Sampling

    def create_sampling_session(self, request: types.CreateSamplingSessionRequest) -> Sampler:
        """A sampling session over the base model or a checkpoint. Raises Refusal or NotFound."""
        self.session(request.session_id)
        number, path = request.sampling_session_seq_id, request.model_path
        if path is None:
            if request.base_model is None:
                raise Refusal("a sampling client needs a base_model or a model_path")
            self._check_base(request.base_model)
            return self._new_sampler(request.session_id, number)
        info = self.store.find(path)[1]
        self._check_base(info.base_model)
        return self._new_sampler(request.session_id, number, tinker_path=path, version=info.created)

    def sample(self, request: types.SampleRequest) -> Promise:
        """Samples from a sampling session. Raises NotFound."""
        if request.sampling_session_id is None:
            raise Refusal("sample needs a sampling_session_id")
        sampler = self.sampler(request.sampling_session_id)
        key = None if request.seq_id is None else ("sample", sampler.sampler_id, request.seq_id)
        promise, new = self.promises.make(key)
        if not new:
            return promise
        count = max(1, request.num_samples)
        promise.extra["sample_sequence_ids"] = [uuid.uuid4().hex for _ in range(count)]
        try:
            wanted = decode_sample(request, self.network)
        except Refusal as refusal:
            promise.fail(refusal)
            return promise

        def deliver(result: SampleResult) -> None:
            promise.keep(encode_sample(result, request))

        job = Job(wanted, deliver, promise.fail, promise.done)
        self._scheduler.submit_sample(sampler.weights_key, lambda: self._lane(sampler), job)
        return promise

    # Run by the scheduler's thread

    def _trainee(self, adapter: Adapter) -> Trainee:
        return Trainee(self.network, self._bank, adapter)

    def _load_into(self, model: Model, request: types.LoadWeightsRequest) -> Result:
        info, stored = self.store.load(request.path)
        self._check_base(request.base_model or info.base_model)
        self._check_base(info.base_model)
        _check_optimizer(request.optimizer_config or AdamOptimizerConfig())
        if info.shape != model.shape:
            raise Refusal(f"{request.path} has {info.shape}, the training client {model.shape}")
        optimizer = self.store.load_optimizer(request.path) if request.optimizer else None
        trainee = self._trainee(self._bank.trainable(stored))
        if optimizer is not None:
            trainee.adam.restore(optimizer)
        model.trainee = trainee
        return {"type": "load_weights", "path": request.path, "model_id": model.model_id}

    def _lane(self, sampler: Sampler) -> Lane:
        path, key = sampler.tinker_path, sampler.weights_key
        read = None if path is None else lambda: self._bank.trainable(self.store.load(path)[1])
        adapter = None if key is None else self._weights.get(key, read)
        shapes = self.network.weight_shapes()
        if adapter is not None:
            shapes |= {(w.shape[0], w.shape[1]) for w in adapter.weights.values()}
        rows = most_rows(frozenset(shapes), self.network.device, self.network.dtype)
        return Lane(self.network, self._bank, adapter, rows)

    def _drop_weights(self, keys: list[Any]) -> Result:
        for key in keys:
            self._weights.drop(key)
        return {}

    # Bookkeeping

    def _once(self, key: Any, work: Any, **extra: Any) -> Promise:
        promise, new = self.promises.make(key)
        if new:
            promise.extra.update(extra)
            self._scheduler.submit(promise, work)
        return promise

    def _in_order(self, model_id: str, number: int | None, work: Any) -> Promise:
        key = None if number is None else ("train", model_id, number)
        promise, new = self.promises.make(key)
        if new:
            promise.extra["model_id"] = model_id
            self._scheduler.submit_in_order(model_id, number, promise, work)
        return promise

    def _new_model(
        self, session_id: str, number: int, shape: Shape, user_metadata: dict[str, Any] | None
    ) -> Model:
        session = self.session(session_id)
        model_id = f"{session_id}:train:{number}"
        with self._lock:
            if model_id not in self.models:
                self.models[model_id] = Model(model_id, shape, user_metadata, now())
                session.models.append(model_id)
            return self.models[model_id]

    def _new_sampler(self, session_id: str, number: int | None, **what: Any) -> Sampler:
        session = self.session(session_id)
        name = uuid.uuid4().hex[:16] if number is None else str(number)
        with self._lock:
            sampler = Sampler(f"{session_id}:sample:{name}", session_id, **what)
            if sampler.sampler_id not in self.samplers:
                session.samplers.append(sampler.sampler_id)
                self.samplers[sampler.sampler_id] = sampler
            return self.samplers[sampler.sampler_id]

    def _check_base(self, base_model: str) -> None:
        if base_model != self.network.name:
            raise NotFound(
                f"model {base_model!r} is not served here; this engine has {self.network.name!r}"
            )

    def _info(
        self,
        model: Model,
        kind: str,
        request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest,
    ) -> Info:
        name = request.path or ""
        return Info(
            tinker_path=f"tinker://{model.model_id}/{kind}/{name}",
            model_id=model.model_id,
            kind=kind,
            name=name,
            base_model=self.network.name,
            shape=model.shape,
            created=now(),
            expires=expiry(request.ttl_seconds),
            user_metadata=request.user_metadata,
            run_metadata=model.user_metadata or {},
        )


def _check_optimizer(config: Any) -> None:
    if not isinstance(config, AdamOptimizerConfig):
        raise Refusal(f"optimizer {config.type!r} is not one of the embedded engine's: adamw")


def _adam(params: Any) -> AdamSettings:
    if not isinstance(params, types.AdamParams):
        raise Refusal("this training client was created for Adam: pass AdamParams")
    if not (0 <= params.learning_rate < float("inf")):
        raise Refusal(f"learning_rate must be 0 or more, got {params.learning_rate}")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(params, name) < 1:
            raise Refusal(f"{name} must be at least 0 and below 1, got {getattr(params, name)}")
    if not (params.eps >= 0 and params.weight_decay >= 0):
        raise Refusal("eps and weight_decay must be 0 or more")
    return AdamSettings(
        params.learning_rate,
        params.beta1,
        params.beta2,
        params.eps,
        params.weight_decay,
        params.grad_clip_norm,
    )
