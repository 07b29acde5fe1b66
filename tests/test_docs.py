"""What the README and the docs show is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from conftest import ROOT, Cli
from helpers import read_lines

README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return str(next(text for kind, text in blocks if kind == language and containing in text))


def test_the_readmes_rows_are_valid_and_its_plugin_learns_them(train: Cli, cli: Cli) -> None:
    Path("traces.jsonl").write_text(block("json", '"prompt"'))
    assert cli("check", "traces.jsonl").code == 0
    Path("mine.py").write_text(block("python", "import rlt"))
    result = train("--plugin", "./mine.py", "--data", "traces.jsonl", "--steps", 4, "--out", "mine")
    assert result.code == 0, result.err
    lines = read_lines(Path("runs/mine/metrics.jsonl"))
    assert lines[2]["loss"] < lines[0]["loss"] or lines[3]["loss"] < lines[1]["loss"]


def test_the_readmes_example_rows_are_valid(cli: Cli) -> None:
    result = cli("check", ROOT / "examples/tool_traces.jsonl", "--format", "json")
    (file,) = json.loads(result.out)["files"]
    assert (file["type"], file["rows"], file["errors"]) == ("sdft", 24, 0)


def test_every_path_that_the_readme_names_is_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    folder = ROOT
    tree = block("", "core/rlt/            the engine")
    for line in tree.splitlines():
        name = line.split()[0]
        folder = ROOT if not line.startswith(" ") else folder
        path = folder / name
        assert path.exists(), path
        if not line.startswith(" "):
            folder = path


def test_the_flags_that_the_docs_name_exist(cli: Cli) -> None:
    known = set(re.findall(r"--[a-z][a-z0-9-]+", cli("run", "--help").out))
    for command in ("check", "checkpoints", "convert", "serve", "verify", "plugins"):
        known |= set(re.findall(r"--[a-z][a-z0-9-]+", cli(command, "--help").out))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"`benchmarks/[^`]*`", "", page.read_text())  # those have flags of their own
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
        assert named <= known | {"--help", "--version", "--extra-index-url"}, (page, named - known)
