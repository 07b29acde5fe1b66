"""Does self-distillation learn the new and keep the old better than imitation? At our scale.

SmolLM2-135M on the embedded engine. New task: tool calls (or, with `--task sums`, short GSM8K
rows), by held-out loss and by exact greedy answers. Retained ability: the loss of plain chats that
are never trained on. Methods: the model as it is, SFT, SDFT by rewriting, SDFT by top-k. Two
learning rates and three seeds; `--quick` does the first of each only. Runs that are done already
are not done again, so it may be interrupted; the table and the picture are of what is done so far.

    python benchmarks/sdft_vs_sft.py [--quick] [--task tools|sums] [--folder runs/sdft-vs-sft]

Writes `table.md` and `picture.svg` (new task against retention) into the folder.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import lab

METHODS: dict[str, tuple[object, ...]] = {
    "sft": ("--plugin", "sft"),
    "sdft rewrite": ("--plugin", "sdft"),
    "sdft topk": ("--plugin", "sdft", "-o", "mode=topk", "--temperature", 1),
}
COLOURS = {"base": "#555555", "sft": "#c0392b", "sdft rewrite": "#2471a3", "sdft topk": "#1e8449"}


HELD = 15
"""Rows held out of the new task, and greedy answers to them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate and one seed")
    parser.add_argument("--task", choices=("tools", "sums"), default="tools")
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    folder = chosen.folder or Path(f"runs/sdft-vs-sft-{chosen.task}")
    folder.mkdir(parents=True, exist_ok=True)
    rates, seeds = ([5e-4], [0]) if chosen.quick else ([5e-4, 2e-3], [0, 1, 2])
    common = arguments(chosen.task, folder)
    points: dict[str, list[lab.Line]] = {}
    for seed, rate, name in itertools.product(seeds, rates, METHODS):
        lines = lab.evals(lab.train(folder, f"{name.replace(' ', '-')}-{rate:g}-{seed}", *common,
                                    *METHODS[name], "--lr", rate, "--seed", seed))  # fmt: skip
        points["base"] = [lines[0]]
        points.setdefault(f"{name}, lr {rate:g}", []).append(lines[-1])
        (folder / "table.md").write_text(summary(points) + "\n")
        (folder / "picture.svg").write_text(picture(points))
    print(summary(points))


def arguments(task: str, folder: Path) -> tuple[object, ...]:
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
        "--steps", 12, "--eval-every", 12, "--prompts-per-step", 4, "--max-tokens", 80,
        "--save-every", 0,
    )  # fmt: skip


def summary(points: Mapping[str, Sequence[lab.Line]]) -> str:
    """Return a line for each method and rate: the mean of its runs and their spread."""
    keys = {"loss": "new task: loss", "exact": "exact answers", "named": "right function",
            "retained": "retained: loss"}  # fmt: skip
    return lab.table(
        ["method", "runs", *keys.values()],
        [[name, str(len(found)), *(lab.spread([x[key] for x in found]) for key in keys)]
         for name, found in points.items()],
    )  # fmt: skip


def picture(points: Mapping[str, Sequence[lab.Line]]) -> str:
    """Draw each run as a dot: to the left it learnt the new task, further down it kept the old."""
    every = [x for found in points.values() for x in found]
    across, down = (
        _scale([x["loss"] for x in every], 60, 560),
        _scale([x["retained"] for x in every], 360, 40),
    )
    marks = []
    for row, (name, found) in enumerate(points.items()):
        colour = COLOURS[name.partition(",")[0]]
        marks += [
            f'<circle cx="{across(x["loss"]):.0f}" cy="{down(x["retained"]):.0f}" r="6" '
            f'fill="{colour}"><title>{name}</title></circle>'
            for x in found
        ]
        marks.append(f'<text x="590" y="{60 + 20 * row}" fill="{colour}">{name}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 420" font-family="sans-serif" '
        'font-size="14"><rect width="800" height="420" fill="white"/>'
        '<path d="M60 40V360H560" fill="none" stroke="#999"/>'
        '<text x="200" y="395">loss of the new task (left is better)</text>'
        '<text transform="translate(30 330) rotate(-90)">loss of plain chats (low is better)</text>'
        + "".join(marks)
        + "</svg>\n"
    )


def _scale(values: Sequence[float], start: float, end: float):
    low, high = min(values), max(values)
    margin = (high - low) / 10 or 1
    low, high = low - margin, high + margin
    return lambda value: start + (value - low) / (high - low) * (end - start)


if __name__ == "__main__":
    main()
