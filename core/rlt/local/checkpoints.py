"""Checkpoints on disk: a PEFT adapter, the exact optimizer, and a small description.

    <store>/<model id>/weights/<name>/            from save_state
    <store>/<model id>/sampler_weights/<name>/    from save_weights_for_sampler

A checkpoint is written beside its place, flushed, and moved there in one step, so that a name
either means a whole checkpoint or nothing. All tensors are safetensors; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from rlt.local.adapters import Adapter, AdapterBank, Shape
from rlt.local.layout import checkpoint_folder
from rlt.local.refusal import NotFound, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

WEIGHTS = "weights"
SAMPLER_WEIGHTS = "sampler_weights"

_PEFT_PREFIX = "base_model.model."
_ADAPTER = "adapter_model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_INFO = "checkpoint.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_PATH = re.compile(r"tinker://(?P<model>[^/]+)/(?P<kind>weights|sampler_weights)/(?P<name>[^/]+)")


@dataclass(frozen=True)
class Info:
    """The description of a checkpoint, as its checkpoint.json holds it."""

    tinker_path: str
    model_id: str
    kind: str
    name: str
    base_model: str
    shape: Shape
    created: str
    """ISO 8601, UTC."""

    expires: str | None = None
    """Told to whoever asks; a local file is never deleted behind its owner's back."""

    user_metadata: dict[str, str] | None = None
    run_metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def checkpoint_id(self) -> str:
        """`weights/<name>` or `sampler_weights/<name>`, as the SDK calls it."""
        return f"{self.kind}/{self.name}"


class CheckpointStore:
    """The folder that checkpoints are written to, and others that are only read."""

    def __init__(self, store: Path, also_read: Sequence[Path] = ()) -> None:
        """`store` need not exist: the first checkpoint creates it."""
        self._store = store
        self._read = (store, *also_read)

    def save(
        self,
        info: Info,
        bank: AdapterBank,
        adapter: Adapter,
        optimizer: Mapping[str, torch.Tensor] | None,
        *,
        overwrite: bool,
    ) -> None:
        """Write a checkpoint under its name. Raises Refusal when the name is taken."""
        final = self._place(self._store, info.model_id, info.kind, info.name)
        if final.exists() and not overwrite:
            raise Refusal(
                f"checkpoint {info.name!r} exists already: choose another name, or overwrite=True"
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.parent / f".{info.name}-{uuid.uuid4().hex}"
        partial.mkdir()
        try:
            _write(partial, info, bank, adapter, optimizer)
            _swap_in(partial, final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def find(self, tinker_path: str) -> tuple[Path, Info]:
        """The folder and description behind a `tinker://` path. Raises Refusal or NotFound."""
        match = _PATH.fullmatch(tinker_path)
        if match is None:
            raise Refusal(
                f"{tinker_path!r} is not a checkpoint path: expected "
                "tinker://<model id>/weights/<name> or tinker://<model id>/sampler_weights/<name>"
            )
        for root in self._read:
            folder = self._place(root, match["model"], match["kind"], match["name"])
            info = _read_info(folder)
            if info is not None and info.tinker_path == tinker_path:
                return folder, info
        raise NotFound(f"no checkpoint {tinker_path} in {self._read[0]} or beside it")

    def load(self, tinker_path: str) -> tuple[Info, Adapter]:
        """The weights of a checkpoint, on the CPU."""
        folder, info = self.find(tinker_path)
        stored = load_file(folder / _ADAPTER)
        weights = {name.removeprefix(_PEFT_PREFIX): tensor for name, tensor in stored.items()}
        return info, Adapter(info.shape, weights)

    def load_optimizer(self, tinker_path: str) -> dict[str, torch.Tensor]:
        """The optimizer's state, empty before its first step. Raises NotFound if none was saved."""
        folder, _ = self.find(tinker_path)
        file = folder / _OPTIMIZER
        if not file.is_file():
            raise NotFound(f"{tinker_path} has no optimizer state: it was saved for sampling")
        return load_file(file)

    def delete(self, tinker_path: str) -> None:
        """Remove a checkpoint of the writable store. Raises NotFound or Refusal."""
        folder, _ = self.find(tinker_path)
        if not folder.is_relative_to(self._store):
            raise Refusal(f"{tinker_path} is in another run's folder, which is only read")
        doomed = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
        folder.rename(doomed)
        shutil.rmtree(doomed)

    def list(self) -> list[tuple[Info, int]]:
        """Every checkpoint with its size in bytes, newest first."""
        found = {info.tinker_path: (info, _size(folder)) for folder, info in self._walk()}
        return sorted(found.values(), key=lambda item: item[0].created, reverse=True)

    def _walk(self) -> Iterator[tuple[Path, Info]]:
        for root in reversed(self._read):  # the writable store wins over what is only read
            for kind in (WEIGHTS, SAMPLER_WEIGHTS):
                for folder in sorted(root.glob(f"*/{kind}/*")):
                    info = None if folder.name.startswith(".") else _read_info(folder)
                    if info is not None:
                        yield folder, info

    @staticmethod
    def _place(root: Path, model_id: str, kind: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise Refusal(
                f"checkpoint name {name!r} must be letters, digits, '.', '_' and '-', at most 128, "
                "and begin with a letter or digit"
            )
        if not _MODEL_ID.fullmatch(model_id):
            raise Refusal(f"{model_id!r} is not a model id")
        return checkpoint_folder(root, f"tinker://{model_id}/{kind}/{name}")


def expiry(ttl_seconds: int | None) -> str | None:
    """When a checkpoint saved now with this time to live expires."""
    return None if ttl_seconds is None else _iso(datetime.now(UTC) + timedelta(seconds=ttl_seconds))


def now() -> str:
    """This moment, ISO 8601, UTC."""
    return _iso(datetime.now(UTC))


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _write(
    folder: Path,
    info: Info,
    bank: AdapterBank,
    adapter: Adapter,
    optimizer: Mapping[str, torch.Tensor] | None,
) -> None:
    weights = {f"{_PEFT_PREFIX}{k}": v.detach().contiguous() for k, v in adapter.weights.items()}
    save_file(weights, folder / _ADAPTER, metadata={"format": "pt"})
    config = bank.peft_config(adapter.shape)
    config.inference_mode = True
    config.save_pretrained(str(folder))
    if optimizer is not None:
        save_file({k: v.contiguous() for k, v in optimizer.items()}, folder / _OPTIMIZER)
    (folder / _INFO).write_text(json.dumps(asdict(info), indent=2) + "\n", "utf-8")
    for file in folder.iterdir():
        _flush(file)
    _flush(folder)


def _swap_in(partial: Path, final: Path) -> None:
    """Move a finished checkpoint to its name; an older one of that name makes room first."""
    if final.exists():
        old = final.parent / f".{final.name}-{uuid.uuid4().hex}"
        final.rename(old)
        partial.rename(final)
        shutil.rmtree(old)
    else:
        partial.rename(final)
    _flush(final.parent)


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder, and needs no such flush
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_info(folder: Path) -> Info | None:
    try:
        raw = json.loads((folder / _INFO).read_text("utf-8"))
        return Info(**{**raw, "shape": Shape(**raw["shape"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
