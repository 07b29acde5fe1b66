"""The operations of a training client: create, load, train, save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinker import types
from tinker.types.optimizer import AdamOptimizerConfig

from rlt.local.adam import AdamSettings
from rlt.local.adapters import Shape
from rlt.local.checkpoints import SAMPLER_WEIGHTS, WEIGHTS, Info, expiry, now
from rlt.local.draw import fresh_seed
from rlt.local.refusal import Refusal
from rlt.local.training import Trainee
from rlt.local.wire import decode_examples, encode_outcome

if TYPE_CHECKING:
    from tinker.proto import tinker_public_pb2 as pb

    from rlt.local.adapters import Adapter
    from rlt.local.promises import Promise, Result
    from rlt.local.registry import Model
    from rlt.local.work import Workshop


class TrainingService:
    """Training clients of one engine. Methods raise Refusal for what cannot be accepted."""

    def __init__(self, shop: Workshop) -> None:
        """Work with the parts of `shop`."""
        self._shop = shop

    def create_model(self, request: types.CreateModelRequest) -> Promise:
        """A training client with a new adapter. Raises Refusal."""
        self._shop.check_base(request.base_model)
        _check_optimizer(request.optimizer_config)
        wanted = request.lora_config or types.LoraConfig(rank=32)
        shape = Shape(wanted.rank, wanted.train_attn, wanted.train_mlp, wanted.train_unembed)
        model = self._shop.registry.new_model(
            request.session_id, request.model_seq_id, shape, request.user_metadata
        )

        def work() -> Result:
            seed = fresh_seed() if wanted.seed is None else wanted.seed
            model.trainee = self._trainee(self._shop.bank.create(shape, seed))
            return {"type": "create_model", "model_id": model.model_id}

        return self._shop.once(("create", model.model_id), work, model_id=model.model_id)

    def load_weights(self, request: types.LoadWeightsRequest) -> Promise:
        """Weights from a checkpoint, into a new training client or an existing one."""
        if request.model_id is not None:
            model = self._shop.registry.model(request.model_id)
            return self._shop.in_order(
                model.model_id, request.seq_id, lambda: self._load_into(model, request)
            )
        if request.session_id is None or request.model_seq_id is None:
            raise Refusal("load_weights needs a model_id, or a session_id and a model_seq_id")
        shape = self._shop.store.find(request.path)[1].shape
        created = self._shop.registry.new_model(
            request.session_id, request.model_seq_id, shape, request.user_metadata
        )
        return self._shop.once(
            ("create", created.model_id),
            lambda: self._load_into(created, request),
            model_id=created.model_id,
        )

    def forward_backward(self, message: pb.ForwardBackwardRequest) -> Promise:
        """A forward pass, and a backward one unless it is forward only."""
        model = self._shop.registry.model(message.model_id)
        network = self._shop.network

        def work() -> Result:
            trainee = model.ready()
            try:
                examples, config = decode_examples(message, network)
                outcome = trainee.forward(
                    examples,
                    message.loss_fn,
                    config,
                    backward=not message.forward_only,
                    check=self._shop.scheduler.check,
                )
            except Exception:
                if not message.forward_only:
                    trainee.spoil()
                raise
            return encode_outcome(outcome)

        return self._shop.in_order(model.model_id, message.seq_id or None, work)

    def optim_step(self, request: types.OptimStepRequest) -> Promise:
        """An AdamW step."""
        model = self._shop.registry.model(request.model_id)

        def work() -> Result:
            return {"metrics": dict(model.ready().optimizer_step(_adam(request.optim_params)))}

        return self._shop.in_order(model.model_id, request.seq_id, work)

    def save_weights(self, request: types.SaveWeightsRequest) -> Promise:
        """Weights and optimizer, for training on."""
        model = self._shop.registry.model(request.model_id)

        def work() -> Result:
            trainee = model.ready()
            info = self._info(model, WEIGHTS, request)
            self._shop.store.save(
                info,
                self._shop.bank,
                trainee.adapter,
                trainee.adam.state(),
                overwrite=request.overwrite,
            )
            return {"type": "save_weights", "path": info.tinker_path}

        return self._shop.in_order(model.model_id, request.seq_id, work)

    def save_weights_for_sampler(self, request: types.SaveWeightsForSamplerRequest) -> Promise:
        """Weights for sampling: on disk under a name, or in memory for one sampling session."""
        model = self._shop.registry.model(request.model_id)

        def named() -> Result:
            info = self._info(model, SAMPLER_WEIGHTS, request)
            self._shop.store.save(
                info, self._shop.bank, model.ready().adapter, None, overwrite=False
            )
            return {"type": "save_weights_for_sampler", "path": info.tinker_path}

        def unnamed() -> Result:
            sampler = self._shop.registry.new_sampler(
                model.session_id, request.sampling_session_seq_id, snapshot=True
            )
            self._shop.weights.put(sampler.weights_key, model.ready().adapter.snapshot())
            return {
                "type": "save_weights_for_sampler",
                "sampling_session_id": sampler.sampler_id,
            }

        work = named if request.path else unnamed
        return self._shop.in_order(model.model_id, request.seq_id, work)

    def _trainee(self, adapter: Adapter) -> Trainee:
        return Trainee(self._shop.network, self._shop.bank, adapter)

    def _load_into(self, model: Model, request: types.LoadWeightsRequest) -> Result:
        info, stored = self._shop.store.load(request.path)
        self._shop.check_base(request.base_model or info.base_model)
        self._shop.check_base(info.base_model)
        _check_optimizer(request.optimizer_config or AdamOptimizerConfig())
        if info.shape != model.shape:
            raise Refusal(f"{request.path} has {info.shape}, the training client {model.shape}")
        optimizer = self._shop.store.load_optimizer(request.path) if request.optimizer else None
        trainee = self._trainee(self._shop.bank.trainable(stored))
        if optimizer is not None:
            trainee.adam.restore(optimizer)
        model.trainee = trainee
        return {"type": "load_weights", "path": request.path, "model_id": model.model_id}

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
            base_model=self._shop.network.name,
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
