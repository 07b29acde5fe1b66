"""Does self-distillation learn the new and keep the old better than imitation? At our scale.

SmolLM2-135M on the embedded engine. New task: short GSM8K rows, by held-out loss and by exact
answers. Retained ability: the loss of plain chats that are never trained on. Methods: the model as
it is, SFT, SDFT by rewriting, SDFT by top-k. Two learning rates and three seeds; `--quick` one of
each. Runs that are done already are not done again, so it may be interrupted.

    python benchmarks/sdft_vs_sft.py [--quick] [--folder runs/sdft-vs-sft]

Writes `table.md` and `picture.svg` (new task against retention) into the folder.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

import lab

METHODS: dict[str, tuple[object, ...]] = {
    "sft": ("--plugin", "sft"),
    "sdft rewrite": ("--plugin", "sdft"),
    "sdft topk": ("--plugin", "sdft", "-o", "mode=topk", "--temperature", 1),
}
COLOURS = {"base": "#555555", "sft": "#c0392b", "sdft rewrite": "#2471a3", "sdft topk": "#1e8449"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate, one seed, fewer steps")
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    folder = chosen.folder or Path("runs/sdft-vs-sft" + ("-quick" if chosen.quick else ""))
    folder.mkdir(parents=True, exist_ok=True)
    steps, rates, seeds = (12, [5e-4], [0]) if chosen.quick else (24, [2e-4, 5e-4], [0, 1, 2])
    held = 12 if chosen.quick else 24
    sums = lab.short_sums()
    common = (
        "--data", lab.write(folder / "train.jsonl", sums[:-held]),
        "--eval-data", lab.write(folder / "held_out.jsonl", sums[-held:]),
        "--plugin", lab.HERE / "two_evals.py",
        "-o", f"retained={lab.write(folder / 'chats.jsonl', lab.chats(held))}", "-o", "answers=12",
        "--steps", steps, "--eval-every", steps, "--prompts-per-step", 4, "--max-tokens", 64,
        "--save-every", 0,
    )  # fmt: skip
    points: dict[str, list[lab.Line]] = {"base": []}
    for name, rate, seed in itertools.product(METHODS, rates, seeds):
        run = f"{name.replace(' ', '-')}-{rate:g}-{seed}"
        lines = lab.evals(lab.train(folder, run, *METHODS[name], *common, "--lr", rate,
                                    "--seed", seed))  # fmt: skip
        points.setdefault(f"{name}, lr {rate:g}", []).append(lines[-1])
        points["base"] = [lines[0]]
    text = lab.table(
        ["method", "new task: loss", "new task: exact", "retained: loss"],
        [[name, *(lab.spread([x[key] for x in found]) for key in ("loss", "exact", "retained"))]
         for name, found in points.items()],
    )  # fmt: skip
    (folder / "table.md").write_text(text + "\n")
    (folder / "picture.svg").write_text(picture(points))
    print(text)


def picture(points: dict[str, list[lab.Line]]) -> str:
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
