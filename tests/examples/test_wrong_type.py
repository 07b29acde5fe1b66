"""A file of another type than the plugin's is refused before anything starts, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Cli
from helpers import write_lines

ROWS = {
    "sdft": {"prompt": "a", "completion": "b"},
    "dpo": {"prompt": "a", "chosen": "b", "rejected": "c"},
    "environment": {"prompt": "a", "metadata": {"answer": "1"}},
}
TAKES = {"sdft": "sdft", "sft": "sdft", "dpo": "dpo", "grpo": "environment"}


@pytest.mark.parametrize("plugin", TAKES)
@pytest.mark.parametrize("found", ROWS)
def test_it_says_which_type_was_found_and_which_plugins_take_it(
    train: Cli, work: Path, plugin: str, found: str
) -> None:
    if TAKES[plugin] == found:
        return
    data = write_lines(work / "rows.jsonl", [ROWS[found]] * 2)
    result = train("--plugin", plugin, "--data", data, "--group-size", 2, "--out", "no")
    assert result.code == 2
    (line,) = result.err.splitlines()
    takers = [name for name, kind in TAKES.items() if kind == found]
    assert f"these look like {found} rows" in line
    assert f"{plugin} takes {TAKES[plugin]} rows" in line
    assert f"for {found} rows there is --plugin " in line
    assert all(name in line.rpartition("--plugin ")[2] for name in takers)
    assert not Path("runs/no").exists()
