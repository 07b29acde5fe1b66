"""Below the SDK: repeated requests, requests out of order, polling."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest
from tinker.proto import tinker_public_pb2 as pb

from rlt.local.order import Turnstile
from rlt.local.promises import PromiseBook
from rlt.local.refusal import NotFound, Refusal

STEP = {"learning_rate": 0.01}


@pytest.fixture
def model_id(http: httpx.Client) -> str:
    session = http.post(
        "create_session", json={"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
    ).json()["session_id"]
    body = {
        "session_id": session,
        "model_seq_id": 0,
        "base_model": "tests/tiny",
        "lora_config": {"rank": 4, "seed": 1},
    }
    first = http.post("create_model", json=body).json()
    assert http.post("create_model", json=body).json() == first
    return str(_fetch(http, first)["model_id"])


def _fetch(http: httpx.Client, promise: Any) -> Any:
    while True:
        response = http.post("retrieve_future", json={"request_id": promise["request_id"]})
        if response.status_code != 408:
            break
    is_json = response.headers["content-type"] == "application/json"
    return response.json() if is_json else response.content


def _forward_backward(http: httpx.Client, model_id: str, number: int) -> Any:
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=number, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = np.array([5, 6, 7], np.int32).tobytes()
    for name, dtype, kind in (
        ("target_tokens", np.int64, pb.DTYPE_INT64),
        ("weights", np.float32, pb.DTYPE_FLOAT32),
    ):
        datum.loss_fn_inputs[name].dense = np.array([1, 1, 1], dtype).tobytes()
        datum.loss_fn_inputs[name].dtype = kind
        datum.loss_fn_inputs[name].shape.append(3)
    return http.post("forward_backward", content=message.SerializeToString()).json()


def _step(http: httpx.Client, model_id: str, number: int | None) -> Any:
    body = {"model_id": model_id, "seq_id": number, "adam_params": STEP}
    return http.post("optim_step", json=body).json()


def test_a_repeated_training_request_runs_once(http: httpx.Client, model_id: str) -> None:
    first, again = _forward_backward(http, model_id, 1), _forward_backward(http, model_id, 1)
    assert first == again
    step, step_again = _step(http, model_id, 2), _step(http, model_id, 2)
    assert step == step_again
    norm = _fetch(http, step)["metrics"]["grad_norm:mean"]
    other = _forward_backward(http, model_id, 3)
    assert other["request_id"] != first["request_id"]
    assert _fetch(http, first) == _fetch(http, again)
    assert 0 < norm < 1000


def test_training_requests_run_by_number_however_they_arrive(
    http: httpx.Client, model_id: str
) -> None:
    step = _step(http, model_id, 3)
    second = _forward_backward(http, model_id, 2)
    time.sleep(0.2)
    first = _forward_backward(http, model_id, 1)
    norm = _fetch(http, step)["metrics"]["grad_norm:mean"]
    outputs = [pb.ForwardBackwardOutput.FromString(_fetch(http, f)) for f in (first, second)]
    assert outputs[0] == outputs[1]  # both before the step
    last = pb.ForwardBackwardOutput.FromString(_fetch(http, _forward_backward(http, model_id, 4)))
    assert last.metrics["loss:sum"] < outputs[0].metrics["loss:sum"]
    alone = _fetch(http, _step(http, model_id, 5))["metrics"]["grad_norm:mean"]
    assert norm > 1.5 * alone  # two gradients, one


def test_a_repeated_sample_request_is_drawn_once(http: httpx.Client, model_id: str) -> None:
    session = model_id.split(":", maxsplit=1)[0]
    body = {"session_id": session, "sampling_session_seq_id": 0, "base_model": "tests/tiny"}
    sampler = http.post("create_sampling_session", json=body).json()
    assert http.post("create_sampling_session", json=body).json() == sampler
    request = {
        "sampling_session_id": sampler["sampling_session_id"],
        "seq_id": 0,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}]},
        "sampling_params": {"max_tokens": 5},
    }
    first, again = (http.post("asample", json=request).json() for _ in range(2))
    assert first == again
    assert len(first["sample_sequence_ids"]) == 1
    assert _fetch(http, first) == _fetch(http, again)
    other = http.post("asample", json={**request, "seq_id": 1}).json()
    assert _fetch(http, other) != _fetch(http, first)
    response = http.get(f"samplers/{sampler['sampling_session_id']}").json()
    assert response["base_model"] == "tests/tiny"


def test_training_and_sampling_do_not_starve_each_other(http: httpx.Client, model_id: str) -> None:
    session = model_id.split(":", maxsplit=1)[0]
    body = {"session_id": session, "sampling_session_seq_id": 0, "base_model": "tests/tiny"}
    sampler = http.post("create_sampling_session", json=body).json()["sampling_session_id"]
    long = {
        "sampling_session_id": sampler,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}]},
        "num_samples": 256,
        "sampling_params": {"max_tokens": 400, "stop": []},
    }
    samples = http.post("asample", json={**long, "seq_id": 0}).json()
    step = _step(http, model_id, 1)
    assert "metrics" in _fetch(http, step)
    http.post("cancel_future", json={"request_id": samples["request_id"]})
    assert "cancelled" in _fetch(http, samples)["error"]


def test_what_cannot_be_read_is_refused_at_once(http: httpx.Client, model_id: str) -> None:
    assert http.post("forward_backward", content=b"\xff\xff").status_code == 400
    assert http.post("optim_step", content=b"{").status_code == 422
    assert http.post("cancel_future", content=b"[]").status_code == 400
    unknown = http.post("optim_step", json={"model_id": "x", "adam_params": {}})
    assert unknown.status_code == 404
    assert "training client 'x' is not known" in unknown.json()["detail"]
    assert http.post("retrieve_future", json={"request_id": "x"}).status_code == 404
    assert http.post("session_heartbeat", json={"session_id": "x"}).status_code == 404
    assert http.get("samplers/x").status_code == 404
    assert http.get("training_runs?limit=-1").status_code == 400
    _fetch(http, _step(http, model_id, None))  # without a number: as it comes


def test_a_finished_session_takes_its_clients_with_it(http: httpx.Client, model_id: str) -> None:
    session = model_id.split(":", maxsplit=1)[0]
    assert http.get(f"sessions/{session}").json()["training_run_ids"] == [model_id]
    done = http.post(f"sessions/{session}/finish", json={"reason": {"type": "success"}})
    assert done.status_code == 200
    gone = http.post("get_info", json={"model_id": model_id})
    assert gone.status_code == 404
    assert "its session is finished" in gone.json()["detail"]


def test_a_missing_request_is_waited_for_and_then_given_up() -> None:
    turnstile, ran, refused = Turnstile(patience=0.0), [], []
    assert turnstile.arrive(2, lambda: ran.append(2), refused.append) == []
    turnstile.give_up()
    assert refused == [
        "request number 2 was not run: it was held for 0 seconds, "
        "because number 1 of this training client never arrived"
    ]
    for run in turnstile.arrive(1, lambda: ran.append(1), refused.append):
        run()
    assert ran == [1]
    assert turnstile.arrive(1, lambda: ran.append(1), refused.append) == []
    assert "was made before" in refused[1]


def test_results_are_dropped_a_while_after_they_were_fetched() -> None:
    book = PromiseBook(keep_seconds=0.0)
    fetched, _ = book.make("fetched")
    waiting, _ = book.make("waiting")
    for promise in (fetched, waiting):
        promise.keep({})
    fetched.fetched = time.monotonic() - 1
    for number in range(300):
        book.make(number)
    with pytest.raises(NotFound, match="has been dropped"):
        book.get(fetched.request_id)
    assert book.get(waiting.request_id) is waiting
    assert book.make("fetched")[1]


def test_the_first_answer_counts_and_faults_are_the_servers(caplog: Any) -> None:
    promise, _ = PromiseBook().make(None)
    promise.fail(ZeroDivisionError("oops"))
    promise.fail(Refusal("late"))
    assert promise.future.result() == {"error": "ZeroDivisionError: oops", "category": "server"}
    assert "a request failed inside the engine: ZeroDivisionError: oops" in caplog.text


def test_round_trips_are_quick(http: httpx.Client) -> None:
    """No 40 ms of delayed acknowledgements."""
    http.get("healthz")
    times = []
    for _ in range(20):
        began = time.monotonic()
        http.get("healthz")
        times.append(time.monotonic() - began)
    assert min(times) < 0.03  # each would have it
    assert json.loads(http.get("healthz").content) == {"status": "ok"}
    assert threading.active_count() > 1
