"""Runs `tests.py` against `solution.py`, inside the sandbox. A script, copied there.

It is told two words: the first it says when it begins, the second when everything has passed.
"""

from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path
from typing import Any


def main() -> None:
    """Run every kind of test that the file holds."""
    began, passed = sys.stdin.readline(), sys.stdin.readline()
    os.write(2, began.encode())  # standard error: what the solution prints cannot push it out
    source = Path("tests.py").read_text("utf-8")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as import statements want it
    namespace: dict[str, Any] = {"__name__": "tests"}
    exec("from solution import *", namespace)  # noqa: S102 - that is the purpose
    exec(compile(source, "tests.py", "exec"), namespace)  # noqa: S102
    _run(namespace)
    os.write(1, b"\n" + passed.encode())


def _run(namespace: dict[str, Any]) -> None:
    cases = unittest.TestSuite()
    for name, value in list(namespace.items()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            cases.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(value))
        elif name.startswith("test") and callable(value):
            value()
    result = unittest.TestResult()
    cases.run(result)
    if not result.wasSuccessful():
        raise AssertionError(f"{len(result.failures)} failures, {len(result.errors)} errors")


if __name__ == "__main__":
    main()
