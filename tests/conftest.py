"""What every test may use: a tiny model made on the spot, and the real command line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers import write_lines
from tiny_model import make_tiny_model

ROOT = Path(__file__).parent.parent

logging.raiseExceptions = False  # the SDK's threads may log after a test has closed its output


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def tokenizer(tiny_model: Path) -> Any:
    from rlt.local.tokenizer import load_tokenizer

    return load_tokenizer(tiny_model)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no key or address in the environment."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(work: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process, in `work`."""
    from rlt.cli import main

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def train(cli: Cli, tiny_model: Path) -> Cli:
    """Run `rlt run` on the tiny model, with small settings that arguments may override."""

    def call(*arguments: object) -> Result:
        return cli("run", "--engine", "local", "--model", tiny_model, "--max-tokens", 8,
                   "--rank", 4, *arguments)  # fmt: skip

    return call


@pytest.fixture
def rows(work: Path) -> Path:
    """Six short sdft rows in `rows.jsonl`."""
    return write_lines(
        work / "rows.jsonl",
        [{"prompt": f"Say the number {n}.", "completion": f"It is {n}."} for n in range(6)],
    )


@pytest.fixture
def held_out(work: Path) -> Path:
    return write_lines(
        work / "held_out.jsonl",
        [{"prompt": f"Say the number {n}.", "completion": f"It is {n}."} for n in (7, 8)],
    )


@pytest.fixture
def repository() -> Path:
    return ROOT
