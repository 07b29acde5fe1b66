"""Training runs and checkpoints as the SDK's `RestClient` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt.local.checkpoints import WEIGHTS
from rlt.local.refusal import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt.local.checkpoints import Info
    from rlt.local.engine import Engine
    from rlt.local.registry import Model

Json = dict[str, Any]
_OWNER = "local"


def checkpoint_json(info: Info, size: int) -> Json:
    """A `tinker.types.Checkpoint`."""
    return {
        "checkpoint_id": info.checkpoint_id,
        "checkpoint_type": "training" if info.kind == WEIGHTS else "sampler",
        "time": info.created,
        "tinker_path": info.tinker_path,
        "size_bytes": size,
        "public": False,
        "user_metadata": info.user_metadata,
        "expires_at": info.expires,
    }


def list_checkpoints(engine: Engine, model_id: str) -> Json:
    """The checkpoints of one run, newest first. Raises NotFound for a run nobody knows."""
    _run(engine, model_id)
    found = [(info, size) for info, size in engine.store.list() if info.model_id == model_id]
    return {"checkpoints": [checkpoint_json(info, size) for info, size in found]}


def list_all_checkpoints(engine: Engine, limit: int, offset: int) -> Json:
    """One page of all checkpoints, newest first."""
    found = engine.store.list()
    page = [checkpoint_json(info, size) for info, size in found[offset : offset + limit]]
    return {"checkpoints": page, "cursor": _cursor(limit, offset, len(found))}


def training_run(engine: Engine, model_id: str) -> Json:
    """A `tinker.types.TrainingRun`, from a live training client or from its checkpoints."""
    return _run(engine, model_id)


def list_training_runs(engine: Engine, limit: int, offset: int) -> Json:
    """One page of all runs, latest first."""
    saved = engine.store.list()
    known = {*engine.registry.models, *(info.model_id for info, _ in saved)}
    runs = sorted(
        (
            _run_json(engine.registry.models.get(model_id), model_id, engine, saved)
            for model_id in known
        ),
        key=lambda run: str(run["last_request_time"]),
        reverse=True,
    )
    page = runs[offset : offset + limit]
    return {"training_runs": page, "cursor": _cursor(limit, offset, len(runs))}


def _run(engine: Engine, model_id: str) -> Json:
    saved = [(info, size) for info, size in engine.store.list() if info.model_id == model_id]
    model = engine.registry.models.get(model_id)
    if model is None and not saved:
        raise NotFound(f"training run {model_id!r} is not known")
    return _run_json(model, model_id, engine, saved)


def _run_json(
    model: Model | None, model_id: str, engine: Engine, saved: Sequence[tuple[Info, int]]
) -> Json:
    own = [(info, size) for info, size in saved if info.model_id == model_id]
    metadata = model.user_metadata if model else own[0][0].run_metadata
    training = [item for item in own if item[0].kind == WEIGHTS]
    sampling = [item for item in own if item[0].kind != WEIGHTS]
    return {
        "training_run_id": model_id,
        "base_model": own[0][0].base_model if own else engine.network.name,
        "model_owner": _OWNER,
        "is_lora": True,
        "lora_rank": model.shape.rank if model else own[0][0].shape.rank,
        "last_request_time": own[0][0].created if own or model is None else model.created,
        "last_checkpoint": checkpoint_json(*training[0]) if training else None,
        "last_sampler_checkpoint": checkpoint_json(*sampling[0]) if sampling else None,
        "user_metadata": {k: str(v) for k, v in metadata.items()} if metadata else None,
    }


def _cursor(limit: int, offset: int, total: int) -> Json:
    return {"limit": limit, "offset": offset, "total_count": total}
