"""Verifiers: what a completion earns, by what the row's metadata holds.

    answer      the expected answer: 1 when the completion ends in it
    tests       the source of a test file: 1 when it passes against the completion's code
    lean_goal   a theorem to prove: 1 when Lean accepts the completion as its proof

Metadata is passed on exactly as the file has it. The last two run what a model wrote, so they need
`-o allow_code_execution=true`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import rlt
from rlt_grpo.scoring import UNSCORED
from rlt_grpo.verifiers.answer import verify_answer
from rlt_grpo.verifiers.lean import require_lean, verify_lean
from rlt_grpo.verifiers.sandbox import Sandbox
from rlt_grpo.verifiers.tests import verify_tests

Verifier = Callable[[rlt.Run, rlt.JSON, str], Awaitable[float]]
"""(run, the row's metadata, completion) -> reward."""

VERIFIERS: dict[str, tuple[str, Verifier]] = {
    "answer": ("answer", verify_answer),
    "tests": ("tests", verify_tests),
    "lean": ("lean_goal", verify_lean),
}
"""Name -> (the metadata key that it needs, itself), in the order of preference."""

EXECUTES = ("tests", "lean")


def kind(run: rlt.Run, row: rlt.Row) -> str | None:
    """Return which verifier a row has; None when it has none."""
    wanted, metadata = run.options["verifier"], row.data.get("metadata", {})
    names = VERIFIERS if wanted == "auto" else [wanted]
    return next((n for n in names if n in VERIFIERS and VERIFIERS[n][0] in metadata), None)


def score(run: rlt.Run, row: rlt.Row, completion: str) -> Awaitable[float] | None:
    """Return a completion's reward, or None when the row is none of ours."""
    name = kind(run, row)
    return VERIFIERS[name][1](run, row.data["metadata"], completion) if name else None


def require(run: rlt.Run) -> None:
    """Check before any sampling that the rows can be scored.

    :raises rlt.UsageError: for the first one that cannot.
    """
    found: set[str] = set()
    for rows in (run.train_rows, run.eval_rows):
        for index in range(len(rows)):
            row = rows[index]
            name = kind(run, row)
            if name in EXECUTES and not run.options["allow_code_execution"]:
                raise rlt.UsageError(
                    f"{row.where}: scoring it runs code that the model wrote; "
                    "allow that with -o allow_code_execution=true, or choose another -o verifier"
                )
            if name is None and len(run.config.plugin) == 1:
                raise rlt.UsageError(f"{row.where}: {UNSCORED}")
            found.update({name} if name else ())
    if "lean" in found:
        require_lean()
    if found & set(EXECUTES):
        run.state(Sandbox).announce(run)
