"""How fast `rlt check` and the reader of `rlt run` are, against the obvious loop, in one run.

    python benchmarks/check_speed.py [ROWS]

Each measurement is a process of its own, so its peak memory is its own too. What counts is the
ratios, of processor seconds, so that a busy machine does not decide them. The obvious loop is timed
on fewer rows and scaled.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = 100_000
"""Rows that the obvious loop reads; it would take minutes otherwise."""


def write_rows(path: Path, count: int) -> None:
    """Write distinct sdft rows of about 250 bytes."""
    with path.open("w") as out:
        for i in range(count):
            prompt = (
                f"Question {i}: a farmer has {i % 97} sheep and buys {i % 13} more. How many now?"
            )
            answer = f"{i % 97} + {i % 13} = {i % 97 + i % 13}, so the farmer has them all.\n" * 2
            row = {"prompt": prompt, "completion": answer + f"#### {i % 97 + i % 13}"}
            out.write(json.dumps(row) + "\n")


def loop(path: str) -> int:
    """Do the obvious: json.loads and jsonschema, row by row."""
    import jsonschema

    import rlt_schemas

    validator = jsonschema.Draft202012Validator(rlt_schemas.load("sdft"))
    rows = 0
    with Path(path).open("rb") as lines:
        for line in lines:
            for error in validator.iter_errors(json.loads(line)):
                print(error.message)
            rows += 1
            if rows == LOOP:
                break
    return rows


def read(path: str) -> int:
    """Read the file once, parsing nothing."""
    with Path(path).open("rb") as lines:
        return sum(1 for _ in lines)


def check(path: str) -> int:
    """Run the command line."""
    from rlt.cli import main

    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        main(["check", path])
    return 0


def run(path: str) -> int:
    """Open a file as `rlt run` does, up to the first row of the first step."""
    from rlt.dataset import Order, open_rows
    from rlt.plugins import dataset_types

    rows = open_rows(path, dataset_types()["sdft"])
    assert rows[Order(len(rows), 0).index(0)].data
    return len(rows)


def measured(what: str, path: Path) -> tuple[float, float, int]:
    """Return seconds, peak memory in MB and rows of one measurement."""
    command = [sys.executable, __file__, what, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak, rows = done.stdout.strip().splitlines()[-1].split()
    return float(seconds), float(peak), int(rows)


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.jsonl"), Path(folder, "large.jsonl")
        write_rows(small, rows // 10)
        write_rows(large, rows)
        print(f"{rows:,} sdft rows, {large.stat().st_size >> 20} MiB")
        seconds, _, count = measured("loop", large)
        base = count / seconds
        print(f"json.loads + jsonschema     {base:>10,.0f} rows/s")
        seconds, peak, _ = measured("check", large)
        _, small_peak, _ = measured("check", small)
        print(f"rlt check                   {rows / seconds:>10,.0f} rows/s", end="")
        print(f"  {rows / seconds / base:.1f} times")
        grown = (peak - small_peak) * 1e6 / (rows - rows // 10)
        print(f"  peak memory {small_peak:.0f} MB at {rows // 10:,} rows,", end=" ")
        print(f"{peak:.0f} MB at {rows:,}: {grown:.1f} bytes a row")
        reading, _, _ = measured("read", large)
        seconds, peak, _ = measured("run", large)
        print(f"reading the file once       {reading:>10.2f} s")
        print(f"rlt run's first row after   {seconds:>10.2f} s  {seconds - reading:+.2f} s", end="")
        print(f", peak memory {peak:.0f} MB")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        begun = time.process_time()
        total = {"loop": loop, "check": check, "read": read, "run": run}[sys.argv[1]](sys.argv[2])
        took = time.process_time() - begun
        print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, total)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
