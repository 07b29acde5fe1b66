"""Checkpoints: exact, atomic, listed, and of safe names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker import types

from rlt.local.models import LocalModel
from rlt.local.server import start

TOKENS = [5, 9, 200, 31, 7, 77]


@pytest.fixture
def step(datum: Any) -> Any:
    one = datum(TOKENS, [*TOKENS[1:], 2], weights=[1.0, 2.0, -0.5, 1.0, 0.0, 1.0])

    def take(client: tinker.TrainingClient) -> None:
        client.forward_backward([one], "cross_entropy")
        params = types.AdamParams(learning_rate=1e-2, weight_decay=0.01, grad_clip_norm=1.0)
        client.optim_step(params).result()

    return take


def _files(folder: Path) -> dict[str, bytes]:
    names = ("adapter_model.safetensors", "optimizer.safetensors")
    return {name: (folder / name).read_bytes() for name in names}


def test_a_resumed_training_is_the_uninterrupted_one_to_the_bit(tools: Any, step: Any) -> None:
    straight = tools.client(seed=2)
    for _ in range(2):
        step(straight)
    middle = straight.save_state("middle").result().path
    for _ in range(3):
        step(straight)
    resumed = tools.service.create_training_client_from_state_with_optimizer(middle).result()
    for _ in range(3):
        step(resumed)
    ends = [client.save_state("end").result().path for client in (straight, resumed)]
    assert ends[0] != ends[1]
    assert _files(tools.folder(ends[0])) == _files(tools.folder(ends[1]))


def test_without_the_optimizer_only_the_weights_come_back(tools: Any, step: Any) -> None:
    client = tools.client(rank=4, train_unembed=False)
    step(client)
    path = client.save_state("weights-only").result().path
    fresh = tools.service.create_training_client_from_state(path).result()
    assert fresh.get_info().lora_rank == 4
    again = fresh.save_state("again").result().path
    first, second = _files(tools.folder(path)), _files(tools.folder(again))
    assert first["adapter_model.safetensors"] == second["adapter_model.safetensors"]
    assert first["optimizer.safetensors"] != second["optimizer.safetensors"]


@pytest.mark.filterwarnings("ignore:DEPRECATED:FutureWarning")
def test_load_state_replaces_the_weights_of_a_client(tools: Any, step: Any) -> None:
    source, target = tools.client(seed=1), tools.client(seed=9)
    step(source)
    path = source.save_state("source").result().path
    target.load_state_with_optimizer(path).result()
    step(source)
    step(target)
    ends = [client.save_state("loaded").result().path for client in (source, target)]
    assert _files(tools.folder(ends[0])) == _files(tools.folder(ends[1]))


def test_another_process_finds_checkpoints_in_folders_that_are_only_read(
    tools: Any, step: Any, tiny_directory: Path, tmp_path: Path
) -> None:
    client = tools.client(seed=4)
    step(client)
    path = client.save_state("elsewhere").result().path
    model = LocalModel("tests/tiny", tiny_directory)
    with start(model, store=tmp_path / "own", also_read=[tools.store]) as server:
        service = tinker.ServiceClient(api_key="tml-local", base_url=server.url)
        resumed = service.create_training_client_from_state_with_optimizer(path).result()
        rest = tinker.RestClient(api_key="tml-local", base_url=server.url)
        run = path.removeprefix("tinker://").split("/")[0]
        assert rest.get_training_run(run).result().lora_rank == 8
        with pytest.raises(tinker.BadRequestError, match="only read"):
            rest.delete_checkpoint_from_tinker_path(path).result()
        assert not (tmp_path / "own").exists()
        resumed.save_state("mine").result()
        assert [p.name for p in (tmp_path / "own").glob("*/weights/*")] == ["mine"]
        service.close("success").result()


def test_a_name_is_not_overwritten_unless_asked(tools: Any, step: Any) -> None:
    client = tools.client()
    path = client.save_state("taken").result().path
    before = _files(tools.folder(path))
    step(client)
    with pytest.raises(tinker.RequestFailedError, match="'taken' exists already"):
        client.save_state("taken").result()
    assert _files(tools.folder(path)) == before
    client.save_state("taken", overwrite=True).result()
    assert _files(tools.folder(path)) != before


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "a b", "x" * 200])
def test_names_cannot_leave_their_folder(tools: Any, name: str) -> None:
    with pytest.raises(tinker.RequestFailedError, match="checkpoint name"):
        tools.client().save_state(name).result()


@pytest.mark.parametrize(
    "path", ["tinker://../weights/x", "tinker://a/weights/..", "tinker://a/b/c/d", "/etc/passwd"]
)
def test_paths_cannot_leave_the_store(tools: Any, path: str) -> None:
    with pytest.raises(tinker.BadRequestError):
        tools.service.create_training_client_from_state(path).result()


def test_a_checkpoint_is_an_adapter_an_optimizer_and_a_description(tools: Any, step: Any) -> None:
    client = tools.client(rank=4)
    step(client)
    saved = client.save_state("described", ttl_seconds=3600, user_metadata={"step": "1"}).result()
    folder = tools.folder(saved.path)
    assert sorted(p.name for p in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "checkpoint.json",
        "optimizer.safetensors",
    ]
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 32, "LORA")
    assert set(config["target_modules"]) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head",
    }  # fmt: skip
    info = json.loads((folder / "checkpoint.json").read_text("utf-8"))
    assert info["tinker_path"] == saved.path
    assert info["user_metadata"] == {"step": "1"}


def test_checkpoints_and_runs_are_listed_and_deleted(tools: Any) -> None:
    rest = tinker.RestClient(api_key="tml-local", base_url=tools.server.url)
    client = tools.service.create_lora_training_client(
        base_model="tests/tiny", rank=4, user_metadata={"run": "listed"}
    ).result()
    run = client.model_id
    first = client.save_state("one", ttl_seconds=7200).result().path
    second = client.save_weights_for_sampler("two").result().path
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [(c.tinker_path, c.checkpoint_type) for c in listed] == [
        (second, "sampler"),
        (first, "training"),
    ]
    assert listed[0].size_bytes > 1000
    assert listed[1].expires_at > listed[1].time
    everything = rest.list_user_checkpoints(limit=2).result().checkpoints
    assert [c.tinker_path for c in everything] == [second, first]
    found = rest.get_training_run(run).result()
    assert found.base_model == "tests/tiny"
    assert found.user_metadata == {"run": "listed"}
    assert found.last_checkpoint.tinker_path == first
    assert rest.get_training_run_by_tinker_path(first).result().training_run_id == run
    assert run in {r.training_run_id for r in rest.list_training_runs().result().training_runs}
    info = rest.get_weights_info_by_tinker_path(first).result()
    assert (info.base_model, info.lora_rank, info.train_mlp) == ("tests/tiny", 4, True)

    rest.delete_checkpoint_from_tinker_path(first).result()
    assert not tools.folder(first).exists()
    assert [c.tinker_path for c in rest.list_checkpoints(run).result().checkpoints] == [second]
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        tools.service.create_training_client_from_state(first).result()


def test_what_a_crash_leaves_behind_is_not_a_checkpoint(tools: Any) -> None:
    client = tools.client()
    folder = tools.folder(client.save_state("whole").result().path)
    shutil.copytree(folder, folder.parent / ".whole-leftover")
    half = folder.parent / "half"
    half.mkdir()
    (half / "adapter_model.safetensors").write_bytes(b"")
    rest = tinker.RestClient(api_key="tml-local", base_url=tools.server.url)
    listed = rest.list_checkpoints(client.model_id).result().checkpoints
    assert [c.checkpoint_id for c in listed] == ["weights/whole"]
    path = f"tinker://{client.model_id}/weights/half"
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        tools.service.create_training_client_from_state(path).result()


def test_sampler_weights_cannot_restore_an_optimizer(tools: Any) -> None:
    path = tools.client().save_weights_for_sampler("sampler").result().path
    with pytest.raises(tinker.RequestFailedError, match="no optimizer state"):
        tools.service.create_training_client_from_state_with_optimizer(path).result()
    tools.service.create_training_client_from_state(path).result()
