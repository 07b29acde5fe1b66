"""Checks files one after another and tells a report what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, islice

from rlt.dataset.check import Checker
from rlt.dataset.detect import Guess, guess
from rlt.dataset.findings import Finding
from rlt.dataset.leak import Held, prompts
from rlt.dataset.lines import Batch, batches
from rlt.dataset.report import FileSummary, Report
from rlt.dataset.shapes import Shape
from rlt.dataset.source import Source
from rlt.dataset.tokens import Model, TokenCount
from rlt.dataset.types import DatasetType, DatasetTypes
from rlt.errors import UsageError
from rlt.rendering.renderer import Thinking

_SORTED = 10_000
"""Findings of a file are printed in the order of its lines, if they are not more than this. Else
they go out as they come, and those that only the whole file shows come last."""

Progress = Callable[[Source], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar for a file; it is told how many bytes have been read."""


def no_progress(source: Source) -> AbstractContextManager[Callable[[int], None]]:  # noqa: ARG001
    """Show nothing."""
    return nullcontext(lambda _: None)


class Inspection:
    """One call of `rlt check`."""

    def __init__(
        self, types: DatasetTypes, kind: str, report: Report, rules: frozenset[str]
    ) -> None:
        """Check as the type called `kind`, or `auto`."""
        self._types = types
        self._kind = None if kind == "auto" else types[kind]
        self._report = report
        self._rules = rules
        self.limit: int | None = None
        """How many findings to report; None for all."""

        self.held: Held | None = None
        """The prompts that must not come up."""

        self.model: Model | None = None
        """The model to count tokens for."""

        self.progress: Progress = no_progress
        self.unreadable: list[str] = []
        """One sentence for each file that could not be read."""

    def run(self, paths: Sequence[str]) -> int:
        """Check every file and return the exit code."""
        code = 0
        for path in paths:
            try:
                code = max(code, self._file(path))
            except UsageError as error:  # the other files can still be checked
                self.unreadable.append(str(error))
        self._report.end()
        return 2 if self.unreadable else code

    def _file(self, path: str) -> int:
        source = Source(path)
        try:
            return self._source(source)
        finally:
            source.close()

    def _source(self, source: Source) -> int:
        stream = batches(source.chunks())
        first = list(islice(stream, 1))
        told = self._tell(first)
        tokens = TokenCount(self.model) if self.model else None
        checker = Checker(
            source.label, told.kind or _NONE, self._rules, self.held, (tokens,) if tokens else ()
        )
        counts: Counter[str] = Counter()
        with self.progress(source) as show:
            every = chain(first, _shown(stream, source, show))
            for finding in _in_order(
                _findings(told, checker, every, is_ours=told.kind is not None)
            ):
                if self.limit is None or counts.total() < self.limit:
                    self._report.finding(finding)
                counts[finding.severity] += 1
        summary = self._summary(source, told, checker, counts)
        self._report.file(replace(summary, tokens=tokens.as_json()) if tokens else summary)
        return 1 if counts["error"] else 0

    def _tell(self, first: Sequence[Batch]) -> Guess:
        told = guess(first[0].lines if first else (), self._types)
        return told if self._kind is None else Guess(self._kind, "", told.shape)

    def _summary(
        self, source: Source, told: Guess, checker: Checker, counts: Counter[str]
    ) -> FileSummary:
        hidden = max(0, counts.total() - self.limit) if self.limit is not None else 0
        return FileSummary(
            path=source.label,
            type=told.kind.name if told.kind else None,
            why=told.why,
            rows=checker.rows,
            valid=checker.valid if told.kind else 0,
            errors=counts["error"],
            warnings=counts["warning"],
            hidden=hidden,
            sha256=source.sha256,
        )


_NONE = DatasetType("", {})
"""Stands for the type of a file that is in another tool's format."""


def hold_out(train: str, types: DatasetTypes) -> Held:
    """Read the prompts of a training file."""
    source = Source(train)
    try:
        return Held(source.label, prompts(source, types))
    finally:
        source.close()


def load_model(name: str, thinking: Thinking) -> Model:
    """Find what is needed to count tokens."""
    from rlt.dataset.tokens import Model  # noqa: PLC0415 - brings transformers

    return Model(name, thinking)


def _findings(
    told: Guess, checker: Checker, every: Iterable[Batch], *, is_ours: bool
) -> Iterator[Finding]:
    if told.shape and "other-format" in checker.wanted:
        yield _other_format(checker.path, told.shape)
    for batch in every:
        if is_ours:
            yield from checker.feed(batch)
        else:
            checker.rows += len(batch.lines)
    if is_ours:
        yield from checker.finish()


def _other_format(path: str, shape: Shape) -> Finding:
    message = f"the file holds {shape.label}, which are none of rlt's types"
    name = path.removesuffix(".jsonl").removesuffix(".json")
    fix = f"rlt convert {path} --to {shape.target} -o {name}.{shape.target}.jsonl"
    return Finding(path, 1, 1, "other-format", "", message, fix)


def _in_order(found: Iterator[Finding]) -> Iterator[Finding]:
    held = list(islice(found, _SORTED))
    if len(held) < _SORTED:
        held.sort(key=lambda finding: finding.order)
    yield from held
    yield from found


def _shown(stream: Iterable[Batch], source: Source, show: Callable[[int], None]) -> Iterator[Batch]:
    for batch in stream:
        yield batch
        show(source.read)
