"""The example packages, installed and run as a third party's would be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from helpers import read_lines, write_lines
from rlt import plugins

PACKAGE = ROOT / "docs/examples/rlt-reward-model"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--target", target, PACKAGE],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture
def on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()


@pytest.fixture
def pairs(work: Path) -> Path:
    rows = [
        {"prompt": f"Say {n}.", "chosen": f"It is {n}.", "rejected": "The dog the dog"}
        for n in range(4)
    ]
    return write_lines(work / "pairs.jsonl", rows)


@pytest.mark.usefixtures("on_path")
def test_a_judge_is_trained_and_then_scores_the_samples_of_grpo(
    train: Cli, pairs: Path, work: Path
) -> None:
    trained = train("--plugin", "judge", "--data", pairs, "--eval-data", pairs, "--steps", 30,
                    "--lr", 3e-3, "--rank", 16, "--eval-every", 0, "--out", "judge")  # fmt: skip
    assert trained.code == 0, trained.err
    evals = [x for x in read_lines(Path("runs/judge/metrics.jsonl")) if "split" in x]
    assert evals[-1]["accuracy"] == 1.0
    assert evals[-1]["loss"] < evals[0]["loss"] - 0.2

    sampler = read_lines(Path("runs/judge/checkpoints.jsonl"))[-1]["sampler"]
    rows = [{"prompt": f"Say {n}.", "metadata": {"reference": f"It is {n}."}} for n in range(4)]
    prompts = write_lines(work / "prompts.jsonl", rows)
    scored = train("--plugin", "grpo", "--plugin", "judge-score", "--data", prompts, "--steps", 2,
                   "--group-size", 3, "-o", f"judge={sampler}", "--out", "rl")  # fmt: skip
    assert scored.code == 0, scored.err
    rewards = [x["reward"] for x in read_lines(Path("runs/rl/samples.jsonl"))]
    assert len(set(rewards)) > 1
    assert all(0 <= reward <= 1 for reward in rewards)
    assert read_lines(Path("runs/rl/metrics.jsonl"))[0]["n_datums"] == 3


@pytest.mark.usefixtures("on_path")
def test_without_a_judge_it_says_what_it_needs(train: Cli, work: Path) -> None:
    rows = [{"prompt": "?", "metadata": {"reference": "!"}}]
    data = write_lines(work / "prompts.jsonl", rows)
    result = train("--plugin", "grpo", "--plugin", "judge-score", "--data", data, "--out", "no")
    assert result.code == 2
    assert "judge-score needs -o judge=tinker://" in result.err


@pytest.mark.usefixtures("on_path")
def test_a_row_without_a_reference_is_left_to_the_next_plugin(train: Cli, work: Path) -> None:
    data = write_lines(work / "p.jsonl", [{"prompt": "?", "metadata": {"answer": "12345"}}])
    result = train("--plugin", "grpo", "--plugin", "judge-score", "--data", data, "--steps", 1,
                   "--group-size", 2, "-o", "judge=tinker://none/needed", "--out", "a")  # fmt: skip
    assert result.code == 0, result.err
    assert read_lines(Path("runs/a/metrics.jsonl"))[0]["mean_reward"] == 0.0


def test_it_uses_public_names_only() -> None:
    import rlt
    import rlt.rendering

    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.parent.glob("*.py")]:
        for line in path.read_text().splitlines():
            if line.startswith("from rlt.rendering import"):
                names = line.partition(" import ")[2].split(", ")
                assert set(names) <= set(rlt.rendering.__all__), path
            else:
                assert not line.startswith(("from rlt import", "from rlt.", "import rlt.")), path
