"""How close a step comes to what the service alone must take.

Against a server that takes a fixed time for each request (see `stub_service`), in one run:

- the critical path: a sampler, one sample, one forward-backward with its optimizer step, each asked
  for by the bare SDK and awaited in turn;
- the sequential loop: the same, with a step's samples asked for one after another, as the script
  does that rlt replaces;
- rlt: `engine.train` with the sdft plugin on the same rows;
- rlt's own time: the same over clients that answer at once, with the sdft plugin's rendering of the
  rows and without.

    python benchmarks/loop_latency.py [--steps 10] [--prompts 8]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stub_service import running

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ["TINKER_TELEMETRY"] = "0"

import tinker

from rlt import engine, logs, plugins
from rlt.config import RunConfig
from rlt.hooks import Hooks
from rlt.local.tokenizer import load_tokenizer
from rlt.options import fill
from rlt.rendering import Example, datum
from rlt.run import Run
from rlt.run_directory import RunDirectory
from rlt.service import Service
from rlt.types import Batch, Row, RowOutcome
from tiny_model import make_tiny_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=8)
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder, running() as url:
        tokenizer = load_tokenizer(make_tiny_model(Path(folder) / "tiny"))
        client = tinker.ServiceClient(base_url=url, api_key="tml-stub")
        training = client.create_lora_training_client("stub", rank=1).result()
        path = median(arguments.steps, lambda: bare_step(training, 1))
        loop = median(max(2, arguments.steps // 3), lambda: bare_step(training, arguments.prompts))
        ours = rlt_step(arguments, Path(folder) / "run", client, training, tokenizer)
        instant = SimpleNamespace(create_sampling_client=None)
        own = rlt_step(arguments, Path(folder) / "own", instant, InstantTraining(), tokenizer)
        bare = rlt_step(arguments, Path(folder) / "bare", instant, InstantTraining(), tokenizer,
                        plugin=Ready())  # fmt: skip
        client.close("success").result()
    print(f"{'a step of ' + str(arguments.prompts) + ' prompts':<34}{'ms':>9}{'ratio':>9}")
    for name, seconds, base in (
        ("critical path (bare SDK)", path, path),
        ("sequential loop (bare SDK)", loop, path),
        ("rlt", ours, path),
        ("rlt against the sequential loop", ours, loop),
        ("rlt's own time, rows rendered", own, path),
        ("the loop's own time", bare, path),
    ):
        print(f"{name:<34}{1000 * seconds:>9.1f}{seconds / base:>9.2f}")


def median(count: int, once: Callable[[], None]) -> float:
    times = []
    for _ in range(count + 1):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def bare_step(training: tinker.TrainingClient, prompts: int) -> None:
    sampler = training.save_weights_and_get_sampling_client().result()
    prompt, settings = tinker.ModelInput.from_ints([1, 2, 3]), tinker.SamplingParams(max_tokens=16)
    for _ in range(prompts):
        sampler.sample(prompt, 1, settings).result()
    passes = training.forward_backward([datum(Example.of([1, 2], [3, 4]))], "cross_entropy")
    adam = training.optim_step(tinker.AdamParams())
    passes.result()
    adam.result()


def rlt_step(
    arguments: Any, path: Path, client: Any, training: Any, tokenizer: Any, plugin: Any = None
) -> float:
    """Return the median seconds of a step, between two calls of `on_step`."""
    chosen, manager = plugins.select(["sdft"])
    config = RunConfig(
        plugin=("sdft",), steps=arguments.steps + 1, prompts_per_step=arguments.prompts,
        max_tokens=16, save_every=5, keep=0, options=fill({"checks": "off"}, chosen),
    )  # fmt: skip
    directory = RunDirectory(path)
    directory.claim(resume=False)
    clock = Clock()
    manager.register(clock)
    if plugin:
        manager.register(plugin)
    run = Run(config, Hooks(manager), directory, algorithm=chosen[0].info, name="sdft")
    rows = [{"prompt": f"Say {n}.", "completion": f"{n}"} for n in range(64)]
    run.train_rows = [Row(data, str(n), "rows", n + 1) for n, data in enumerate(rows)]
    run.attach(Service(client, None, "stub", tokenizer, 4096), training)  # type: ignore[arg-type]
    asyncio.run(engine.train(run))
    return statistics.median(b - a for a, b in zip(clock.times, clock.times[1:], strict=False))


class Ready:
    """A plugin whose datums are there already: what is left is the loop."""

    def __init__(self) -> None:
        self.datums = [datum(Example.of([1, 2, 3], [4, 5, 6])) for _ in range(8)]

    @plugins.hookspecs.hookimpl(tryfirst=True)
    def make_datums(self, rows: list[Row]) -> Batch:
        return Batch(self.datums[: len(rows)], [RowOutcome(row, 1) for row in rows])


class Clock:
    """An observer that notes when each step was over."""

    def __init__(self) -> None:
        self.times: list[float] = []

    @plugins.hookspecs.hookimpl(trylast=True)
    def on_step(self) -> None:
        self.times.append(time.perf_counter())


class InstantTraining:
    """Answers like the SDK's clients, without a service."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def answer(*arguments: Any, **_: Any) -> Any:
            return ANSWERS[name](*arguments)

        return answer


def _logprobs(data: list[Any], *_: Any) -> Any:
    ones = [-(tensor.to_numpy().astype("float32") ** 0) for tensor in _targets(data)]
    outputs = [{"logprobs": tinker.TensorData.from_numpy(one)} for one in ones]
    return SimpleNamespace(loss_fn_outputs=outputs, metrics={})


def _targets(data: list[Any]) -> list[Any]:
    return [item.loss_fn_inputs["target_tokens"] for item in data]


ANSWERS: dict[str, Callable[..., Any]] = {
    "forward_backward": _logprobs,
    "optim_step": lambda *_: SimpleNamespace(metrics={}),
    "save_state": lambda *_: SimpleNamespace(path="tinker://x/weights/y"),
    "save_weights_for_sampler": lambda *_: SimpleNamespace(path="tinker://x/sampler_weights/y"),
    "save_weights_and_get_sampling_client": lambda *_: InstantTraining(),
    "sample": lambda *_: SimpleNamespace(
        sequences=[SimpleNamespace(tokens=[7] * 16, stop_reason="length", logprobs=[-1.0] * 16)]
    ),
}

if __name__ == "__main__":
    main()
