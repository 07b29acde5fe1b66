"""It learns: a tiny random model comes to say the digit that it is shown."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from conftest import Cli
from helpers import read_lines, write_lines

SCORE = '''
import rlt

@rlt.hookimpl
def score(row, completion):
    """Return the share of the completion that is the digit."""
    return completion.count(row.data["metadata"]["digit"]) / max(1, len(completion))
'''


def test_the_model_learns_to_say_the_digit_that_the_prompt_names(train: Cli, work: Path) -> None:
    (work / "digit.py").write_text(SCORE)
    data = write_lines(
        work / "digits.jsonl",
        [{"prompt": str(d) * 3, "metadata": {"digit": str(d)}} for d in (3, 7)],
    )
    result = train("--plugin", "grpo", "--plugin", "digit.py", "--data", data, "--steps", 80,
                   "--prompts-per-step", 2, "--group-size", 32, "--max-tokens", 4, "--rank", 32,
                   "--lr", 3e-3, "-o", "kl=0.01", "--save-every", 0, "--out", "toy")  # fmt: skip
    assert result.code == 0, result.err
    rewards = [line["mean_reward"] for line in read_lines(Path("runs/toy/metrics.jsonl"))]
    assert mean(rewards[:10]) < 0.05
    # always the same digit would earn one half
    assert mean(rewards[-10:]) > 0.6, [round(reward, 2) for reward in rewards]
