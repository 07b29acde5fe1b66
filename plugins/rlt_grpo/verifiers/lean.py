"""A Lean goal: does Lean accept the completion as its proof?

`metadata["lean_goal"]` is Lean source that ends where the proof begins, such as
`theorem two : 1 + 1 = 2 := by`; `metadata["lean_header"]`, if there, comes before it. The proof is
the completion's last fenced block, or all of it. Words by which a proof only looks like one, or by
which elaborating it would run code, are refused. Lean runs in the sandbox; it finds libraries by
`LEAN_PATH`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import rlt
from rlt_grpo.verifiers.sandbox import Sandbox
from rlt_grpo.verifiers.tests import code

_MEMORY = 16 << 30
"""Lean maps its libraries into memory, so an address space says little of what it uses."""
_FORBIDDEN = re.compile(
    r"\b(sorry|admit|axiom|unsafe|native_decide|ofReduceBool|implemented_by|extern|elab|macro|"
    r"syntax|notation|run_cmd|run_tac|initialize|import|open_foreign|theorem|lemma|set_option)\b|#"
)


async def verify_lean(run: rlt.Run, metadata: rlt.JSON, completion: str) -> float:
    """Return 1 when Lean accepts the proof, 0 when it does not.

    :raises rlt.UsageError: when there is no `lean` on the path.
    :raises RuntimeError: when the sandbox cannot start it.
    """
    lean, proof = require_lean(), code(completion)
    if _FORBIDDEN.search(proof):
        return 0.0
    source = "\n".join([metadata.get("lean_header", ""), metadata["lean_goal"], proof, ""])
    libraries = os.environ.get("LEAN_PATH", "")
    ended = await run.state(Sandbox).run(
        [lean, "proof.lean"],
        files={"proof.lean": source},
        seconds=run.options["test_seconds"],
        memory=_MEMORY,
        environment={"LEAN_PATH": libraries} if libraries else {},
        read=[*_installation(lean), *filter(None, libraries.split(":"))],
    )
    ended.require_start()
    return float(ended.code == 0 and "sorry" not in ended.out + ended.err)


def _installation(lean: str) -> list[str]:
    """Return the folders of Lean: of the command, and of the toolchain that it stands for."""
    return [str(path.parent.parent) for path in (Path(lean), Path(lean).resolve())]


def require_lean() -> str:
    """Return where `lean` is.

    :raises rlt.UsageError: when it is not on the path.
    """
    lean = shutil.which("lean")
    if lean is None:
        raise rlt.UsageError(
            "rows with lean_goal need `lean` on the path (https://lean-lang.org/install); "
            "install it, or choose another -o verifier"
        )
    return str(Path(lean).absolute())
