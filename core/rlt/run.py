"""What a plugin sees of a run."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from rlt import logs
from rlt.config import RunConfig
from rlt.hooks import Hooks
from rlt.rendering.renderer import Renderer, Thinking, renderer_for
from rlt.run_directory import JsonLines, RunDirectory
from rlt.types import PluginInfo, Row, Rows
from rlt.waiting import Waiter

if TYPE_CHECKING:
    import tinker

    from rlt.dataset import DatasetTypes
    from rlt.service import Service


T = TypeVar("T")


class Run:
    """One run: its configuration, its rows, its files, and the service it talks to."""

    def __init__(
        self,
        config: RunConfig,
        hooks: Hooks,
        directory: RunDirectory,
        *,
        algorithm: PluginInfo,
        name: str,
    ) -> None:
        self.config = config
        """The frozen configuration; the plugins' options are in `options`."""
        self.hooks = hooks
        """Calls the hooks of this run's plugins."""
        self.directory = directory
        """The run's files. Observers may add their own there."""
        self.algorithm = algorithm
        """What the algorithm plugin declares."""
        self.name = name
        """The algorithm plugin's name."""
        self.log = logs.get_logger()
        """A structlog logger."""
        self.dataset_types: DatasetTypes
        """The dataset types of the installed and the selected plugins."""
        self.train_rows: Rows = ()
        self.eval_rows: Rows = ()
        self.metrics_files: tuple[JsonLines, ...] = (directory.metrics,)
        """Where metrics lines go: the run directory, and the file of `--log`."""
        self.stop_reason: str | None = None
        """Why the run will end after this step; None while it goes on."""
        self.interrupted = False
        """Whether it was a signal that asked."""
        self.starting_weights: str | None = None
        """`tinker://` path of the weights that step 0 began with; None when they were fresh."""
        self._waiter = Waiter(self.log, config.max_wait)
        self._service: Service | None = None
        self._training: tinker.TrainingClient | None = None
        self._renderer: Renderer | None = None
        self._background: list[tuple[asyncio.Future[Any], str]] = []
        self._samplers: dict[str, asyncio.Future[tinker.SamplingClient]] = {}
        self._states: dict[Any, Any] = {}

    @property
    def options(self) -> Mapping[str, Any]:
        """The plugins' options, every default filled in."""
        return self.config.options

    def plugins_for(self, dataset_type: str) -> list[str]:
        """Name the installed plugins that take rows of a type."""
        from rlt.plugins import installed  # noqa: PLC0415 - it is what makes runs

        found = installed().items()
        return [name for name, plugin in found if plugin.info.dataset_type == dataset_type]

    def state(self, kind: Callable[[], T]) -> T:
        """Return the run's one object of a class, made when it is first asked for.

        This is where a plugin keeps what outlives a step. It is not saved: after a resume it is
        made anew.
        """
        if kind not in self._states:
            self._states[kind] = kind()
        state: T = self._states[kind]
        return state

    # ---- the service, open from `on_start` to `on_finish`

    @property
    def service(self) -> Service:
        """The open service: its client, its model's name and its longest context."""
        assert self._service, "the service opens after load_rows"
        return self._service

    @property
    def training(self) -> tinker.TrainingClient:
        """The SDK's training client. The engine itself calls forward_backward and optim_step."""
        assert self._training, "the service opens after load_rows"
        return self._training

    @property
    def renderer(self) -> Renderer:
        """Turns messages into tokens; a plugin may set another one in `on_start`."""
        if self._renderer is None:
            thinking = cast("Thinking", self.config.thinking)
            self._renderer = renderer_for(self.tokenizer, thinking)
            if thinking == "auto" and self._renderer.thinking_off:
                self.log.info("thinking is off", hint="--thinking on for rows that have thoughts")
        return self._renderer

    @renderer.setter
    def renderer(self, renderer: Renderer) -> None:
        self._renderer = renderer

    @property
    def tokenizer(self) -> Any:
        """The model's `transformers` tokenizer."""
        return self.service.tokenizer

    def attach(self, service: Service, training: tinker.TrainingClient) -> None:
        """Take the open service; the engine calls this once."""
        self._service, self._training = service, training

    # ---- sampling

    async def sampler(
        self, weights: Literal["current", "base"] = "current"
    ) -> tinker.SamplingClient:
        """Return a sampling client, made at most once for each state of the weights.

        :param weights: `base` are those before step 0, also after a resume.
        """
        if weights not in self._samplers:
            self._samplers[weights] = asyncio.ensure_future(self._new_sampler(weights))
        return await self._samplers[weights]

    async def _new_sampler(self, weights: Literal["current", "base"]) -> tinker.SamplingClient:
        request: Awaitable[tinker.SamplingClient]
        client, trained = self.service.client, self.training
        if weights == "base" and self.starting_weights:
            loaded = client.create_training_client_from_state(self.starting_weights)
            trained = await self.answered(loaded, "the weights before step 0")
        if weights == "base" and not self.starting_weights:
            # a fresh adapter changes nothing, so this is also what step 0 began with
            request = client.create_sampling_client(base_model=self.service.model)
        else:
            request = trained.save_weights_and_get_sampling_client()
        return await self.answered(request, f"the sampler of the {weights} weights")

    def weights_changed(self) -> None:
        """Forget the sampler of the weights before; the engine calls this after each step."""
        self._samplers.pop("current", None)

    async def sample(  # noqa: PLR0913 - what a caller may want other than the run has it
        self,
        prompt: Sequence[int],
        *,
        seed: int,
        samples: int = 1,
        sampler: tinker.SamplingClient | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Sequence[tinker.SampledSequence]:
        """Sample completions of a prompt, by the run's settings where none are given.

        :param prompt: token ids, shape (N,).
        :param seed: from `sampling_seed`.
        :param sampler: the current weights when None.
        :return: `samples` sequences with `tokens`, `logprobs` and `stop_reason`. The stop token is
            the last token of a sequence that ended by itself (`stop_reason == "stop"`).
        """
        from tinker import ModelInput, SamplingParams  # noqa: PLC0415 - loaded with the service

        client = sampler or await self.sampler()
        params = SamplingParams(
            max_tokens=max_tokens or self.config.max_tokens,
            temperature=self.config.temperature if temperature is None else temperature,
            seed=seed,
            stop=list(self.renderer.stop) or None,
        )
        request: Awaitable[tinker.SampleResponse] = client.sample(
            ModelInput.from_ints(list(prompt)), samples, params
        )
        return (await self.answered(request, "sample")).sequences

    def sampling_seed(self, step: int, row: Row, index: int = 0) -> int:
        """Return the seed for a row's samples: from (run seed, step, row id, index) and no more.

        So a resumed run samples what an uninterrupted one would have.
        """
        key = f"{self.config.seed}/{step}/{row.id}/{index}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "big") >> 1

    def fits(self, prompt: Sequence[int]) -> bool:
        """Say whether a sample of `--max-tokens` after this prompt is within the context."""
        return len(prompt) + self.config.max_tokens <= self.service.max_context

    # ---- control

    async def answered(self, request: Awaitable[T], what: str) -> T:
        """Await a request to the service, with status lines, for at most `--max-wait` seconds.

        :param what: the request, for messages.
        :raises rlt.RunError: when there is no answer in time.
        """
        return await self._waiter.answered(request, what)

    def in_background(self, request: Awaitable[Any], what: str) -> None:
        """Let a request finish by itself; a failure is logged and the run goes on."""
        self._background.append((asyncio.ensure_future(self.answered(request, what)), what))

    async def settle(self, seconds: float = 60) -> None:
        """Wait a while for what is in the background; the engine calls this at the end."""
        background, self._background = dict(self._background), []
        if not background:
            return
        done, late = await asyncio.wait(background, timeout=seconds)
        for task in late:
            task.cancel()
            self.log.warning("a request in the background took too long", request=background[task])
        for task in done:
            if task.exception():
                why = " ".join(str(task.exception()).split())
                self.log.warning("a request in the background failed",
                                 request=background[task], why=why)  # fmt: skip

    def stop(self, reason: str) -> None:
        """Ask the run to end after this step, with a checkpoint."""
        self.stop_reason = self.stop_reason or reason
