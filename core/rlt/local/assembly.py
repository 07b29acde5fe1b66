"""Puts an engine together; importing this brings torch, transformers and peft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn import Config, Server

from rlt.local.checkpoints import CheckpointStore
from rlt.local.compute import fix_threads
from rlt.local.engine import Engine
from rlt.local.network import Network
from rlt.local.routes import application

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rlt.local.models import LocalModel


def engine(model: LocalModel, store: Path, also_read: Sequence[Path]) -> Engine:
    """Load `model` and start an engine over it. Raises UsageError."""
    fix_threads()
    return Engine(Network(model), CheckpointStore(store, also_read))


def http_server(served: Engine) -> Server:
    """An HTTP server over an engine, silent and without signal handlers, not running yet."""
    return Server(
        Config(
            application(served),
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )
