"""Environment RL from the command line, on the embedded engine with a tiny model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, without_times, write_lines

SCORES = '''
"""Rewards that differ within a group: how many tokens of a kind a completion has."""
import rlt

@rlt.hookimpl
def score(row, completion):
    return float(sum(map(ord, completion)) % 7)
'''


@pytest.fixture
def questions(work: Path) -> Path:
    return write_lines(
        work / "questions.jsonl",
        [{"prompt": f"Say {n}.", "metadata": {"answer": str(n), "n": n}} for n in range(6)],
    )


@pytest.fixture
def scorer(work: Path) -> Path:
    path = work / "scorer.py"
    path.write_text(SCORES)
    return path


def steps(run: str) -> list[dict[str, Any]]:
    return [x for x in read_lines(Path(f"runs/{run}/metrics.jsonl")) if "split" not in x]


def test_a_step_has_a_mean_reward_and_a_datum_for_each_sample(
    train: Cli, questions: Path, scorer: Path
) -> None:
    result = train("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--steps", 2,
                   "--prompts-per-step", 2, "--group-size", 4, "--out", "g")  # fmt: skip
    assert result.code == 0, result.err
    for line in steps("g"):
        assert math.isfinite(line["loss"]) and line["mean_reward"] > 0
        assert (line["n_samples"], line["n_groups"], line["n_constant"]) == (8, 2, 0)
        assert line["n_datums"] == 8
    samples = read_lines(Path("runs/g/samples.jsonl"))
    assert len(samples) == 16
    assert {"reward", "actions", "tokens", "sampled"} <= samples[0].keys()


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo"])
def test_every_policy_loss_runs(train: Cli, questions: Path, scorer: Path, name: str) -> None:
    result = train("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--steps", 1,
                   "--group-size", 3, "-o", f"loss={name}", "--out", name)  # fmt: skip
    assert result.code == 0, result.err
    assert steps(name)[0]["grad_norm"] > 0


def test_all_samples_right_after_sampling_have_a_ratio_of_1(
    train: Cli, questions: Path, scorer: Path
) -> None:
    """So the importance-sampled loss is minus the mean of the advantages."""
    train("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--steps", 1,
          "--group-size", 4, "-o", "reduction=sequence-mean", "--out", "r")  # fmt: skip
    assert steps("r")[0]["loss"] == pytest.approx(0, abs=1e-4)


def test_groups_of_constant_reward_are_counted_and_left_out(
    train: Cli, questions: Path, work: Path
) -> None:
    (work / "some.py").write_text(
        SCORES.replace("return float(", "return 1.0 if row.data['metadata']['n'] % 2 else float(")
    )
    train("--plugin", "grpo", "--plugin", "some.py", "--data", questions, "--steps", 1,
          "--prompts-per-step", 6, "--group-size", 4, "--out", "c")  # fmt: skip
    (line,) = steps("c")
    assert (line["n_groups"], line["n_constant"], line["n_datums"]) == (6, 3, 12)
    dropped = [x["dropped"] for x in read_lines(Path("runs/c/rows.jsonl"))]
    assert dropped.count("constant-reward") == 3


def test_when_all_groups_are_constant_they_are_kept_and_nothing_is_learnt(
    train: Cli, questions: Path
) -> None:
    result = train("--plugin", "grpo", "--data", questions, "--steps", 1, "--group-size", 2,
                   "--out", "z")  # fmt: skip
    assert result.code == 0, result.err
    (line,) = steps("z")
    assert (line["mean_reward"], line["n_constant"], line["n_datums"]) == (0.0, 1, 2)
    assert line["loss"] == 0 == line["grad_norm"]


def test_the_kl_penalty_is_measured_against_the_weights_before_step_0(
    train: Cli, questions: Path, scorer: Path
) -> None:
    train("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--steps", 3,
          "--group-size", 4, "--lr", 1e-2, "-o", "kl=0.1", "--out", "k")  # fmt: skip
    strayed = [line["kl"] for line in steps("k")]
    assert strayed[0] == pytest.approx(0, abs=1e-4)
    assert abs(strayed[-1]) > 0.01


def test_the_same_seed_gives_the_same_bytes_and_a_resume_goes_on(
    train: Cli, questions: Path, scorer: Path
) -> None:
    common = ("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--group-size", 3)
    train(*common, "--steps", 4, "--out", "whole")
    train(*common, "--steps", 2, "--out", "parts")
    assert train("--out", "parts", "--resume", "auto", "--steps", 4).code == 0
    assert without_times(steps("whole")) == without_times(steps("parts"))
    samples = [Path(f"runs/{name}/samples.jsonl").read_bytes() for name in ("whole", "parts")]
    assert samples[0] == samples[1]


def test_held_out_rows_are_sampled_and_scored(train: Cli, questions: Path, scorer: Path) -> None:
    train("--plugin", "grpo", "--plugin", scorer, "--data", questions, "--eval-data", questions,
          "--steps", 1, "--group-size", 2, "--out", "e")  # fmt: skip
    evals = [x for x in read_lines(Path("runs/e/metrics.jsonl")) if "split" in x]
    assert [x["step"] for x in evals] == [0, 1]
    for line in evals:
        assert line["loss"] == -line["mean_reward"]
        assert line["n_samples"] == line["n_rows"] == 6


def test_metadata_reaches_score_as_the_file_has_it(train: Cli, work: Path) -> None:
    text = '{"prompt": "?", "metadata": {"z": 1.50, "a": [null, {"é": "\\u2028"}], "n": 1e400}}'
    text = text.replace("1e400", "12345678901234567890123")
    (work / "odd.jsonl").write_text(text + "\n", "utf-8")
    (work / "seen.py").write_text(
        "import json, rlt\n@rlt.hookimpl\ndef score(row, completion):\n"
        "    open('seen.json', 'w').write(json.dumps(row.data['metadata']))\n    return 1.0\n"
    )
    result = train("--plugin", "grpo", "--plugin", "seen.py", "--data", "odd.jsonl", "--steps", 1,
                   "--group-size", 2, "--out", "m")  # fmt: skip
    assert result.code == 0, result.err
    assert Path("seen.json").read_text() == json.dumps(json.loads(text)["metadata"])


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_verifier_that_raises_ends_the_run_and_names_the_row(
    train: Cli, questions: Path, work: Path, kind: str
) -> None:
    (work / "bad.py").write_text(
        f"import rlt\n@rlt.hookimpl\n{kind} score(row, completion):\n    raise KeyError('colour')\n"
    )
    result = train("--plugin", "grpo", "--plugin", "bad.py", "--data", questions, "--group-size",
                   2, "--out", "bad")  # fmt: skip
    assert result.code == 1
    last = result.err.splitlines()[-1]
    for word in ("questions.jsonl:", "plugin 'bad' raised KeyError in score", "bad.py:4",
                 "-o on_score_error=drop"):  # fmt: skip
        assert word in last
    assert "Traceback" not in result.err


def test_or_its_samples_are_dropped_and_never_count_as_0(
    train: Cli, questions: Path, work: Path
) -> None:
    (work / "bad.py").write_text(
        SCORES.replace(
            "    return", "    if len(completion) % 2: raise KeyError('odd')\n    return 5 +"
        )
    )
    result = train("--plugin", "grpo", "--plugin", "bad.py", "--data", questions, "--group-size",
                   6, "--steps", 2, "-o", "on_score_error=drop", "--out", "bad")  # fmt: skip
    assert result.code == 0, result.err
    assert sum(line["failed/score-error"] for line in steps("bad")) > 0
    for line in steps("bad"):
        assert line["mean_reward"] >= 5
        assert line["n_samples"] + line["failed/score-error"] == 6
    assert "sample dropped" in result.err


def test_a_rollout_that_never_returns_has_a_deadline(
    train: Cli, questions: Path, work: Path
) -> None:
    (work / "slow.py").write_text(
        "import asyncio, rlt\n@rlt.hookimpl\nasync def score(row, completion):\n"
        "    while True:\n"
        "        try: await asyncio.sleep(5)\n"
        "        except asyncio.CancelledError: await asyncio.sleep(1); raise\n"
    )
    result = train("--plugin", "grpo", "--plugin", "slow.py", "--data", questions, "--group-size",
                   2, "--steps", 1, "-o", "deadline=1", "--out", "slow")  # fmt: skip
    assert "nothing was trained" in result.err
    (line,) = steps("slow")
    assert line["failed/deadline"] == 2
    assert line["mean_reward"] is None and line["n_datums"] == 0
    assert read_lines(Path("runs/slow/rows.jsonl"))[0]["dropped"] == "deadline"


def test_a_plugin_that_declines_leaves_the_row_to_the_next(
    train: Cli, questions: Path, work: Path
) -> None:
    for kind in ("def", "async def"):
        (work / "shy.py").write_text(
            f"import rlt\n@rlt.hookimpl\n{kind} score(row, completion):\n    return None\n"
        )
        name = kind.split()[0]
        result = train("--plugin", "grpo", "--plugin", "shy.py", "--data", questions, "--steps", 1,
                       "--group-size", 2, "--out", name)  # fmt: skip
        assert result.code == 0, result.err
        assert steps(name)[0]["mean_reward"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--group-size", 1), "--group-size must be at least 2"),
        (("--temperature", 0), "--temperature 0 makes all samples of a group the same"),
        (("-o", "on_score_error=zero"), "on_score_error"),
    ],
)
def test_what_cannot_learn_is_refused_before_anything_starts(
    train: Cli, questions: Path, arguments: tuple[object, ...], words: str
) -> None:
    result = train("--plugin", "grpo", "--data", questions, *arguments, "--out", "no")
    assert result.code == 2
    assert words in result.err
    assert not Path("runs/no").exists()


def test_rows_that_nothing_can_score_are_refused_before_any_sampling(
    train: Cli, work: Path
) -> None:
    data = write_lines(work / "plain.jsonl", [{"prompt": "?", "metadata": {"colour": "red"}}])
    result = train("--plugin", "grpo", "--data", data, "--out", "no")
    assert result.code == 2
    assert "plain.jsonl:1: nothing can score this row" in result.err


def test_the_built_in_example_runs(train: Cli) -> None:
    assert train("--plugin", "grpo", "--steps", 1, "--group-size", 2, "--out", "x").code == 0
