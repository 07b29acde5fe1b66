"""The endpoints of the Tinker protocol, each a few lines: read the message, ask the engine.

What cannot be accepted at all (an unknown client, a message that does not parse) is an HTTP error
at once. What was accepted and then refused or failed is the answer of its promise, with status 200
and a category; the SDK would repeat a 5xx for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from rlt.local import runs
from rlt.local.promises import Promise
from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from rlt.local.engine import Engine

logger = logging.getLogger(__name__)

_POLL_SECONDS = 20.0  # the SDK gives up on a poll after 45
_PROTOBUF = "application/x-protobuf"
_PREFIX = "/api/v1/"

M = TypeVar("M", bound=BaseModel)
Handler = Callable[["Engine", Request], Awaitable[Any]]

_HANDLERS: list[tuple[str, str, Handler]] = []


def _on(method: str, path: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _HANDLERS.append((method, path, handler))
        return handler

    return register


def application(engine: Engine) -> Starlette:
    """The HTTP application over `engine`."""
    return Starlette(
        routes=[
            Route(_PREFIX + path, _endpoint(engine, handler), methods=[method])
            for method, path, handler in _HANDLERS
        ]
    )


def _endpoint(engine: Engine, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            result = await handler(engine, request)
        except Refusal as refusal:
            return _detail(refusal.status, str(refusal))
        except ValidationError as error:
            return _detail(422, _first_problem(error))
        except (DecodeError, ValueError) as error:
            return _detail(400, f"the message cannot be read: {error}")
        except Exception as error:
            # Our fault, and yet no 5xx, which the SDK would repeat for minutes.
            logger.exception("an endpoint of the embedded engine failed")
            return _detail(400, f"the embedded engine failed: {type(error).__name__}: {error}")
        if isinstance(result, Response):
            return result
        return JSONResponse(_promised(result) if isinstance(result, Promise) else result)

    return endpoint


def _detail(status: int, message: str) -> Response:
    return JSONResponse({"detail": message}, status)


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _promised(promise: Promise) -> dict[str, Any]:
    return {"request_id": promise.request_id, **promise.extra}


async def _read(request: Request, model: type[M]) -> M:
    return model.model_validate_json(await request.body() or b"{}")


@_on("POST", "client/config")
async def _client_config(_: Engine, __: Request) -> Any:
    # Chunks of one forward_backward one after another; and httpx's own transport.
    return {"parallel_fwdbwd_chunks": False, "use_pyqwest_transport": False}


@_on("POST", "client/dynamic_config")
async def _dynamic_config(_: Engine, __: Request) -> Any:
    return {"sample_cancel_enabled": True}


@_on("GET", "healthz")
async def _health(_: Engine, __: Request) -> Any:
    return {"status": "ok"}


@_on("POST", "telemetry")
async def _telemetry(_: Engine, __: Request) -> Any:
    return {"status": "accepted"}


@_on("GET", "get_server_capabilities")
async def _capabilities(engine: Engine, _: Request) -> Any:
    model = {
        "model_name": engine.network.name,
        "max_context_length": engine.network.max_context,
        "trainable": True,
        "sampleable": True,
    }
    return {"supported_models": [model]}


@_on("POST", "create_session")
async def _create_session(engine: Engine, request: Request) -> Any:
    wanted = await _read(request, types.CreateSessionRequest)
    session = engine.registry.new_session(wanted.user_metadata, wanted.display_name)
    return {"type": "create_session", "session_id": session.session_id}


@_on("POST", "session_heartbeat")
async def _heartbeat(engine: Engine, request: Request) -> Any:
    engine.registry.session((await _read(request, types.SessionHeartbeatRequest)).session_id)
    return {"type": "session_heartbeat"}


@_on("GET", "sessions/{session_id}")
async def _get_session(engine: Engine, request: Request) -> Any:
    session = engine.registry.session(request.path_params["session_id"])
    return {
        "training_run_ids": session.models,
        "sampler_ids": session.samplers,
        "user_metadata": session.user_metadata,
        "display_name": session.display_name,
    }


@_on("POST", "sessions/{session_id}/finish")
async def _finish_session(engine: Engine, request: Request) -> Any:
    engine.finish_session(request.path_params["session_id"])
    return {}


@_on("POST", "create_model")
async def _create_model(engine: Engine, request: Request) -> Any:
    return engine.training.create_model(await _read(request, types.CreateModelRequest))


@_on("POST", "get_info")
async def _get_info(engine: Engine, request: Request) -> Any:
    model = engine.registry.model((await _read(request, types.GetInfoRequest)).model_id)
    name = engine.network.name
    return {
        "type": "get_info",
        "model_id": model.model_id,
        "model_name": name,
        "is_lora": True,
        "lora_rank": model.shape.rank,
        "optimizer_config": {"type": "adamw"},
        "model_data": {
            "arch": engine.network.architecture,
            "model_name": name,
            "tokenizer_id": engine.network.tokenizer_id,
        },
    }


@_on("POST", "forward_backward")
async def _forward_backward(engine: Engine, request: Request) -> Any:
    message = pb.ForwardBackwardRequest.FromString(await request.body())
    return engine.training.forward_backward(message)


@_on("POST", "optim_step")
async def _optim_step(engine: Engine, request: Request) -> Any:
    return engine.training.optim_step(await _read(request, types.OptimStepRequest))


@_on("POST", "save_weights")
async def _save_weights(engine: Engine, request: Request) -> Any:
    return engine.training.save_weights(await _read(request, types.SaveWeightsRequest))


@_on("POST", "save_weights_for_sampler")
async def _save_for_sampler(engine: Engine, request: Request) -> Any:
    return engine.training.save_weights_for_sampler(
        await _read(request, types.SaveWeightsForSamplerRequest)
    )


@_on("POST", "load_weights")
async def _load_weights(engine: Engine, request: Request) -> Any:
    return engine.training.load_weights(await _read(request, types.LoadWeightsRequest))


@_on("POST", "weights_info")
async def _weights_info(engine: Engine, request: Request) -> Any:
    path = (await request.json()).get("tinker_path", "")
    info = engine.store.find(path)[1]
    return {
        "base_model": info.base_model,
        "is_lora": True,
        "lora_rank": info.shape.rank,
        "train_attn": info.shape.attention,
        "train_mlp": info.shape.mlp,
        "train_unembed": info.shape.unembed,
    }


@_on("POST", "create_sampling_session")
async def _create_sampling_session(engine: Engine, request: Request) -> Any:
    wanted = await _read(request, types.CreateSamplingSessionRequest)
    sampler = engine.sampling.create_sampling_session(wanted)
    return {"type": "create_sampling_session", "sampling_session_id": sampler.sampler_id}


@_on("GET", "samplers/{sampler_id}")
async def _get_sampler(engine: Engine, request: Request) -> Any:
    sampler = engine.registry.sampler(request.path_params["sampler_id"])
    return {
        "sampler_id": sampler.sampler_id,
        "base_model": engine.network.name,
        "model_path": sampler.tinker_path,
    }


@_on("POST", "asample")
async def _sample(engine: Engine, request: Request) -> Any:
    return engine.sampling.sample(await _read(request, types.SampleRequest))


@_on("POST", "cancel_future")
async def _cancel(engine: Engine, request: Request) -> Any:
    promise = engine.promises.get((await request.json()).get("request_id", ""))
    if "sample_sequence_ids" in promise.extra:  # only sampling can be given up half-way
        promise.fail(Refusal("the request was cancelled"))
    return {}


@_on("POST", "retrieve_future")
async def _retrieve(engine: Engine, request: Request) -> Any:
    promise = engine.promises.get((await _read(request, types.FutureRetrieveRequest)).request_id)
    if not promise.done():
        await asyncio.wait([asyncio.wrap_future(promise.future)], timeout=_POLL_SECONDS)
    if not promise.done():
        # 408 is "ask again" as well as `try_again` is, without a line in the client's log.
        pending = {"type": "try_again", "queue_state": "active", "request_id": promise.request_id}
        return JSONResponse(pending, 408)
    promise.fetched = time.monotonic()
    result = promise.future.result()
    return Response(result, media_type=_PROTOBUF) if isinstance(result, bytes) else result


@_on("GET", "training_runs")
async def _training_runs(engine: Engine, request: Request) -> Any:
    return runs.list_training_runs(engine, *_page(request, 20))


@_on("GET", "training_runs/{model_id}")
async def _training_run(engine: Engine, request: Request) -> Any:
    return runs.training_run(engine, request.path_params["model_id"])


@_on("GET", "training_runs/{model_id}/checkpoints")
async def _checkpoints(engine: Engine, request: Request) -> Any:
    return runs.list_checkpoints(engine, request.path_params["model_id"])


@_on("GET", "checkpoints")
async def _all_checkpoints(engine: Engine, request: Request) -> Any:
    return runs.list_all_checkpoints(engine, *_page(request, 100))


@_on("DELETE", "training_runs/{model_id}/checkpoints/{kind}/{name}")
async def _delete_checkpoint(engine: Engine, request: Request) -> Any:
    part = request.path_params
    engine.store.delete(f"tinker://{part['model_id']}/{part['kind']}/{part['name']}")
    return Response(status_code=204)


def _page(request: Request, default: int) -> tuple[int, int]:
    query = request.query_params
    limit, offset = int(query.get("limit", default)), int(query.get("offset", 0))
    if limit < 0 or offset < 0:
        raise Refusal("limit and offset must be 0 or more")
    return limit, offset
