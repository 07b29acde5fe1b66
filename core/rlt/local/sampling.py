"""Sampling: many requests share each pass through the model, and none can tell.

A `Lane` serves one set of weights. Requests join and leave between tokens, so a long answer does
not hold up a short one. What a request gets depends on its prompt, settings and seed alone:

- a prompt is computed alone, at its own length;
- rows are decoded together at heights for which a matrix product rounds every row alike
  (`rlt.local.invariance`), each attending to its own positions (`rlt.local.attention`);
- every sample draws from a random generator of its own (`rlt.local.draw`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from rlt.local import prompts
from rlt.local.draw import DrawSettings, StopRule, draw, generator_for
from rlt.local.invariance import padded_height
from rlt.local.prompts import PromptAnswers, PromptQuestions
from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from rlt.local.adapters import Adapter, AdapterBank
    from rlt.local.attention import RowCache
    from rlt.local.network import Network

_KEPT_PROMPTS = 8


@dataclass(frozen=True)
class SampleRequest:
    """One request, checked."""

    prompt: tuple[int, ...]
    samples: int
    max_tokens: int
    draw: DrawSettings
    stop: StopRule
    seed: int
    top_k_logprobs: int = 0
    """How many of the most likely tokens to report at each position."""

    questions: PromptQuestions = field(default_factory=PromptQuestions)


@dataclass
class Sample:
    """One answer; log-probabilities are the model's own, at temperature 1."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[list[int], list[float]]] = field(default_factory=list)
    stopped: bool = False
    """Ended by its stop rule, and not by its length."""


@dataclass
class SampleResult:
    """All answers of a request, in order."""

    samples: list[Sample]
    prompt: PromptAnswers


@dataclass
class Job:
    """A request with where its result goes."""

    request: SampleRequest
    deliver: Callable[[SampleResult], None]
    fail: Callable[[Exception], None]
    abandoned: Callable[[], bool]
    answers: PromptAnswers = field(default_factory=PromptAnswers)
    samples: list[Sample] = field(default_factory=list)
    unfinished: int = 0


@dataclass
class _Row:
    """A sample in the making."""

    job: Job
    sample: Sample
    cache: RowCache
    generator: torch.Generator


@dataclass
class _Start:
    """A sample that has not begun: its prompt's cache is still shared."""

    job: Job
    sample: Sample
    index: int
    cache: RowCache
    logits: torch.Tensor


class Lane:
    """The samples that are drawn from one set of weights."""

    def __init__(
        self, network: Network, bank: AdapterBank, adapter: Adapter | None, most_rows: int
    ) -> None:
        """Sample from `network` with `adapter`, at most `most_rows` samples at a time."""
        self._network = network
        self._bank = bank
        self._adapter = adapter
        self._most_rows = most_rows
        self._quick: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._starts: deque[_Start] = deque()
        self._rows: list[_Row] = []
        self._prompts: OrderedDict[tuple[int, ...], tuple[torch.Tensor, RowCache]] = OrderedDict()

    def add(self, job: Job) -> None:
        """Queue a request. One that ends with its first token never waits for room in the batch."""
        (self._quick if job.request.max_tokens == 1 else self._waiting).append(job)

    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._quick or self._waiting or self._starts or self._rows)

    def fail(self, error: Exception) -> None:
        """End everything that was asked of this lane with `error`."""
        for job in {id(j): j for j in self._jobs()}.values():
            job.fail(error)
        self._quick.clear()
        self._waiting.clear()
        self._starts.clear()
        self._rows.clear()

    @torch.no_grad()
    def work(self) -> None:
        """Do a little: read a prompt or two, or add one token to every row."""
        self._drop_abandoned()
        self._bank.hang(self._adapter)
        if self._quick:
            for start in self._read(self._quick.popleft()):
                self._start(start)
        while self._starts and len(self._rows) < self._most_rows:
            self._start(self._starts.popleft())
        if self._waiting and len(self._rows) < self._most_rows:
            self._starts.extend(self._read(self._waiting.popleft()))
        elif self._rows:
            self._decode()
        if not self.busy():
            self._prompts.clear()

    def _read(self, job: Job) -> list[_Start]:
        """Compute a prompt, and what was asked about it; its samples can start."""
        request = job.request
        try:
            hidden, cache = self._prefilled(request.prompt)
            if request.questions.any():
                job.answers = prompts.answer(
                    self._network, request.prompt, hidden, request.questions
                )
            logits = self._network.logits(hidden[-1:])[0].cpu()
        except Exception as error:  # belongs to this request, not to its neighbours
            job.fail(error)
            return []
        job.samples = [Sample() for _ in range(request.samples)]
        job.unfinished = request.samples
        return [
            _Start(job, sample, index, cache, logits) for index, sample in enumerate(job.samples)
        ]

    def _prefilled(self, prompt: tuple[int, ...]) -> tuple[torch.Tensor, RowCache]:
        """Hidden states and cache of a prompt; requests for the same prompt often come together."""
        if prompt not in self._prompts:
            self._prompts[prompt] = self._network.prefill(prompt)
        self._prompts.move_to_end(prompt)
        while len(self._prompts) > _KEPT_PROMPTS:
            self._prompts.popitem(last=False)
        return self._prompts[prompt]

    def _start(self, start: _Start) -> None:
        generator = generator_for(start.job.request.seed, start.index)
        row = _Row(start.job, start.sample, start.cache, generator)
        if not self._extend(row, start.logits):
            row.cache = start.cache.fork()
            self._rows.append(row)

    def _decode(self) -> None:
        width = padded_height(len(self._rows), self._most_rows)
        caches = [row.cache for row in self._rows]
        last = [row.sample.tokens[-1] for row in self._rows]
        logits = self._network.logits(self._network.advance(caches, last, width)).cpu()
        self._rows = [
            row
            for row, own in zip(self._rows, logits, strict=False)
            if not self._extend(row, own.clone())  # aligned alike, wherever the row was
        ]

    def _extend(self, row: _Row, logits: torch.Tensor) -> bool:
        """Add a token to a sample; True when that was its last."""
        request, sample = row.job.request, row.sample
        total = torch.logsumexp(logits, dim=0)
        if not torch.isfinite(total):
            row.job.fail(Refusal("the model's logits are not finite: its training has diverged"))
            return True
        token = draw(logits, request.draw, row.generator)
        sample.tokens.append(token)
        sample.logprobs.append(float(logits[token] - total))
        if request.top_k_logprobs:
            values, tokens = logits.topk(request.top_k_logprobs)
            sample.top.append((tokens.tolist(), (values - total).tolist()))
        sample.stopped = request.stop.satisfied(sample.tokens)
        finished = sample.stopped or len(sample.tokens) >= request.max_tokens
        if finished:
            self._finish(row.job)
        return finished

    def _finish(self, job: Job) -> None:
        job.unfinished -= 1
        if job.unfinished == 0:
            job.deliver(SampleResult(job.samples, job.answers))

    def _drop_abandoned(self) -> None:
        self._quick = deque(job for job in self._quick if not job.abandoned())
        self._waiting = deque(job for job in self._waiting if not job.abandoned())
        self._starts = deque(start for start in self._starts if not start.job.abandoned())
        self._rows = [row for row in self._rows if not row.job.abandoned()]

    def _jobs(self) -> list[Job]:
        holders: list[_Start | _Row] = [*self._starts, *self._rows]
        return [*self._quick, *self._waiting, *(holder.job for holder in holders)]
