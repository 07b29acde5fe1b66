"""Code that a model might write to win without solving, or to do harm. Every attack is bounded."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlt_grpo.verifiers.sandbox import Sandbox, unconfined
from rlt_grpo.verifiers.tests import code, verify_tests

SECONDS = 3.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's namespaces")
CONFINED = unconfined() if sys.platform == "linux" else "everything"
needs_network = pytest.mark.skipif("network" in CONFINED, reason=f"cannot confine: {CONFINED}")
needs_files = pytest.mark.skipif("files" in CONFINED, reason=f"cannot confine: {CONFINED}")


class FakeRun:
    def __init__(self) -> None:
        self.options = {"test_seconds": SECONDS, "test_memory_mb": 512}
        self._sandbox = Sandbox()

    def state(self, kind: Any) -> Any:
        return self._sandbox


def reward(solution: str, tests: str = "") -> float:
    return asyncio.run(verify_tests(FakeRun(), {"tests": tests}, solution))  # type: ignore[arg-type]


def mine() -> set[str]:
    """The sandbox's folders that are there, and its processes."""
    folders = {str(path) for path in Path("/tmp").glob("rlt-sandbox-*")}
    return folders | {
        path.name
        for path in Path("/proc").glob("[0-9]*")
        if b"rlt-sandbox-" in _read(path / "cmdline") or b"runner.py" in _read(path / "cmdline")
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    end = time.monotonic() + 5
    while mine() and time.monotonic() < end:
        time.sleep(0.1)
    assert mine() == set()


# ---- what counts as passing


def test_code_that_passes_earns_1_and_code_that_fails_0() -> None:
    tests = "assert add(1, 2) == 3\ndef test_more():\n    assert add(0, 0) == 0\n"
    assert reward("```python\ndef add(a, b):\n    return a + b\n```", tests) == 1.0
    assert reward("```python\ndef add(a, b):\n    return a - b\n```", tests) == 0.0
    assert reward("def add(a, b: return", tests) == 0.0


def test_unittest_cases_are_run() -> None:
    tests = (
        "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
        "    def test_f(self): self.assertEqual(f(), 1)\n"
        "if __name__ == '__main__': unittest.main()\n"
    )
    assert reward("def f(): return 1", tests) == 1.0
    assert reward("def f(): return 2", tests) == 0.0


def test_the_last_fenced_block_is_the_code() -> None:
    assert code("First\n```\na\n```\nbetter\n```python\nb\n```\nDone.") == "b\n"
    assert code("no fence") == "no fence"


@pytest.mark.parametrize(
    "leave", ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit"]
)
def test_leaving_early_passes_nothing(leave: str) -> None:
    assert reward(leave, "assert False") == 0.0


def test_a_flood_of_output_is_neither_kept_nor_in_the_way() -> None:
    flood = "import sys\nfor _ in range(2000): sys.stdout.write('x' * 10000)\nsys.stdout.flush()\n"
    assert reward(flood) == 1.0


# ---- attacks


def test_20_seconds_of_looping_are_ended_in_time() -> None:
    began = time.monotonic()
    assert reward("import time\nt = time.time()\nwhile time.time() < t + 20: pass") == 0.0
    assert time.monotonic() - began < 18


def test_so_is_sleeping_with_signals_ignored() -> None:
    began = time.monotonic()
    assert reward(
        "import signal, time\n"
        "for s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "time.sleep(20)"
    ) == 0.0  # fmt: skip
    assert time.monotonic() - began < 18


def test_a_gigabyte_is_refused() -> None:
    assert reward("try: x = bytearray(1 << 30)\nexcept MemoryError: pass\nelse: raise SystemExit")


def test_100_forks_are_refused_long_before_the_last() -> None:
    attack = (
        "import os, time\nchildren = 0\n"
        "for _ in range(100):\n"
        "    try: pid = os.fork()\n"
        "    except OSError: break\n"
        "    if pid == 0: time.sleep(20); os._exit(0)\n"
        "    children += 1\n"
    )
    assert reward(attack, "assert children < 20, children") == 1.0


@linux
def test_a_process_that_leaves_the_group_does_not_outlive_the_run() -> None:
    attack = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(20)\n"
        "    os._exit(0)\n"
    )
    began = time.monotonic()
    assert reward(attack) == 1.0
    assert time.monotonic() - began < 18
    # the fixture looks for what is left


def test_a_large_file_is_refused() -> None:
    attack = (
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "written = 0\ntry:\n"
        "    with open('big', 'wb', buffering=0) as f:\n"
        "        for _ in range(64): written += f.write(bytes(1 << 20))\n"
        "except OSError: pass\n"
    )
    assert reward(attack, "assert written <= 17 << 20, written") == 1.0


@needs_files
def test_writing_outside_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    places = [
        tmp_path / "x",
        Path("/tmp/rlt-attack"),
        Path("/dev/shm/rlt-attack"),
        Path.home() / "x",
    ]
    attack = (
        f"won = []\nfor place in {[str(place) for place in places]}:\n"
        "    try: open(place, 'w').write('x'); won.append(place)\n"
        "    except OSError: pass\n"
        "open('inside', 'w').write('allowed')\n"
    )
    assert reward(attack, "assert not won, won") == 1.0
    assert not any(place.exists() for place in places)


@needs_files
def test_the_key_is_not_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    login = tmp_path / "login"
    login.write_text("tml-secret")
    login.chmod(0o644)
    attack = (
        "import os\nfound = []\n"
        f"if 'TINKER_API_KEY' in os.environ: found.append('environment')\n"
        f"places = ['/proc/self/environ', '/proc/{os.getpid()}/environ', '{login}',\n"
        f"          '/proc/' + str(os.getppid()) + '/environ']\n"
        "for place in places:\n"
        "    try:\n"
        "        if 'tml-secret' in open(place).read(): found.append(place)\n"
        "    except OSError: pass\n"
    )
    assert reward(attack, "assert not found, found") == 1.0
    assert reward("import os", "assert not os.environ.keys() - {'LC_CTYPE'}, os.environ") == 1.0


@needs_network
def test_there_is_no_network_not_even_this_machines() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attack = (
            "import socket\nwon = []\n"
            f"for address in (('127.0.0.1', {port}), ('192.0.2.1', 80)):\n"
            "    try: socket.create_connection(address, timeout=1); won.append(address)\n"
            "    except OSError: pass\n"
        )
        assert reward(attack, "assert not won, won") == 1.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_is_another_user_without_privileges() -> None:
    attack = (
        "import os\nids = {os.getuid(), os.geteuid(), os.getgid()}\ngroups = os.getgroups()\n"
        "try: os.setuid(0); won = True\nexcept OSError: won = False\n"
        "try: os.kill(1, 0)\nexcept OSError: pass\n"
    )
    assert reward(attack, "assert 0 not in ids and not groups and not won") == 1.0


def test_a_sandbox_that_cannot_start_is_an_error_and_not_a_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlt_grpo.verifiers.tests.python", lambda: "/no/such/python")
    with pytest.raises(RuntimeError, match="the sandbox did not start"):
        reward("x = 1")
