"""The original loop collapses on a small model; with the checks on it learns.

SmolLM2-135M on the embedded engine, GSM8K rows, 4 prompts a step, lr 5e-4, rank 32, 96 tokens,
temperature 0.5, held-out loss every 6 steps. The original loop's teacher is the student itself; the
default one is the model before step 0, and `teacher current` is the checks without that.

    python benchmarks/sdft_collapse.py [--steps 18] [--held-out 24] [--seed 0] [--folder DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lab

VARIANTS = {
    "original": ("-o", "teacher=current", "-o", "checks=off"),
    "teacher current": ("-o", "teacher=current"),
    "defaults": (),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--held-out", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--folder", type=Path, default=Path("runs/collapse"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    rows = lab.real("gsm8k.sdft.jsonl")
    held_out = lab.write(chosen.folder / "held_out.jsonl", rows[-chosen.held_out :])
    training = lab.write(chosen.folder / "train.jsonl", rows[: -chosen.held_out])
    found = {
        name: lab.train(
            chosen.folder, f"{name.replace(' ', '-')}-{chosen.seed}", "--plugin", "sdft",
            "--data", training, "--eval-data", held_out, "--steps", chosen.steps, "--eval-every", 6,
            "--prompts-per-step", 4, "--max-tokens", 96, "--seed", chosen.seed, *VARIANTS[name],
        )
        for name in chosen.variants
    }  # fmt: skip
    steps = [str(line["step"]) for line in lab.evals(next(iter(found.values())))]
    print(lab.table(["held-out loss after step", *steps, "accepted"], [
        [name, *(f"{line['loss']:.3f}" for line in lab.evals(lines)), accepted(lines)]
        for name, lines in found.items()
    ]))  # fmt: skip


def accepted(lines: list[lab.Line]) -> str:
    steps = [line for line in lines if "split" not in line]
    return f"{sum(x['n_accepted'] for x in steps)} of {sum(x['n_rewrites'] for x in steps)}"


if __name__ == "__main__":
    main()
