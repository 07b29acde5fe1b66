"""The checker of one file, fed with batches of lines.

`rlt check` prints what it finds, `rlt run` refuses the file for it, `rlt convert` sends the row to
the rejects: one checker behind all of them, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlt.dataset import content, tools
from rlt.dataset.duplicates import Duplicates, LineNumbers
from rlt.dataset.findings import Finding, Problem
from rlt.dataset.foreign import whole_file_fault
from rlt.dataset.gate import Gate, parse_all
from rlt.dataset.keys import keys_differ
from rlt.dataset.leak import Held
from rlt.dataset.lines import Batch
from rlt.dataset.locate import at_fault, locate
from rlt.dataset.mixed import ArgumentEncoding
from rlt.dataset.rules import RULES, severity
from rlt.dataset.schema_check import problems
from rlt.dataset.syntax import Fault, parse
from rlt.dataset.types import DatasetType
from rlt.types import JSON

RowRule = Callable[[JSON, DatasetType], Iterable[Problem]]
_ROW_RULES: Sequence[RowRule] = (*content.RULES, *tools.RULES)


@dataclass
class Checker:
    """Reads the rows of one file and says what is wrong with them."""

    path: str
    """The name of the file in findings."""

    kind: DatasetType
    wanted: frozenset[str] = frozenset(RULES)
    """The rules to apply."""

    against: Held | None = None
    """The prompts of the training file, for the rule `leak`."""

    more_rules: Sequence[RowRule] = ()
    """Rules for rows in which the others find no error, such as those that need a model."""

    compare_rows: bool = True
    """Whether to look for equal rows."""

    rows: int = field(default=0, init=False)
    invalid: int = field(default=0, init=False)
    _hopeless: bool = field(default=False, init=False)
    """Whether the whole file is something else, so that single rows are not worth a word."""

    def __post_init__(self) -> None:
        """Prepare what is kept from row to row."""
        self._gate = Gate(self.kind, self.kind.validator)
        self._seen = Duplicates()
        self.lines = LineNumbers()
        self._rules: Sequence[RowRule] = (*_ROW_RULES, ArgumentEncoding())

    @property
    def valid(self) -> int:
        """How many rows have no error."""
        return self.rows - self.invalid

    def feed(self, batch: Batch) -> list[Finding]:
        """Check further rows."""
        whole = whole_file_fault(batch.lines[0]) if not self.rows and batch.lines else None
        self.rows += len(batch.lines)
        if whole or self._hopeless:
            self._hopeless, self.invalid = True, self.rows
            return self._keep([at_fault(self.path, batch.numbers[0], whole)] if whole else [])
        self.lines.extend(batch.numbers)
        rows = parse_all(batch.lines)
        if rows is not None and not self.more_rules and self._spotless(batch.lines, rows):
            if self.compare_rows:
                self._seen.extend(batch.lines)
            return []
        found: list[Finding] = []
        for row in zip(batch.lines, batch.numbers, batch.offsets, strict=True):
            found += self._one(*row)
        return found

    def finish(self) -> list[Finding]:
        """Say what only the whole file shows."""
        if not self.rows:
            return self._keep([_no_rows(self.path)])
        if self._hopeless or not self.compare_rows or "duplicate-row" not in self.wanted:
            return []
        found = [
            Finding(
                self.path,
                self.lines[row],
                1,
                "duplicate-row",
                "",
                f"the same as line {self.lines[first]}",
                "keep one of them",
            )
            for row, first in self._seen.pairs()
        ]
        self.invalid += len(found)
        return found

    def _spotless(self, lines: Sequence[bytes], rows: Sequence[Any]) -> bool:
        if not self._gate.spotless(lines, rows):
            return False
        return self.against is None or not self.against.any(self.kind, rows)

    def _one(self, line: bytes, number: int, offset: int) -> list[Finding]:
        found = self._keep(self._look(line, number, offset))
        bad = any(finding.severity == "error" for finding in found)
        self.invalid += bad
        if self.compare_rows:
            self._seen.skip() if bad else self._seen.extend((line,))
        return found

    def _look(self, line: bytes, number: int, offset: int) -> list[Finding]:
        parsed = parse_all((line,))
        if parsed and self._is_sound(line, parsed[0]):
            found = self._problems(parsed[0], [])
            return locate(self.path, number, line.decode(), found) if found else []
        read = parse(line, offset)
        if isinstance(read, Fault):
            return [at_fault(self.path, number, read)]
        text, row = read
        return locate(
            self.path, number, text, self._problems(row, problems(row, self.kind.validator))
        )

    def _is_sound(self, line: bytes, row: Any) -> bool:
        return type(row) is dict and self._gate.valid(row) and keys_differ((line,), (row,))

    def _problems(self, row: JSON, known: list[Problem]) -> list[Problem]:
        """Add to the problems that the schema finds those that the rules find."""
        found = known + [problem for rule in self._rules for problem in rule(row, self.kind)]
        if self.against is not None:
            found += self.against.problems(self.kind, row)
        if not any(severity(problem.rule) == "error" for problem in found):
            found += [problem for rule in self.more_rules for problem in rule(row, self.kind)]
        return found

    def _keep(self, found: Iterable[Finding]) -> list[Finding]:
        return [finding for finding in found if finding.rule in self.wanted]


def _no_rows(path: str) -> Finding:
    return Finding(
        path, 1, 1, "no-rows", "", "the file holds no rows", "write one JSON object a line"
    )


def check_batches(checker: Checker, batches: Iterable[Batch]) -> Iterator[Finding]:
    """Feed a checker to the end."""
    for batch in batches:
        yield from checker.feed(batch)
    yield from checker.finish()
