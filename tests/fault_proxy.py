"""A proxy that stands between the SDK and the embedded engine and misbehaves as told."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Fault = Callable[["Exchange"], bool]
"""Answers instead of the server, and says whether it did."""


@dataclass
class Exchange:
    """One request on its way through."""

    path: str
    body: bytes
    forward: Callable[[], tuple[int, dict[str, str], bytes]]
    send: Callable[[int, dict[str, str], bytes], None]
    cut: Callable[[bytes], None]
    """Send these bytes as they are and close the connection."""


@dataclass
class Proxy:
    """The proxy's address, its faults, and what passed through."""

    url: str
    rules: list[tuple[str, Fault]] = field(default_factory=list)
    seen: list[tuple[str, bytes]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def on(self, path: str, fault: Fault) -> None:
        """Let `fault` deal with requests whose path ends in `path`."""
        self.rules.append((path, fault))


def times(count: int, fault: Fault, after: int = 0) -> Fault:
    """Do `fault` for `count` requests, once `after` of them have passed unharmed."""
    left = [after, count]
    lock = threading.Lock()

    def sometimes(exchange: Exchange) -> bool:
        with lock:
            if left[0] > 0:
                left[0] -= 1
                return False
            if left[1] == 0:
                return False
            left[1] -= 1
        return fault(exchange)

    return sometimes


def status(
    code: int, headers: dict[str, str] | None = None, body: bytes = b'{"detail": "no"}'
) -> Fault:
    def answer(exchange: Exchange) -> bool:
        exchange.send(code, {"content-type": "application/json", **(headers or {})}, body)
        return True

    return answer


def dropped(exchange: Exchange) -> bool:
    """Let the server do it, and lose its answer."""
    exchange.forward()
    exchange.cut(b"")
    return True


def half(exchange: Exchange) -> bool:
    code, headers, body = exchange.forward()
    kind = headers.get("content-type", "")
    head = f"HTTP/1.1 {code} OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    exchange.cut(head.encode() + body[: len(body) // 2])
    return True


def silence(proxy: Proxy) -> Fault:
    def wait(exchange: Exchange) -> bool:
        proxy.closing.wait(60)
        exchange.cut(b"")
        return True

    return wait


def try_again(exchange: Exchange) -> bool:
    time.sleep(0.2)
    body = b'{"type": "try_again", "request_id": "x", "queue_state": "active"}'
    exchange.send(200, {"content-type": "application/json"}, body)
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    upstream: str

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        exchange = Exchange(self.path, body, lambda: self._forward(body), self._send, self._cut)
        self.proxy.seen.append((self.path, body))
        for path, fault in self.proxy.rules:
            if self.path.endswith(path) and fault(exchange):
                return
        self._send(*self._forward(body))

    do_GET = do_DELETE = do_POST  # noqa: N815 - http.server's names

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        address = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        skip = ("host", "content-length", "connection", "accept-encoding")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in skip}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, {"content-type": answer.headers.get("content-type", "")}, data

    def _send(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _cut(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up, as a refused one may; all else is a fault."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def start(upstream: str) -> tuple[Proxy, Callable[[], None]]:
    """Return a running proxy and what stops it."""
    server = _Server(("127.0.0.1", 0), _Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    _Handler.proxy, _Handler.upstream = proxy, upstream
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def stop() -> None:
        proxy.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)

    return proxy, stop
