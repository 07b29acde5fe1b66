"""The one place that opens a `tinker.ServiceClient`.

Whichever engine answers, the SDK is the client: the hosted service, a self-hosted server at a URL,
or the embedded engine, which this module starts on 127.0.0.1 first. What can be known to be wrong
(no key, no model, nobody listening) is found by `plan`, before anything is created or paid for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlt import logs
from rlt.config import RunConfig, suggestion, without_credentials
from rlt.errors import Interrupted, UsageError
from rlt.local import models

if TYPE_CHECKING:
    import tinker

HOSTED_MODEL = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
_CLOSE_SECONDS = 10
_CAPABILITIES_SECONDS = 60
_PLACEHOLDER_KEY = "tml-no-key-needed"  # the SDK insists on one of this form


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Which engine a run talks to, and why."""

    engine: Literal["tinker", "local"]
    model: str
    """What the service calls the base model."""
    base_url: str | None
    """None for the hosted service, and for the embedded engine, which has no address yet."""
    reason: str
    local_model: models.LocalModel | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """An open service."""

    client: tinker.ServiceClient
    rest: tinker.RestClient
    model: str
    tokenizer: Any
    max_context: int
    """The longest sequence, in tokens, that the model takes."""

    async def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint from the service's storage."""
        await self.rest.delete_checkpoint_from_tinker_path(path)


def plan(config: RunConfig, environment: Mapping[str, str] = os.environ) -> EnginePlan:
    """Decide on the engine and check what can be checked without creating anything.

    :raises UsageError: no key for the hosted service, no such model, the extra not installed.
    """
    url = config.base_url or environment.get("TINKER_BASE_URL")
    key = environment.get("TINKER_API_KEY") or environment.get("TINKER_CREDENTIAL_CMD")
    if config.engine == "local" or (config.engine == "auto" and not (url or key)):
        if config.base_url:
            raise UsageError(
                "--base-url names a server, --engine local needs none; give one of them"
            )
        models.require_local_extra()
        model = models.resolve(config.model)
        why = "asked for" if config.engine == "local" else "no TINKER_API_KEY and no --base-url"
        return EnginePlan("local", model.name, None, why, model)
    if url:
        offered = _require_answer(url)
        name = config.model or (offered[0] if len(offered) == 1 else HOSTED_MODEL)
        return EnginePlan("tinker", name, url, "a base URL is given")
    if not key and not _stored_login():
        raise UsageError(
            "--engine tinker needs a key; set TINKER_API_KEY, log in with `tinker auth login`, "
            "or use --engine local"
        )
    return EnginePlan("tinker", config.model or HOSTED_MODEL, None, "the hosted service")


@contextmanager
def connect(
    plan: EnginePlan, *, store: Path, also_read: Sequence[Path], metadata: Mapping[str, str]
) -> Iterator[Service]:
    """Open the planned service, and close its session with the run's status.

    :param store: where the embedded engine writes its checkpoints.
    :param also_read: further such folders, of other runs, that it may load from.
    :param metadata: goes with the session; `run` is also its display name.
    :raises UsageError: when the service does not offer the model.
    """
    with ExitStack() as stack:
        url, api_key = plan.base_url, key(plan)
        if plan.local_model:
            from rlt.local import server  # noqa: PLC0415 - brings torch

            os.environ.setdefault("TINKER_TELEMETRY", "0")
            started = server.start(plan.local_model, store=store, also_read=also_read)
            url = stack.enter_context(started).url
        import tinker  # noqa: PLC0415 - takes a second

        rest = tinker.RestClient(base_url=url, api_key=api_key)
        max_context = _max_context(rest, plan.model)
        tokenizer = _tokenizer(plan)
        client = tinker.ServiceClient(
            user_metadata=dict(metadata),
            display_name=metadata["run"],
            base_url=url,
            api_key=api_key,
        )
        stack.enter_context(_Closing(client))
        yield Service(client, rest, plan.model, tokenizer, max_context)


@dataclass(frozen=True, slots=True)
class _Closing:
    """Closes a session with the run's status, and does not hang on a service that is gone."""

    client: tinker.ServiceClient

    def __enter__(self) -> None:
        """Do nothing: the session opens by itself."""

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        status: Literal["success", "errored", "interrupted"] = "errored"
        if kind is None:
            status = "success"
        elif issubclass(kind, Interrupted) or not issubclass(kind, Exception):
            status = "interrupted"
        try:
            self.client.close(status).result(timeout=_CLOSE_SECONDS)
        except Exception as failure:  # the run's own outcome matters more
            logs.get_logger().debug("the session was not closed", why=str(failure))


def key(plan: EnginePlan) -> str | None:
    """Return the key to send: None lets the SDK find the user's own."""
    if plan.engine == "tinker" and (plan.base_url is None or os.environ.get("TINKER_API_KEY")):
        return None
    return _PLACEHOLDER_KEY


def _max_context(rest: tinker.RestClient, model: str) -> int:
    try:
        answer = rest.get_server_capabilities().result(timeout=_CAPABILITIES_SECONDS)
    except TimeoutError:
        raise UsageError(
            f"the service did not say within {_CAPABILITIES_SECONDS} s which models it offers"
        ) from None
    offered = answer.supported_models
    by_name = {entry.model_name: entry for entry in offered if entry.model_name}
    if model not in by_name:
        raise UsageError(
            f"the service does not offer {model!r}{suggestion(model, by_name)} "
            f"(it offers: {', '.join(sorted(by_name)) or 'no model'})"
        )
    return by_name[model].max_context_length or 32768


def _tokenizer(plan: EnginePlan) -> Any:
    from rlt.local.tokenizer import load_tokenizer  # noqa: PLC0415 - brings transformers

    if plan.local_model:
        return load_tokenizer(plan.local_model.directory)
    return load_tokenizer(tokenizer_folder(plan.model))


def tokenizer_folder(model: str) -> Path:
    """Return a folder with the model's tokenizer: a local folder, the cache, or the hub.

    :raises UsageError: when none has it.
    """
    import huggingface_hub  # noqa: PLC0415

    if Path(model).is_dir():
        return Path(model)
    wanted = ["*.json", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=wanted))
    except Exception as error:  # the hub's many ways to be absent
        raise UsageError(
            f"cannot get the tokenizer of {model} ({type(error).__name__}); connect to the "
            f"network once, or fetch it with: hf download {model} --include '*.json'"
        ) from None


def _require_answer(url: str) -> list[str]:
    """Return the models that a self-hosted server offers.

    :raises UsageError: when no Tinker server answers.
    """
    import httpx  # noqa: PLC0415

    headers = {"X-API-Key": os.environ.get("TINKER_API_KEY", _PLACEHOLDER_KEY)}
    try:
        answer = httpx.get(
            url.rstrip("/") + "/api/v1/get_server_capabilities", timeout=10, headers=headers
        )
        answer.raise_for_status()
        return [str(entry["model_name"]) for entry in answer.json()["supported_models"]]
    except httpx.HTTPStatusError as error:
        why = f"it says {error.response.status_code} {error.response.reason_phrase}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = type(error).__name__
    except (ValueError, LookupError, TypeError):
        why = "what answers there is something else"
    raise UsageError(
        f"no Tinker server answers at {without_credentials(url)} ({why}); "
        "start one, or correct --base-url"
    )


def _stored_login() -> bool:
    """Say whether `tinker auth login` has left a key."""
    return Path("~/.tinker/credentials.json").expanduser().exists()
