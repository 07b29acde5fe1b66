"""Answers, a line each, whether a completion's answer is the expected one. Run as a script."""

from __future__ import annotations

import json
import resource
import sys

MEMORY = 2 << 30


def main() -> None:
    """Read questions until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from math_verify import parse, verify  # noqa: PLC0415 - after the limit is set

    for line in sys.stdin:
        asked = json.loads(line)
        # bare text is taken for LaTeX only inside dollars
        expected = parse(f"${asked['expected']}$") or parse(asked["expected"])
        print(json.dumps(bool(verify(expected, parse(asked["completion"])))), flush=True)


if __name__ == "__main__":
    main()
