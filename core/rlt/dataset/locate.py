"""Problems and faults become findings: a column and the piece of text that is meant."""

from __future__ import annotations

from collections.abc import Sequence

from rlt.dataset.findings import Finding, Pointer, Problem, render_pointer, shorten
from rlt.dataset.positions import Scan, Span
from rlt.dataset.syntax import Fault


def locate(path: str, line: int, text: str, problems: Sequence[Problem]) -> list[Finding]:
    """Find the places of `problems` in `text`, and what only the text itself shows."""
    wanted = {problem.pointer[:i] for problem in problems for i in range(len(problem.pointer) + 1)}
    scan = Scan(text, wanted)
    placed = [(problem, _place(problem, scan.spans)) for problem in problems]
    found = [_finding(path, line, text, *each) for each in [*scan.found, *placed]]
    return sorted(found, key=lambda finding: finding.order)


def at_fault(path: str, line: int, fault: Fault) -> Finding:
    """Give a line that could not be read its place in the file."""
    return Finding(
        path, line, fault.at + 1, fault.rule, "", fault.message, fault.suggestion, fault.snippet
    )


def _place(problem: Problem, spans: dict[Pointer, Span]) -> Span:
    """Where a problem is; a key that is missing is where its object is."""
    for end in range(len(problem.pointer), -1, -1):
        span = spans.get(problem.pointer[:end])
        if span:
            at_key = problem.at_key and end == len(problem.pointer)
            return Span(span.key_start, span.key_end, 0, 0) if at_key else span
    return Span(0, 0, 0, 0)


def _finding(path: str, line: int, text: str, problem: Problem, span: Span) -> Finding:
    return Finding(
        path=path,
        line=line,
        column=span.start + 1,
        rule=problem.rule,
        pointer=render_pointer(problem.pointer),
        message=problem.message,
        suggestion=problem.suggestion,
        snippet=shorten(text[span.start : span.end]),
    )
