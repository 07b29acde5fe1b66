"""A service that fails: the run goes on where it can, and ends soon and clearly where it cannot."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tinker.proto import tinker_public_pb2 as pb

import fault_proxy as faults
from conftest import Cli
from fault_proxy import Proxy
from helpers import read_lines, without_times
from rlt.local import server
from rlt.local.models import LocalModel


@pytest.fixture
def proxy(tiny_model: Path, work: Path) -> Iterator[Proxy]:
    with server.start(LocalModel("tiny", tiny_model), store=work / "store") as running:
        made, stop = faults.start(running.url)
        yield made
        stop()


@pytest.fixture
def hosted(
    cli: Cli, proxy: Proxy, rows: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Run sdft against the proxy, as against any server at a URL."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret-key")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setattr("rlt.waiting.NOTICE", 1.0)
    monkeypatch.setattr("rlt.service.tokenizer_folder", lambda _: tiny_model)

    def call(*arguments: object) -> object:
        return cli("run", "--plugin", "sdft", "--data", rows, "--base-url", proxy.url, "--model",
                   "tiny", "--steps", 4, "--save-every", 2, "--max-tokens", 6, "--rank", 4,
                   "--out", "run", *arguments)  # fmt: skip

    return call  # type: ignore[return-value]


def metrics(run: str = "run") -> list[dict[str, object]]:
    return without_times(read_lines(Path(f"runs/{run}/metrics.jsonl")))


@pytest.fixture
def undisturbed(train: Cli, rows: Path) -> list[dict[str, object]]:
    train("--plugin", "sdft", "--data", rows, "--steps", 4, "--save-every", 2, "--max-tokens", 6,
          "--out", "clean")  # fmt: skip
    return metrics("clean")


def training_requests(proxy: Proxy) -> list[int]:
    """The sequence numbers of the requests for a gradient that were sent."""
    bodies = [body for path, body in proxy.seen if path.endswith("/forward_backward")]
    messages = [pb.ForwardBackwardRequest.FromString(body) for body in bodies]
    return [message.seq_id for message in messages if not message.forward_only]


RECOVERABLE = [
    ("asample", faults.times(2, faults.status(429, {"retry-after": "1"}))),
    ("asample", faults.times(2, faults.status(503))),
    ("forward_backward", faults.times(2, faults.status(500))),
    ("forward_backward", faults.times(2, faults.dropped, after=1)),
    ("optim_step", faults.times(1, faults.dropped, after=2)),
    ("optim_step", faults.times(1, faults.status(429, {"retry-after": "1"}), after=1)),
    ("retrieve_future", faults.times(3, faults.half, after=4)),
    ("retrieve_future", faults.times(3, faults.dropped, after=6)),
    ("retrieve_future", faults.times(5, faults.try_again, after=5)),
    ("retrieve_future", faults.times(2, faults.status(502), after=5)),
    ("save_weights", faults.times(1, faults.dropped)),
    ("save_weights_for_sampler", faults.times(1, faults.status(500), after=2)),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("path", "fault"), RECOVERABLE)
def test_what_can_be_retried_leaves_no_trace_in_the_result(
    hosted: Cli, proxy: Proxy, undisturbed: list[object], path: str, fault: faults.Fault
) -> None:
    proxy.on(path, fault)
    result = hosted()
    assert result.code == 0, result.err
    assert metrics() == undisturbed
    assert len(set(training_requests(proxy))) == 4, "one training call a step, however often sent"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "after", "named"),
    [
        ("retrieve_future", 14, "step"),
        ("forward_backward", 3, "forward_backward of step 2"),
        ("asample", 2, "sample"),
    ],
)
def test_a_request_that_is_never_answered_ends_the_run_after_max_wait(
    hosted: Cli, proxy: Proxy, path: str, after: int, named: str
) -> None:
    proxy.on(path, faults.times(-1, faults.silence(proxy), after=after))
    began = time.monotonic()
    result = hosted("--max-wait", 3)
    assert time.monotonic() - began < 60
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert "after 3 s (--max-wait)" in last
    assert named in last
    assert "waiting for the service" in result.err


@pytest.mark.timeout(120)
def test_endless_try_again_ends_after_max_wait_with_the_way_to_go_on(
    hosted: Cli, proxy: Proxy
) -> None:
    hosted("--steps", 2)
    proxy.on("retrieve_future", faults.times(-1, faults.try_again, after=4))
    result = hosted("--resume", "auto", "--max-wait", 3)
    assert result.code == 1
    assert "go on with: rlt run --out run --resume auto" in result.err.splitlines()[-1]
    proxy.rules.clear()
    assert hosted("--resume", "auto").code == 0
    assert [line["step"] for line in metrics()] == [0, 1, 2, 3]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", ["forward_backward", "retrieve_future", "asample"])
def test_a_key_that_expires_in_the_middle_is_said_and_nothing_is_lost(
    hosted: Cli, proxy: Proxy, path: str
) -> None:
    assert hosted("--steps", 2).code == 0
    proxy.on(path, faults.times(-1, faults.status(401, body=b'{"detail": "expired"}'), after=1))
    began = time.monotonic()
    result = hosted("--resume", "auto")
    assert time.monotonic() - began < 60
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert "key" in last
    assert "go on with: rlt run --out run --resume auto" in last
    assert "Traceback" not in result.err


@pytest.mark.timeout(120)
def test_a_permanent_failure_is_told_within_seconds(hosted: Cli, proxy: Proxy) -> None:
    body = json.dumps({"error": "out of memory", "category": "server"}).encode()
    proxy.on("retrieve_future", faults.times(-1, faults.status(200, body=body), after=12))
    began = time.monotonic()
    result = hosted()
    assert time.monotonic() - began < 60
    assert result.code == 1
    assert "out of memory" in result.err.splitlines()[-1]


def test_no_secret_reaches_a_file_or_the_screen(hosted: Cli, proxy: Proxy) -> None:
    proxy.on("optim_step", faults.times(-1, faults.status(401), after=1))
    result = hosted("--log-level", "debug")
    shown = result.out + result.err
    written = b"".join(p.read_bytes() for p in Path("runs").rglob("*") if p.is_file())
    assert "tml-secret" not in shown
    assert b"tml-secret" not in written
    assert Path("runs/run").stat().st_mode & 0o777 == 0o700


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ("pass", 0, "success"),
        ("if record.step == 0: os.kill(os.getpid(), signal.SIGTERM)", 130, "interrupted"),
        ("raise RuntimeError('no')", 1, "errored"),
    ],
)
def test_the_session_is_closed_with_the_runs_status(
    hosted: Cli, proxy: Proxy, body: str, code: int, reason: str
) -> None:
    Path("end.py").write_text(
        f"import os, signal, rlt\n@rlt.hookimpl\ndef on_step(run, record):\n    {body}\n"
    )
    assert hosted("--plugin", "end.py").code == code
    (finish,) = [json.loads(sent) for path, sent in proxy.seen if path.endswith("/finish")]
    assert finish["reason"]["type"] == reason


@pytest.mark.timeout(120)
def test_no_thread_and_no_port_is_left_behind(train: Cli, rows: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    assert train("--plugin", "sdft", "--data", rows, "--steps", 1, "--out", "t").code == 0
    left = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in left if "engine" in name}, left
