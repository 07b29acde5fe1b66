"""Does self-distillation learn the new and keep the old better than imitation? At our scale.

SmolLM2-135M on the embedded engine. New task: tool calls (or, with `--task sums`, short GSM8K
rows), by held-out loss and by exact greedy answers. Retained ability: the loss of plain chats that
are never trained on. Methods: the model as it is, SFT, SDFT by rewriting, SDFT by top-k. Two
learning rates and three seeds; `--quick` does the first of each, and 8 steps for 12. Runs that are
done already are not done again, so it may be interrupted; the table and the picture are of what is
done so far.

    python benchmarks/sdft_vs_sft.py [--quick | --seeds N] [--task tools|sums] [--folder DIR]

Writes `table.md` and `picture.svg` (new task against retention) into the folder. The picture needs
matplotlib, which `pip install -e '.[local,bench]'` brings.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import lab

METHODS: dict[str, tuple[object, ...]] = {
    "sft": ("--plugin", "sft"),
    "sdft rewrite": ("--plugin", "sdft"),
    "sdft topk": ("--plugin", "sdft", "-o", "mode=topk", "--temperature", 1),
}
RATES = (5e-4, 2e-3)
MARKS = {0.0: "*", **dict(zip(RATES, "o^", strict=True))}
COLOURS = {"base": "#555555", "sft": "#c0392b", "sdft rewrite": "#2471a3", "sdft topk": "#1e8449"}
HELD = 15
"""Rows held out of the new task, and greedy answers to them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate, one seed, fewer steps")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--task", choices=("tools", "sums"), default="tools")
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    if not find_spec("matplotlib"):
        sys.exit("the picture needs matplotlib: pip install -e '.[local,bench]'")
    folder = chosen.folder or Path(f"runs/sdft-vs-sft-{chosen.task}" + "-quick" * chosen.quick)
    folder.mkdir(parents=True, exist_ok=True)
    rates, seeds = (RATES[:1], [0]) if chosen.quick else (RATES, range(chosen.seeds))
    common = arguments(chosen.task, folder, 8 if chosen.quick else 12)
    points: dict[str, list[lab.Line]] = {}
    for seed, rate, name in itertools.product(seeds, rates, METHODS):
        lines = lab.evals(lab.train(folder, f"{name.replace(' ', '-')}-{rate:g}-{seed}", *common,
                                    *METHODS[name], "--lr", rate, "--seed", seed))  # fmt: skip
        points["base"] = [lines[0]]
        points.setdefault(f"{name}, lr {rate:g}", []).append(lines[-1])
        (folder / "table.md").write_text(summary(points) + "\n")
        picture(points, folder / "picture.svg")
    print(summary(points))


def arguments(task: str, folder: Path, steps: int) -> tuple[object, ...]:
    """Write the rows of a task, and return what all its runs have in common."""
    rows = lab.tool_calls(folder) if task == "tools" else lab.short_sums()
    every = len(rows) // HELD
    held_out = rows[::every][:HELD]
    training = [row for row in rows if row not in held_out]
    return (
        "--data", lab.write(folder / "train.jsonl", training),
        "--eval-data", lab.write(folder / "held_out.jsonl", held_out),
        "--plugin", lab.HERE / "two_evals.py",
        "-o", f"retained={lab.write(folder / 'chats.jsonl', lab.chats(HELD))}",
        "-o", f"answers={HELD}", "-o", f"base={folder / 'base.json'}",
        "--steps", steps, "--eval-every", steps, "--prompts-per-step", 4, "--max-tokens", 80,
        "--save-every", 0,
    )  # fmt: skip


def summary(points: Mapping[str, Sequence[lab.Line]]) -> str:
    """Return a line for each method and rate: the mean of its runs and their spread."""
    known = {"loss": "new task: loss", "exact": "exact answers", "named": "right function",
             "retained": "retained: loss"}  # fmt: skip
    keys = {key: title for key, title in known.items() if key in points["base"][0]}
    return lab.table(
        ["method", "runs", *keys.values()],
        [[name, str(len(found)), *(lab.spread([x[key] for x in found]) for key in keys)]
         for name, found in points.items()],
    )  # fmt: skip


def picture(points: Mapping[str, Sequence[lab.Line]], path: Path) -> None:
    """Draw each run as a mark: to the left it learnt the new task, further down it kept the old."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update({"svg.hashsalt": "rlt", "svg.fonttype": "none"})  # same numbers, same file
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, found in points.items():
        method, _, rate = name.partition(", lr ")
        axes.scatter(
            [x["loss"] for x in found], [x["retained"] for x in found], label=name, s=60,
            color=COLOURS[method], marker=MARKS[float(rate or 0)], alpha=0.8,
        )  # fmt: skip
    axes.set_xlabel("loss of the new task (left: learnt better)")
    axes.set_ylabel("loss of plain chats (low: kept better)")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
