"""An expected answer: what the completion ends in, compared as text or number, then as mathematics.

Where a completion states its answer is told from the marks that models are taught: `\\boxed{…}`,
`#### …`, "the answer is …"; without one it is the last number, or the last line. Two answers that
are not the same text or number are compared by `math-verify` when that extra is installed.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec

import rlt
from rlt_grpo.verifiers.mathematics import Mathematics

_MARKS = (
    re.compile(r"####\s*(.+)"),
    re.compile(r"(?:final )?answer(?: is|:)\s*(.+)", re.IGNORECASE),
)
_NUMBER = re.compile(r"-?(?:\d[\d,]*)?\.?\d+")
_DRESS = re.compile(r"^[\s$*`'\"(]+|[\s$*`'\".,;:!)]+$")
"""What surrounds an answer without being part of it."""


async def verify_answer(run: rlt.Run, metadata: rlt.JSON, completion: str) -> float:
    """Return 1 when a completion ends in `metadata["answer"]`, 0 when it does not."""
    expected = str(metadata["answer"])
    if any(same(expected, stated) for stated in candidates(completion, expected)):
        return 1.0
    if find_spec("math_verify") is None:
        return 0.0
    return float(await run.state(Mathematics).equal(expected, completion))


def candidates(completion: str, expected: str) -> list[str]:
    """Return what a completion may have meant as its answer: a mark's content, or its end."""
    boxed = last_boxed(completion)
    if boxed is not None:
        return [boxed]
    for mark in _MARKS:
        if found := mark.findall(completion):
            return [found[-1], *_numbers(found[-1], expected)[:1]]
    lines = completion.strip().splitlines()
    return [*lines[-1:], *_numbers(completion, expected)[-1:]]


def same(expected: str, stated: str) -> bool:
    """Say whether two answers are one, but for case, spaces, `$` and the writing of numbers."""
    one, other = normal(expected), normal(stated)
    if one == other:
        return True
    a, b = _value(one), _value(other)
    return a is not None and a == b


def normal(text: str) -> str:
    """Return an answer without its dress."""
    return " ".join(_DRESS.sub("", text).split()).casefold()


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}`, whose braces may be nested."""
    _, found, rest = text.rpartition("\\boxed{")
    if not found:
        return None
    depth = 1
    for index, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:index]
    return None


def _numbers(text: str, expected: str) -> list[str]:
    """Return the numbers of a text, when a number is expected."""
    return _NUMBER.findall(text) if _value(normal(expected)) is not None else []


def _value(text: str) -> Decimal | None:
    try:
        value = Decimal(text.replace(",", "").removeprefix("$"))
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
