"""Plugins come in by one door, and a broken one takes nothing else down."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import rlt
import rlt.rendering
from conftest import ROOT, Cli
from helpers import read_lines
from rlt import hookspecs, plugins
from rlt.errors import UsageError

PLAIN_SFT = ROOT / "tests/plugins/rlt-plain-sft"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the external package, as a user would."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--target", target, PLAIN_SFT],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture
def on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch):
    """Pretend that these entry points are installed beside ours."""
    real = plugins.entry_points

    def pretend(*more: EntryPoint) -> None:
        monkeypatch.setattr(plugins, "entry_points", lambda group: [*real(group=group), *more])
        plugins.installed.cache_clear()

    yield pretend
    plugins.installed.cache_clear()


def entry(name: str, module: str) -> EntryPoint:
    return EntryPoint(name, module, "rlt")


def written(work: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (work / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(work))
    return name


@pytest.mark.usefixtures("on_path")
def test_an_installed_package_runs_by_name_with_its_own_defaults(train: Cli, rows: Path) -> None:
    result = train("--plugin", "plain-sft", "--data", rows, "--steps", 3, "--out", "sft")
    assert result.code == 0, result.err
    lines = read_lines(Path("runs/sft/metrics.jsonl"))
    assert [line["n_datums"] for line in lines] == [2, 2, 2]
    assert lines[-1]["loss"] < lines[0]["loss"]
    config = json.loads(Path("runs/sft/config.json").read_text())["config"]
    assert (config["lr"], config["options"]) == (1e-3, {"reduction": "sum"})


@pytest.mark.usefixtures("on_path")
def test_an_installed_package_is_listed_with_its_distribution(cli: Cli) -> None:
    assert "rlt-plain-sft 0.0.1" in cli("plugins").out
    shown = cli("plugins", "show", "plain-sft").out
    assert "make_datums" in shown
    assert "-o reduction=[sum]|token-mean|sequence-mean" in shown


def test_one_file_is_a_plugin(train: Cli, rows: Path) -> None:
    result = train("--plugin", PLAIN_SFT / "rlt_plain_sft.py", "--data", rows, "--steps", 1,
                   "--out", "file")  # fmt: skip
    assert result.code == 0, result.err
    assert len(read_lines(Path("runs/file/metrics.jsonl"))) == 1


def test_one_that_cannot_be_imported_is_listed_and_only_selecting_it_fails(
    cli: Cli, entries, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries(entry("sick", written(work, "sick", "import no_such_library", monkeypatch)))
    listed = cli("plugins")
    assert listed.code == 0
    assert "BROKEN: ModuleNotFoundError: No module named 'no_such_library'" in listed.out
    assert cli("--help").code == 0
    result = cli("run", "--plugin", "sick")
    assert result.code == 2
    assert "plugin 'sick'" in result.err
    assert "no_such_library" in result.err


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("x = 1", "implements no hook"),
        ("import rlt\n@rlt.hookimpl\ndef make_datum(rows): ...", "did you mean the hook 'make_d"),
        ("import rlt\n@rlt.hookimpl\ndef on_step(run, metrics): ...", "metrics"),
    ],
)
def test_what_does_not_fit_is_broken_and_says_why(
    cli: Cli, work: Path, code: str, failure: str
) -> None:
    (work / "odd.py").write_text(code)
    result = cli("run", "--plugin", "odd.py")
    assert result.code == 2
    assert failure in result.err
    assert len(result.err.splitlines()) == 1


def test_two_distributions_with_one_name_are_both_named(entries) -> None:
    entries(EntryPoint("sdft", "elsewhere", "rlt"))
    found = plugins.installed()["sdft"]
    assert "registered by" in found.failure
    assert "rlt 0.1.0" in found.failure
    with pytest.raises(UsageError, match="uninstall one of them"):
        plugins.find("sdft")


def test_one_distribution_seen_twice_is_one_plugin(entries) -> None:
    (ours,) = (e for e in plugins.entry_points(group="rlt") if e.name == "sdft")
    entries(ours)
    assert plugins.installed()["sdft"].failure == ""


@pytest.mark.parametrize(
    ("body", "hook"),
    [
        ("def make_datums(rows):\n    raise KeyError('colour')", "make_datums"),
        ("async def make_datums(rows):\n    raise KeyError('colour')", "make_datums"),
    ],
)
def test_what_a_plugin_raises_is_named_with_plugin_hook_step_and_line(
    train: Cli, rows: Path, body: str, hook: str
) -> None:
    Path("bad.py").write_text(
        f"import rlt\nPLUGIN = rlt.PluginInfo(dataset_type='sdft')\n@rlt.hookimpl\n{body}\n"
    )
    result = train("--plugin", "bad.py", "--data", rows, "--out", "bad")
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert f"plugin 'bad' raised KeyError in {hook} at step 0 (" in last
    assert "bad.py:5): 'colour'" in last
    assert "Traceback" not in result.err


def test_a_plugin_may_stop_a_run_which_then_saves(train: Cli, rows: Path) -> None:
    Path("stop.py").write_text(
        "import rlt\n@rlt.hookimpl\ndef on_step(run, record):\n"
        "    if record.step == 1: run.stop('enough')\n"
    )
    result = train("--plugin", "sdft", "--plugin", "stop.py", "--data", rows, "--out", "s")
    assert result.code == 0
    assert "stopped     enough" in result.out
    assert [x["step"] for x in read_lines(Path("runs/s/checkpoints.jsonl"))] == [2]


def test_a_plugin_must_account_for_every_row(train: Cli, rows: Path) -> None:
    Path("lossy.py").write_text(
        "import rlt\nPLUGIN = rlt.PluginInfo(dataset_type='sdft')\n@rlt.hookimpl\n"
        "def make_datums(rows):\n    return rlt.Batch([], [])\n"
    )
    result = train("--plugin", "lossy.py", "--data", rows, "--out", "l")
    assert result.code == 1
    assert "accounted for 0 of 1 rows" in result.err


@pytest.mark.parametrize("folder", ["plugins/rlt_sdft", "plugins/rlt_sft", "plugins/rlt_dpo",
                                    "plugins/rlt_grpo", "core/rlt/defaults"])  # fmt: skip
def test_our_own_plugins_use_public_names_only(folder: str) -> None:
    public = {f"rlt.{n}" for n in rlt.__all__} | {
        f"rlt.rendering.{n}" for n in rlt.rendering.__all__
    }
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names if alias.name.startswith("rlt.")}
                assert names <= {"rlt.rendering"}, file
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rlt":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert names <= public | {"rlt.rendering"}, file
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "rlt" or f"rlt.{node.attr}" in public, file


def test_every_plugin_folder_is_packaged_and_registered() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    registered = project["project"]["entry-points"]["rlt"].values()
    for folder in (ROOT / "plugins").iterdir():
        if folder.name.startswith("rlt_"):
            assert f"plugins/{folder.name}" in packages
            assert folder.name in registered


def test_every_hook_is_used_by_a_plugin_in_the_tree_or_documented_as_waiting() -> None:
    text = (ROOT / "docs/reference/hooks.md").read_text()
    for hook in hookspecs.HOOKS:
        arguments = ", ".join(getattr(hookspecs, hook).__code__.co_varnames)
        assert f"### `{hook}({arguments})`" in text


def test_python_starts_the_command_without_the_heavy_libraries(work: Path) -> None:
    code = (
        "import sys\nfrom rlt.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "heavy = {'tinker', 'torch', 'transformers'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    (work / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    for arguments in (["--help"], ["plugins"], ["check", "a.jsonl"], ["run", "--help"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def compute_loss(): return 'ppo'", "compute_loss returned str"),
        ("def make_datums(rows): return []", "make_datums returned list"),
        (
            "def make_datums(rows): return rlt.Batch([], [rlt.RowOutcome(r, 0) for r in rows])",
            "without a reason",
        ),
        (
            "def make_datums(rows): return rlt.Batch([], [rlt.RowOutcome(r, 2) for r in rows])",
            "returned 0 datums at step 0, but its RowOutcomes speak of 2",
        ),
        (
            "def compute_loss():\n    return rlt.Loss(read=lambda outputs, datums: 1 / 0)",
            "plugin 'odd' raised ZeroDivisionError in compute_loss",
        ),
        (
            "def compute_loss():\n    return rlt.Loss(custom=lambda data, logprobs: 1 / 0)",
            "plugin 'odd' raised ZeroDivisionError in compute_loss",
        ),
        (
            "def compute_loss():\n    return rlt.Loss(read=lambda outputs, datums: None)",
            "Loss.read returned None as the loss of step 0, not a number",
        ),
        (
            "def compute_loss():\n    return rlt.Loss(read=lambda outputs, datums: {'a': 1.0})",
            "Loss.read returned None as the loss of step 0, not a number",
        ),
        (
            "def compute_loss():\n"
            "    return rlt.Loss(read=lambda out, _: out[0]['logprobs'].to_numpy())",
            "as the loss of step 0, not a number",
        ),
        ("def load_rows(): return []", "loaded no train rows"),
    ],
)
def test_what_a_hook_returns_is_checked_where_it_returns(
    train: Cli, rows: Path, code: str, message: str
) -> None:
    Path("odd.py").write_text(
        f"import rlt\nPLUGIN = rlt.PluginInfo(dataset_type='sdft')\n"
        f"@rlt.hookimpl(tryfirst=True)\n{code}\n"
    )
    result = train("--plugin", "sdft", "--plugin", "odd.py", "--data", rows, "--out", "odd",
                   "--steps", 1)  # fmt: skip
    assert result.code in (1, 2)
    last = result.err.splitlines()[-1]
    assert message in last
    assert "Traceback" not in result.err


def test_numbers_of_a_plugin_become_plain_json_and_never_the_engines_own(
    train: Cli, rows: Path
) -> None:
    Path("numbers.py").write_text(
        "import numpy as np, rlt\nfrom rlt.rendering import Example, datums\n"
        "PLUGIN = rlt.PluginInfo(dataset_type='sdft')\n@rlt.hookimpl\n"
        "def make_datums(rows):\n"
        "    return rlt.Batch(datums([Example.of([1], [2, 3]) for _ in rows]),\n"
        "        [rlt.RowOutcome(row, 1) for row in rows],\n"
        "        metrics={'a': np.float32(0.5), 'b': float('nan'), 'step': 99, 'mean_reward': 1})\n"
    )
    assert train("--plugin", "numbers.py", "--data", rows, "--out", "n", "--steps", 2).code == 0
    lines = read_lines(Path("runs/n/metrics.jsonl"))
    assert [(x["step"], x["a"], x["b"], x["mean_reward"]) for x in lines] == [
        (0, 0.5, None, 1), (1, 0.5, None, 1),
    ]  # fmt: skip


def test_a_loss_may_read_further_numbers_out_of_the_answer(train: Cli, rows: Path) -> None:
    Path("read.py").write_text(
        "import rlt\n@rlt.hookimpl(tryfirst=True)\ndef compute_loss():\n"
        "    found = {'seen': 7, 'lr': 9, 'n_datums': 9}\n"
        "    return rlt.Loss(read=lambda out, data: {'loss': 2, **found})\n"
    )
    assert train("--plugin", "sft", "--plugin", "read.py", "--data", rows, "--out", "n",
                 "--steps", 1, "--prompts-per-step", 2).code == 0  # fmt: skip
    (line,) = read_lines(Path("runs/n/metrics.jsonl"))
    assert [line[x] for x in ("loss", "seen", "lr", "n_datums")] == [2.0, 7, 5e-4, 2]


def test_a_custom_loss_sees_the_step_as_a_whole_and_its_metrics_are_kept(
    train: Cli, rows: Path
) -> None:
    Path("own.py").write_text(
        "import rlt\n@rlt.hookimpl\ndef compute_loss():\n"
        "    def loss(data, logprobs):\n"
        "        value = sum(-x.mean() for x in logprobs) / len(logprobs)\n"
        "        return value, {'seen:sum': float(len(data))}\n"
        "    return rlt.Loss(custom=loss)\n"
    )
    result = train("--plugin", "own.py", "--plugin", "sdft", "--data", rows, "--steps", 2,
                   "--prompts-per-step", 4, "--substeps", 2, "--out", "own")  # fmt: skip
    assert result.code == 0, result.err
    lines = read_lines(Path("runs/own/metrics.jsonl"))
    assert [line["seen"] for line in lines] == [4, 4]
    assert lines[1]["loss"] < lines[0]["loss"]


def test_a_file_cannot_take_the_place_of_a_part_of_rlt_by_its_name(train: Cli, rows: Path) -> None:
    Path("metrics.py").write_text("import rlt\n@rlt.hookimpl\ndef on_step(run, record): ...\n")
    result = train("--plugin", "sdft", "--plugin", "metrics.py", "--data", rows)
    assert result.code == 2
    assert "'metrics' is the name of a part of rlt; rename it" in result.err


TYPED = """
import rlt
PLUGIN = rlt.PluginInfo(dataset_type="mine")
@rlt.hookimpl
def register_dataset_types(register):
    register("mine", {"type": "object", "required": ["text"]}, summary="Mine.")
@rlt.hookimpl
def make_datums(run, rows):
    from rlt.rendering import datums
    made = [run.renderer.demonstration("", row.data["text"]) for row in rows]
    return rlt.Batch(datums(made), [rlt.RowOutcome(row, 1) for row in rows])
"""


def test_one_file_may_bring_its_own_dataset_type(train: Cli, work: Path) -> None:
    Path("mine.py").write_text(TYPED)
    Path("mine.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    arguments = ("--plugin", "mine.py", "--steps", 2, "--out", "mine")
    assert train(*arguments, "--data", "mine.jsonl").code == 0
    Path("bad.jsonl").write_text('{"text": "one"}\n{"txt": "two"}\n')
    result = train(*arguments, "--data", "bad.jsonl")
    assert (result.code, "bad.jsonl:2:1" in result.err) == (2, True)


def test_a_type_that_cannot_be_registered_stops_nobody_else(
    cli: Cli, entries, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import rlt\n@rlt.hookimpl\ndef register_dataset_types(register): 1 / 0\n"
    entries(entry("clumsy", written(work, "clumsy", code, monkeypatch)))
    (work / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    assert cli("check", "a.jsonl").code == 0
    assert cli("schemas").code == 0
    result = cli("run", "--plugin", "clumsy", "--plugin", "sdft", "--data", "a.jsonl")
    assert result.code == 2
    assert "plugin 'clumsy'" in result.err
