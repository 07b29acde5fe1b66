"""Episodes of several turns: tokens in, tokens out, and whatever goes wrong in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers import read_lines, write_lines

COUNTING = '''
"""Three turns; the environment answers each with a tool's result. Earns 1 when seeds are even."""
import asyncio
import json
import rlt

LOG = []

class Counting:
    def __init__(self, row):
        self.turns, self.actions, self.row = 0, [], row

    async def reset(self, seed):
        self.seed = seed
        LOG.append("reset")
        await asyncio.sleep(0.2)

    async def observe(self):
        LOG.append("observe")
        if self.turns == 0:
            return self.row.data["prompt"]
        return [{"role": "tool", "content": f"result {self.turns}", "name": "count"}]

    async def act(self, action):
        self.turns += 1
        self.actions.append(action)

    async def done(self):
        return self.turns == self.row.data["metadata"]["turns"]

    async def reward(self):
        with open("log.json", "w") as file:
            json.dump(LOG, file)
        return float(self.seed % 2 + self.seed % 3)

@rlt.hookimpl
def on_start(run):
    """Let one token in six end a turn: a random model hardly ever says its own."""
    run.renderer.stop = list(range(3, 384, 6))

@rlt.hookimpl
def make_environment(row):
    return Counting(row)
'''


@pytest.fixture
def counting(work: Path) -> Path:
    path = work / "counting.py"
    path.write_text(COUNTING)
    return path


@pytest.fixture
def rows3(work: Path) -> Path:
    rows = [{"prompt": f"Count to {n}.", "metadata": {"turns": 3}} for n in range(4)]
    return write_lines(work / "count.jsonl", rows)


def samples(run: str) -> list[dict[str, Any]]:
    return read_lines(Path(f"runs/{run}/samples.jsonl"))


def run(train: Cli, plugin: Path, data: Path, *more: object, name: str = "r") -> Any:
    return train("--plugin", "grpo", "--plugin", plugin, "--data", data, "--steps", 1,
                 "--group-size", 4, "--max-tokens", 200, "--out", name, *more)  # fmt: skip


def turns(sample: dict[str, Any], tokenizer: Any) -> list[tuple[bool, str]]:
    """(whether it was sampled, text) of each stretch of a sample's tokens."""
    stretches: list[tuple[bool, list[int]]] = []
    for token, sampled in zip(sample["tokens"], sample["sampled"], strict=True):
        if not stretches or stretches[-1][0] != bool(sampled):
            stretches.append((bool(sampled), []))
        stretches[-1][1].append(token)
    return [(sampled, tokenizer.decode(tokens)) for sampled, tokens in stretches]


def test_an_episode_is_one_sequence_of_what_was_given_and_what_was_sampled(
    train: Cli, counting: Path, rows3: Path, tokenizer: Any
) -> None:
    result = run(train, counting, rows3, "--prompts-per-step", 4)
    assert result.code == 0, result.err
    whole = [s for s in samples("r") if len(s["actions"]) == 3]
    assert whole, "no sample ended its turns by itself"
    stretches = turns(whole[0], tokenizer)
    assert [sampled for sampled, _ in stretches] == [False, True] * 3
    assert stretches[0][1].endswith("<|im_end|>\n<|im_start|>assistant\n")
    for number, (_, given) in enumerate(stretches[2::2], 1):
        assert given == (
            f"\n<|im_start|>user\n<tool_response>\nresult {number}\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )
    for (_, said), action in zip(stretches[1::2], whole[0]["actions"], strict=True):
        assert said.startswith(action)


def test_a_turn_that_is_cut_ends_the_episode(train: Cli, counting: Path, rows3: Path) -> None:
    result = run(train, counting, rows3, "--max-tokens", 2)
    assert result.code == 0, result.err
    assert all(len(s["actions"]) == 1 for s in samples("r") if s["truncated"])
    assert any(s["truncated"] for s in samples("r"))


def test_turns_are_bounded(train: Cli, counting: Path, rows3: Path) -> None:
    result = run(train, counting, rows3, "-o", "max_turns=2")
    assert result.code == 0, result.err
    assert max(len(s["actions"]) for s in samples("r")) == 2


def test_all_episodes_go_on_together(train: Cli, counting: Path, rows3: Path) -> None:
    result = run(train, counting, rows3, "--prompts-per-step", 2, "-o", "max_turns=1")
    assert result.code == 0, result.err
    log = Path("log.json").read_text()
    assert log.startswith("[" + ", ".join(['"reset"'] * 8)), "one waited for another"


def test_the_same_seed_gives_the_same_episodes(train: Cli, counting: Path, rows3: Path) -> None:
    for name in ("one", "two"):
        run(train, counting, rows3, name=name)
    assert samples("one") == samples("two")


def test_without_a_reward_of_its_own_the_last_action_is_scored(
    train: Cli, work: Path, rows3: Path
) -> None:
    (work / "both.py").write_text(
        COUNTING.replace("return float(self.seed % 2 + self.seed % 3)", "return None")
        + "\n@rlt.hookimpl\ndef score(completion):\n    return float(len(completion))\n"
    )
    result = run(train, work / "both.py", rows3)
    assert result.code == 0, result.err
    assert all(s["reward"] == len(s["actions"][-1]) for s in samples("r"))


@pytest.mark.parametrize("method", ["reset", "observe", "act", "done", "reward"])
def test_an_environment_that_raises_is_named_with_its_row(
    train: Cli, work: Path, rows3: Path, method: str
) -> None:
    broken = COUNTING.replace("self.turns == self.row.data['metadata']['turns']", "True")
    lines = broken.splitlines()
    at = next(i for i, line in enumerate(lines) if f"async def {method}(" in line)
    lines.insert(at + 1, "        raise KeyError('colour')")
    (work / "broken.py").write_text("\n".join(lines))
    result = run(train, work / "broken.py", rows3, "-o", "max_turns=1", name=f"fail-{method}")
    assert result.code == 1
    assert f"{method} raised KeyError: 'colour'" in result.err.splitlines()[-1]
    assert "count.jsonl:" in result.err.splitlines()[-1]
    dropped = run(train, work / "broken.py", rows3, "-o", "max_turns=1", "-o",
                  "on_score_error=drop", name=f"drop-{method}")  # fmt: skip
    assert "nothing was trained" in dropped.err
    assert read_lines(Path(f"runs/drop-{method}/metrics.jsonl"))[0]["failed/score-error"] == 4


def test_an_episode_that_never_ends_has_a_deadline(train: Cli, work: Path, rows3: Path) -> None:
    (work / "stuck.py").write_text(COUNTING.replace("asyncio.sleep(0.2)", "asyncio.sleep(60)"))
    result = run(train, work / "stuck.py", rows3, "-o", "deadline=1")
    assert "nothing was trained" in result.err
    assert read_lines(Path("runs/r/metrics.jsonl"))[0]["failed/deadline"] == 4


def test_a_first_prompt_that_does_not_fit_drops_the_row(
    train: Cli, counting: Path, work: Path
) -> None:
    rows = [{"prompt": "count " * 400, "metadata": {"turns": 1}}]
    result = run(train, counting, write_lines(work / "long.jsonl", rows))
    assert "nothing was trained" in result.err
    assert read_lines(Path("runs/r/rows.jsonl"))[0]["dropped"] == "too-long"
