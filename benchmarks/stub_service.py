"""The embedded engine's own protocol server over a model that only takes time.

Every request is answered after a fixed delay, all at once, as a large service would: what is then
measured is the client.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as pb
from uvicorn import Config, Server

from rlt.local.adapters import Shape
from rlt.local.promises import Promise, PromiseBook
from rlt.local.registry import Registry
from rlt.local.routes import application


@dataclass(frozen=True)
class Delays:
    """Seconds that each kind of request takes."""

    sampler: float = 0.05
    sample: float = 0.3
    training: float = 0.2
    save: float = 0.4


class Stub:
    """Stands where `rlt.local.engine.Engine` does."""

    def __init__(self, delays: Delays, max_tokens: int = 16) -> None:
        self.delays, self.max_tokens = delays, max_tokens
        self.registry, self.promises = Registry(), PromiseBook()
        self.network = SimpleNamespace(
            name="stub", max_context=4096, architecture="stub", tokenizer_id="stub"
        )
        self.training = self.sampling = self

    def finish_session(self, session_id: str) -> None:
        self.registry.end_session(session_id)

    def create_model(self, request: Any) -> Promise:
        model = self.registry.new_model(request.session_id, request.model_seq_id, Shape(1), None)
        return self._later(0, {"type": "create_model", "model_id": model.model_id})

    def forward_backward(self, message: pb.ForwardBackwardRequest) -> Promise:
        lengths = [len(d.loss_fn_inputs["target_tokens"].dense) // 8 for d in message.data]
        output = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        output.metrics["loss:sum"] = 1.0
        record = output.loss_fn_outputs.add(num_datums=len(lengths))
        record.fields["logprobs"].CopyFrom(
            pb.BatchedTensor(
                data=np.full(sum(lengths), -1, np.float32).tobytes(),
                offsets=(4 * np.cumsum([0, *lengths])).astype(np.int64).tobytes(),
                dtype=pb.DTYPE_FLOAT32,
            )
        )
        return self._later(self.delays.training, output.SerializeToString())

    def optim_step(self, _: Any) -> Promise:
        return self._later(self.delays.training, {"metrics": {"grad_norm:mean": 1.0}})

    def save_weights(self, request: Any) -> Promise:
        path = f"tinker://{request.model_id}/weights/{request.path}"
        return self._later(self.delays.save, {"type": "save_weights", "path": path})

    def save_weights_for_sampler(self, request: Any) -> Promise:
        kind = {"type": "save_weights_for_sampler"}
        if request.path:
            path = f"tinker://{request.model_id}/sampler_weights/{request.path}"
            return self._later(self.delays.save, {**kind, "path": path})
        session = self.registry.model(request.model_id).session_id
        sampler = self.registry.new_sampler(session, request.sampling_session_seq_id)
        return self._later(self.delays.sampler, {**kind, "sampling_session_id": sampler.sampler_id})

    def sample(self, request: Any) -> Promise:
        response = pb.SampleResponse()
        tokens = np.full(self.max_tokens, 7, np.int32)
        for _ in range(request.num_samples):
            response.sequences.append(
                pb.SampledSequence(
                    stop_reason=pb.STOP_REASON_LENGTH,
                    tokens=tokens.tobytes(),
                    logprobs=np.full(len(tokens), -1, np.float32).tobytes(),
                )
            )
        promise = self._later(self.delays.sample, response.SerializeToString())
        promise.extra["sample_sequence_ids"] = [uuid.uuid4().hex] * request.num_samples
        return promise

    def _later(self, seconds: float, result: Any) -> Promise:
        promise, _ = self.promises.make(None)
        timer = threading.Timer(seconds, promise.keep, (result,))
        timer.daemon = True
        timer.start()
        return promise


@contextmanager
def running() -> Iterator[str]:
    """Run the stub in a process of its own, as a service is, and give its address."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def serve() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app: Any = application(Stub(Delays()))  # type: ignore[arg-type]
    Server(Config(app, log_config=None, access_log=False, lifespan="off")).run([listener])


if __name__ == "__main__":
    serve()
