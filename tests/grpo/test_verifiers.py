"""Verifiers: expected answers, test files, Lean goals."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, write_lines
from rlt_grpo.verifiers import answer, lean
from rlt_grpo.verifiers.mathematics import Mathematics

LEAN = """#!/bin/sh
# A stand-in: it accepts a proof by `rfl`, and says so when there is a sorry.
grep -q sorry "$1" && echo "warning: declaration uses 'sorry'"
test -n "$(env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^LEAN_PATH=)" && exit 3
grep -q 'rfl' "$1"
"""


class FakeRun:
    def __init__(self, **options: object) -> None:
        self.options = {"test_seconds": 10.0, "test_memory_mb": 1024, **options}
        self._states: dict[Any, Any] = {}

    def state(self, kind: Any) -> Any:
        return self._states.setdefault(kind, kind())


def verified(expected: str, completion: str) -> float:
    run: Any = FakeRun()
    return asyncio.run(answer.verify_answer(run, {"answer": expected}, completion))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `math-verify` were not installed."""
    monkeypatch.setattr(answer, "find_spec", lambda name: None)


# ---- expected answers


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("expected", "completion"),
    [
        ("18", "She makes 9 * 2 = $18 every day.\n#### 18"),
        ("18", "So she makes $18."),
        ("18", "The answer is 18 dollars."),
        ("18", "Final answer: **18**"),
        ("1,000", "It takes 1000 steps"),
        ("70000", "a profit of $70,000."),
        ("0.5", "The answer is .50"),
        ("-3", "x = -3"),
        ("\\frac{1}{2}", "so we get $\\boxed{\\frac{1}{2}}$."),
        ("Paris", "I think so.\nparis."),
        ("x + 1", "The answer is x +  1."),
    ],
)
def test_an_answer_is_found_where_it_is_stated(expected: str, completion: str) -> None:
    assert verified(expected, completion) == 1.0


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("expected", "completion"),
    [
        ("18", "First 18, then 19"),
        ("18", "18 is on the way. The answer is 17."),
        ("18", ""),
        ("3", "\\boxed{13}"),
        ("Paris", "Paris is nice.\nBut I say London."),
        ("1/2", "0.5"),
    ],
)
def test_and_nowhere_else(expected: str, completion: str) -> None:
    assert verified(expected, completion) == 0.0


@pytest.mark.parametrize(
    ("expected", "completion", "reward"),
    [
        ("1/2", "The answer is $0.5$", 1.0),
        ("\\frac{1}{2}", "so \\boxed{0.5}", 1.0),
        ("\\sqrt{8}", "so $\\boxed{2\\sqrt{2}}$", 1.0),
        ("\\{1, 2\\}", "$\\boxed{\\{2, 1\\}}$", 1.0),
        ("2", "so \\boxed{3}", 0.0),
    ],
)
def test_mathematics_is_compared_as_mathematics(
    expected: str, completion: str, reward: float
) -> None:
    pytest.importorskip("math_verify")
    assert verified(expected, completion) == reward


def test_what_cannot_be_compared_in_time_is_an_error_and_the_next_question_is_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys, time\nfor line in sys.stdin:\n"
        "    if 'loop' in line: time.sleep(60)\n    print('true', flush=True)\n"
    )
    from rlt_grpo.verifiers import mathematics

    monkeypatch.setattr(mathematics, "_WORKER", worker)
    monkeypatch.setattr(mathematics, "_SECONDS", 1.0)

    async def ask() -> None:
        compare = Mathematics()
        assert await compare.equal("1", "1")
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="no answer within 1 s"):
            await compare.equal("1", "loop")
        assert time.monotonic() - began < 30
        assert await compare.equal("1", "1")
        compare._worker.kill()  # type: ignore[union-attr]

    asyncio.run(ask())


def test_the_real_questions_are_scored(train: Cli, work: Path, repository: Path) -> None:
    shared = repository / "../shared/data/gsm8k.environment.jsonl"
    assert shared.exists(), f"{shared} is missing: the test data belongs beside the repository"
    rows = [row for row in read_lines(shared) if len(row["prompt"]) < 150][:8]
    data = write_lines(work / "gsm8k.jsonl", rows)
    result = train("--plugin", "grpo", "--data", data, "--steps", 1, "--prompts-per-step", 4,
                   "--group-size", 2, "--out", "gsm")  # fmt: skip
    assert result.code == 0, result.err
    (line,) = read_lines(Path("runs/gsm/metrics.jsonl"))
    assert line["n_samples"] == 8


# ---- test files


@pytest.fixture
def coding(work: Path) -> Path:
    rows = [{"prompt": "Write f.", "metadata": {"tests": "assert f() == 1"}}]
    return write_lines(work / "coding.jsonl", rows)


def test_code_is_not_run_unless_that_is_allowed(train: Cli, coding: Path) -> None:
    result = train("--plugin", "grpo", "--data", coding, "--group-size", 2, "--out", "no")
    assert result.code == 2
    assert "coding.jsonl:1" in result.err
    assert "-o allow_code_execution=true" in result.err
    assert not list(Path("runs/no").glob("samples.jsonl"))


def test_allowed_it_is_run_and_what_a_random_model_writes_fails(train: Cli, coding: Path) -> None:
    result = train("--plugin", "grpo", "--data", coding, "--group-size", 2, "--steps", 1,
                   "-o", "allow_code_execution=true", "--out", "yes")  # fmt: skip
    assert result.code == 0, result.err
    assert json.loads(Path("runs/yes/metrics.jsonl").read_text())["mean_reward"] == 0.0
    assert "code of the model" in result.err


# ---- Lean


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's, with a `lean` in it."""
    with tempfile.TemporaryDirectory(prefix="rlt-lean-") as root:
        folder = Path(root) / "bin"
        folder.mkdir()
        folder.parent.chmod(0o755)
        (folder / "lean").write_text(LEAN)
        (folder / "lean").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
        yield folder


def proved(proof: str) -> float:
    run: Any = FakeRun()
    goal = {"lean_goal": "theorem two : 1 + 1 = 2 := by", "lean_header": "-- none"}
    return asyncio.run(lean.verify_lean(run, goal, proof))


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("proof", "reward"),
    [
        ("  rfl", 1.0),
        ("Here it is:\n```lean\n  rfl\n```", 1.0),
        ("  simp", 0.0),
        ("  sorry -- rfl", 0.0),
        ("  rfl\naxiom cheat : False", 0.0),
        ("  rfl\n#eval IO.println 1", 0.0),
        ("  native_decide -- rfl", 0.0),
    ],
)
def test_a_proof_is_one_when_lean_accepts_it_and_it_hides_nothing(
    proof: str, reward: float
) -> None:
    assert proved(proof) == reward


def test_a_lean_that_cannot_be_run_is_an_error_and_not_a_0(stand_in: Path) -> None:
    (stand_in / "lean").write_text("#!/no/such/shell\n")
    with pytest.raises(RuntimeError, match="the sandbox did not start: cannot start"):
        proved("  rfl")


def test_without_lean_a_run_with_goals_says_what_to_install(
    train: Cli, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(work))
    data = write_lines(work / "g.jsonl", [{"prompt": "?", "metadata": {"lean_goal": "theorem"}}])
    result = train("--plugin", "grpo", "--data", data, "-o", "allow_code_execution=true",
                   "--out", "no")  # fmt: skip
    assert result.code == 2
    assert "rows with lean_goal need `lean` on the path" in result.err
