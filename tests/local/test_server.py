"""The engine as a server of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker import types

from rlt.local.models import LocalModel
from rlt.local.server import start


def test_capabilities_name_the_model_and_its_context(tools: Any) -> None:
    rest = tinker.RestClient(api_key="tml-local", base_url=tools.server.url)
    (model,) = rest.get_server_capabilities().result().supported_models
    assert (model.model_name, model.max_context_length) == ("tests/tiny", 512)
    assert tools.server.max_context == 512
    assert tools.server.model.name == "tests/tiny"


def test_it_listens_on_loopback_only(tools: Any) -> None:
    port = int(tools.server.url.rsplit(":", 1)[1])
    assert httpx.get(f"{tools.server.url}/api/v1/healthz").status_code == 200
    for address in ("127.0.0.2", _own_address()):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, port), timeout=2)


def _own_address() -> str:
    """This machine's address towards others, or a loopback one when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.3"
        return str(probe.getsockname()[0])


def test_close_ends_what_is_running_and_frees_the_port(
    tiny_directory: Path, tmp_path: Path
) -> None:
    server = start(LocalModel("tests/tiny", tiny_directory), store=tmp_path)
    port = int(server.url.rsplit(":", 1)[1])
    service = tinker.ServiceClient(api_key="tml-local", base_url=server.url)
    sampler = service.create_sampling_client(base_model="tests/tiny").result()
    endless = sampler.sample(
        types.ModelInput.from_ints([5]), 512, types.SamplingParams(max_tokens=500, stop=[])
    )
    sampler.compute_logprobs(types.ModelInput.from_ints([5, 6])).result()  # does not wait for it
    server.close()
    server.close()
    with pytest.raises(tinker.RequestFailedError, match="the embedded engine was closed"):
        endless.result(timeout=10)
    with socket.create_server(("127.0.0.1", port)):
        pass
    names = {thread.name for thread in threading.enumerate() if thread.is_alive()}
    assert sum(name.startswith("rlt-engine") for name in names) in {0, 2}  # 2: the shared server


def test_importing_the_package_brings_nothing_heavy() -> None:
    code = (
        "import sys, rlt.local, rlt.local.models, rlt.local.server, rlt.local.tokenizer; "
        "heavy = {'torch', 'transformers', 'peft', 'tinker', 'uvicorn', 'starlette'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
