"""What the measurements share: rows, runs by the command line, and a table with its spread."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHARED = HERE.parent.parent / "shared" / "data"

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write(path: Path, rows: Sequence[Line]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def real_path(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        sys.exit(f"{path} is not there: the measurements read the real data from ../shared/data")
    return path


def real(name: str) -> list[Line]:
    return read(real_path(name))


def tool_calls(folder: Path) -> list[Line]:
    """Return the ToolAlpaca traces whose calls fit their tools' schemas; `rlt convert` sorts."""
    good = folder / "tools.jsonl"
    if not good.exists():
        source = real_path("toolalpaca.sdft.jsonl")
        rlt("convert", source, "--to", "sdft", "--output", good, right=(0, 1))
    return read(good)


def short_sums(length: int = 420) -> list[Line]:
    """Return GSM8K rows whose question and solution are short, as a small machine can afford."""
    rows = real("gsm8k.sdft.jsonl")
    return [row for row in rows if len(row["prompt"]) + len(row["completion"]) <= length]


def chats(count: int) -> list[Line]:
    """Return plain chats as sdft rows: what the model should not forget."""
    rows = []
    for row in real("conversations.messages.jsonl"):
        messages = row["messages"]
        if messages[-1]["role"] == "assistant":
            rows.append({"prompt": messages[:-1], "completion": messages[-1:]})
    return rows[:count]


def rlt(*arguments: object, right: Sequence[int] = (0,)) -> None:
    """Run the command line; end with its last line when its exit code is not a right one."""
    command = [sys.executable, "-c", "from rlt.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in right:
        sys.exit(f"{' '.join(command[3:])}: {(done.stderr.splitlines() or ['?'])[-1]}")


def train(folder: Path, name: str, *arguments: object) -> list[Line]:
    """Run `rlt run` and return its metrics lines; a run that is there already is not done again."""
    directory = folder / name
    if not (directory / "done").exists():
        shutil.rmtree(directory, ignore_errors=True)  # a run that was interrupted
        began = time.monotonic()
        rlt("run", "--engine", "local", "--out", f"{directory}/", *arguments)
        (directory / "done").write_text(f"{time.monotonic() - began:.0f} s\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return read(directory / "metrics.jsonl")


def evals(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.get("split") == "eval"]


def spread(values: Sequence[float]) -> str:
    """Return `mean ± standard deviation`, or the one value."""
    mean = statistics.fmean(values)
    return f"{mean:.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
