"""The engine behind a port of this machine.

`start` loads the model and returns when the service answers. It listens on the loopback interface
only: it has no authentication, and anyone who can reach it can use the machine.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from rlt.errors import RunError, UsageError
from rlt.local.models import LocalModel, require_local_extra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from uvicorn import Server

    from rlt.local.engine import Engine

_HOST = "127.0.0.1"
_START_SECONDS = 10.0
_CLOSE_SECONDS = 10.0


class LocalServer:
    """A running engine; leaving its context closes it."""

    def __init__(
        self, engine: Engine, server: Server, model: LocalModel, listener: socket.socket
    ) -> None:
        """Let `server` serve `engine` on `listener`, from a thread of its own."""
        self.model = model
        self.url = f"http://{_HOST}:{listener.getsockname()[1]}"
        self.max_context = engine.network.max_context
        self._engine = engine
        self._listener = listener
        self._server = server
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="rlt-engine-http", daemon=True
        )
        self._thread.start()
        self._wait_until_ready()

    def close(self) -> None:
        """End what is running, stop both threads and free the port. May be called again."""
        self._engine.close()
        self._server.should_exit = True
        self._thread.join(_CLOSE_SECONDS)
        self._listener.close()

    def __enter__(self) -> Self:
        """The running server itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the server."""
        self.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                self.close()
                raise RunError(f"the embedded engine did not start to serve on {self.url}")
            time.sleep(0.005)


def start(
    model: LocalModel, *, store: Path, also_read: Sequence[Path] = (), port: int = 0
) -> LocalServer:
    """Load `model` and serve it on 127.0.0.1 (`port` 0: a free one).

    Checkpoints are written to `store`, which is created with the first, and looked for in
    `also_read` too. Raises UsageError.
    """
    require_local_extra()
    listener = _listen(port)
    try:
        # Takes seconds: torch, transformers and peft.
        from rlt.local import assembly  # noqa: PLC0415

        engine = assembly.engine(model, store, also_read)
        return LocalServer(engine, assembly.http_server(engine), model, listener)
    except BaseException:
        listener.close()
        raise


def _listen(port: int) -> socket.socket:
    # Named as TCP, so that asyncio turns off Nagle's algorithm: it costs 40 ms a request.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"port {port} of {_HOST} cannot be used: {error.strerror}") from error
    return listener
