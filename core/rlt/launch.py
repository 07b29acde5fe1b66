"""A run from the command line's settings to its outcome.

Everything that can be wrong with the request is found first: plugins, options, rows, the model, the
directory. Only then is anything written, started or paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rlt
from rlt import config as configuration
from rlt import options, plugins, resume, service
from rlt.config import RunConfig
from rlt.errors import Interrupted, RltError, UsageError
from rlt.hooks import Hooks
from rlt.plugins import Plugin
from rlt.run import Run
from rlt.run_directory import JsonLines
from rlt.service_errors import explain
from rlt.session import Finished, resume_command, session
from rlt.types import JSON, Outcome, Rows


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A run that nothing is known to be wrong with, and that has left no trace yet."""

    run: Run
    plan: service.EnginePlan
    beginning: resume.Beginning
    fingerprint: str
    """Of the training rows."""
    saved: JSON | None
    """The `config.json` of the run that is resumed."""


def launch(settings: Mapping[str, Any], *, file: Path | None = None) -> Finished:
    """Prepare a run, do it, and close what it opened.

    :param settings: `RunConfig` fields that the user set; `options` as `key=value` strings.
    :param file: the TOML file of `--config`.
    :raises UsageError: nothing was trained.
    :raises RunError: it failed after it had begun; the message says how to go on.
    """
    with _prepared(settings, file) as ready:
        return _train(ready)


def rehearse(settings: Mapping[str, Any], *, file: Path | None = None) -> list[tuple[str, str]]:
    """Prepare a run, and return lines about what it would do; write and start nothing.

    :raises UsageError: as `launch` would.
    """
    from rlt import rehearsal  # noqa: PLC0415 - brings transformers

    with _prepared(settings, file) as ready:
        candidates = ready.beginning.candidates
        first = candidates[0].step if candidates else 0
        return rehearsal.rehearse(ready.run, ready.plan, first)


@contextlib.contextmanager
def _prepared(settings: Mapping[str, Any], file: Path | None) -> Iterator[_Prepared]:
    file_layer = configuration.read_file(file) if file else {}
    top = {**file_layer, **settings}
    beginning = resume.find(top.get("out"), top.get("resume"), _label(top.get("plugin")))
    saved = dict(beginning.saved) if beginning.saved else None
    base = resume.layer(saved) if saved else {}
    names = _plugin_names(top, base)
    if saved:
        resume.require_plugins(saved, names)
    chosen, manager = plugins.select(names)
    algorithm = next((plugin for plugin in chosen if "make_datums" in plugin.hooks), chosen[0])
    given = {**settings, "options": options.parse(settings.get("options", ()), chosen)}
    config = _resolved([algorithm.info.defaults, base, file_layer, given], chosen)
    run = Run(config, Hooks(manager), beginning.directory, algorithm=algorithm.info,
              name=algorithm.name)  # fmt: skip
    run.dataset_types = plugins.dataset_types(chosen)
    _load_rows(run)
    plan = service.plan(config)
    fingerprint = _data_fingerprint(run.train_rows)
    if saved:
        resume.require_same(saved, config, fingerprint)
    run.metrics_files = _metrics_files(run, saved)
    run.directory.claim(resume=beginning.resumes)
    try:
        ready = _Prepared(run, plan, beginning, fingerprint, saved)
        _announce(ready)
        yield ready
    finally:
        run.directory.release()


def _resolved(layers: Sequence[Mapping[str, Any]], chosen: Sequence[Plugin]) -> RunConfig:
    config = configuration.resolve(layers)
    config = dataclasses.replace(config, options=options.fill(config.options, chosen))
    if config.schedule != "constant" and config.horizon is None:
        config = dataclasses.replace(config, horizon=config.steps)  # a longer resume keeps it
    return config


def _train(ready: _Prepared) -> Finished:
    run, plan = ready.run, ready.plan
    directory, record = run.directory, _record(ready)
    siblings = [path for path in sorted(directory.path.parent.glob("*/weights"))
                if path != directory.weights]  # fmt: skip
    metadata = {
        "product": "rlt",
        "run": directory.name,
        "plugin": run.name,
        "version": rlt.__version__,
        "config": record["fingerprint"],
    }
    try:
        with service.connect(
            plan, store=directory.weights, also_read=siblings, metadata=metadata
        ) as opened:
            directory.write_config(record)
            return asyncio.run(session(run, opened, ready.beginning, metadata))
    except asyncio.CancelledError:
        raise _with_way_on(Interrupted("interrupted at once"), run) from None
    except RltError as error:
        if isinstance(error, UsageError) and not (ready.beginning.resumes or directory.has_run):
            directory.config.unlink(missing_ok=True)  # nothing was begun: leave no trace
        raise _with_way_on(error, run) from error
    except Exception as error:
        told = explain(error)
        if told is None:
            raise
        raise _with_way_on(told, run) from error


def _load_rows(run: Run) -> None:
    if run.config.data == run.config.eval_data == "-":
        raise UsageError("only one of --data and --eval-data can be - (standard input)")
    run.train_rows = _rows(run, "train")
    if run.config.eval_data:
        run.eval_rows = _rows(run, "eval")
    count, wanted = len(run.train_rows), run.config.prompts_per_step
    if run.config.data and wanted > count:
        noun = "row" if count == 1 else "rows"
        raise UsageError(f"--prompts-per-step {wanted}: {run.config.data} has only {count} {noun}")
    if run.config.data and run.config.steps * wanted > count:
        epochs = run.config.steps * wanted / count
        run.log.warning("rows will be used more than once", rows=count, epochs=round(epochs, 2))


def _rows(run: Run, split: str) -> Rows:
    rows: Rows | None = run.hooks.call("load_rows", run=run, split=split)
    if rows is not None and not hasattr(rows, "__getitem__"):
        raise UsageError(f"load_rows returned {type(rows).__name__}, not rows")
    if rows is None or not len(rows):
        raise UsageError(f"plugin {run.name!r} loaded no {split} rows")
    return rows


def _data_fingerprint(rows: Rows) -> str:
    """Hash the rows' source, or their ids in order, so that a resumed run knows its data again."""
    sha256: str | None = getattr(rows, "sha256", None)
    if sha256:
        return sha256
    digest = hashlib.sha256()
    for index in range(len(rows)):
        digest.update(rows[index].id.encode() + b"\n")
    return digest.hexdigest()


def _metrics_files(run: Run, saved: JSON | None) -> tuple[JsonLines, ...]:
    """Return the files that metrics lines go to, after a look at whether `--log` can be one."""
    log = run.config.log
    if log is None:
        return (run.directory.metrics,)
    path = Path(log)
    ours = saved is not None and saved["config"]["log"] == log
    try:
        if path.exists():
            with path.open("ab") as file:
                if file.tell() and not ours:
                    raise UsageError(
                        f"--log {log} already holds lines; choose another file, or resume its run"
                    )
        elif not os.access(path.resolve().parent, os.W_OK):
            raise UsageError(f"--log {log}: its folder is not there, or cannot be written")
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}") from None
    return (run.directory.metrics, JsonLines(path, mode=0o666))


def _announce(ready: _Prepared) -> None:
    run, plan, saved = ready.run, ready.plan, ready.saved
    config, log = run.config, run.log
    if plan.engine == "local" and config.engine == "auto" and not config.model:
        log.warning(
            "training on the embedded engine, on this machine",
            because=plan.reason, model=plan.model, instead_of=service.HOSTED_MODEL,
        )  # fmt: skip
    log.info("engine", engine=plan.engine, model=plan.model, because=plan.reason)
    held_out = {"eval": config.eval_data, "eval_rows": len(run.eval_rows)}
    log.info("data", train=config.data or "built-in example", rows=len(run.train_rows),
             **(held_out if config.eval_data else {}))  # fmt: skip
    if config.eval_data and ready.fingerprint == _data_fingerprint(run.eval_rows):
        log.warning("the held-out rows are the training rows; their loss says little")
    shown = ("steps", "prompts_per_step", "group_size", "rank", "lr", "max_tokens", "temperature",
             "seed", "save_every", "eval_every")  # fmt: skip
    log.info("run", plugin="+".join(config.plugin), directory=str(run.directory.path),
             **{name: getattr(config, name) for name in shown})  # fmt: skip
    if config.options:
        log.info("options", **config.options)
    if saved and run.directory.ledger() and run.directory.ledger()[-1].step >= config.steps:
        log.warning("this run has done its steps; give --steps a larger number to go on",
                    steps=config.steps)  # fmt: skip
    for name, (before, now) in (resume.changes(saved, config) if saved else {}).items():
        log.warning("this setting differs from the run's", setting=name, before=before, now=now)


def _record(ready: _Prepared) -> JSON:
    """Return what `config.json` says: the settings in force, and what they were before a resume."""
    run, plan, saved = ready.run, ready.plan, ready.saved
    config = run.config
    record: JSON = {
        "config": configuration.to_json(config),
        "directory": saved["directory"] if saved else str(Path.cwd()),
        "algorithm": run.name,
        "dataset_type": run.algorithm.dataset_type,
        "engine": plan.engine,
        "model": config.model or plan.model,
        "data_sha256": ready.fingerprint,
        "fingerprint": configuration.fingerprint(config),
        "versions": {name: version(name) for name in ("rlt", "tinker")},
        "resumed": [],
    }
    if saved:
        changed = resume.changes(saved, config)
        record["resumed"] = [*saved.get("resumed", []), {"steps": config.steps, **changed}]
        record["config"]["resume"] = saved["config"]["resume"]  # where step 0 began
    return record


def _with_way_on(error: RltError, run: Run) -> RltError:
    """Add how to resume to an error, when there is something to resume from."""
    ledger = run.directory.ledger()
    if not ledger or error.exit_code == UsageError.exit_code or "--resume auto" in str(error):
        return error
    outcome = Outcome("failed", ledger[-1].step, ledger[-1])
    text = f"{error} (saved: step {ledger[-1].step}; go on with: {resume_command(run, outcome)})"
    return type(error)(text)


def _plugin_names(top: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    names = list(top.get("plugin") or base.get("plugin") or ())
    if not names:
        raise UsageError("--plugin NAME says what to train with; `rlt plugins` lists them")
    return names


def _label(names: Any) -> str:
    return Path(names[0]).stem if names else "run"
