"""A test file: does the completion's code pass it?

The code is the last fenced block of the completion, or all of it; it becomes the module `solution`,
whose names the tests also find in their own namespace. Assertions, functions named `test…` and
`unittest` cases are all run. Only a run that reaches its end counts: leaving early with exit code 0
passes nothing, since the word that `tests_runner.py` says at the end is not known to the code.
(Code that searches its own interpreter for that word can find it: reward hacking of that kind is
seen in `samples.jsonl`, not prevented here.)
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import rlt
from rlt_grpo.verifiers.sandbox import Sandbox, python

_RUNNER = Path(__file__).with_name("tests_runner.py")
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


async def verify_tests(run: rlt.Run, metadata: rlt.JSON, completion: str) -> float:
    """Return 1 when the completion's code passes `metadata["tests"]`, 0 when it does not.

    :raises RuntimeError: when the sandbox itself cannot start.
    """
    began, passed = secrets.token_hex(16), secrets.token_hex(16)
    ended = await run.state(Sandbox).run(
        [python(), "-I", "-B", "runner.py"],
        files={
            "runner.py": _RUNNER.read_text("utf-8"),
            "solution.py": code(completion),
            "tests.py": metadata["tests"],
        },
        stdin=f"{began}\n{passed}\n".encode(),
        seconds=run.options["test_seconds"],
        memory=run.options["test_memory_mb"] << 20,
    )
    if began not in ended.out + ended.err:
        raise RuntimeError(f"the sandbox did not start: {ended.err.strip()[-300:] or 'no answer'}")
    return float(ended.code == 0 and passed in ended.out)


def code(completion: str) -> str:
    """Return the code of a completion."""
    blocks = _FENCED.findall(completion)
    return str(blocks[-1]) if blocks else completion
