"""A run from the command line's settings to its outcome.

Everything that can be wrong with the request is found first: plugins, options, rows, the model, the
directory. Only then is anything written, started or paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rlt
from rlt import config as configuration
from rlt import engine, options, plugins, resume, service
from rlt.config import RunConfig
from rlt.errors import RltError, RunError, UsageError
from rlt.hooks import Hooks
from rlt.run import Run
from rlt.run_directory import JsonLines, keep_metrics
from rlt.service_errors import explain
from rlt.types import JSON, Checkpoint, Outcome


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended, and what is worth showing of it."""

    run: Run
    outcome: Outcome
    sample: tuple[str, str] | None
    """(the first row's prompt, what the trained model answers)."""


def launch(settings: Mapping[str, Any], *, file: Path | None = None) -> Finished:
    """Prepare a run, do it, and close what it opened.

    :param settings: `RunConfig` fields that the user set; `options` as `key=value` strings.
    :param file: the TOML file of `--config`.
    :raises UsageError: nothing was trained.
    :raises RunError: it failed after it had begun; the message says how to go on.
    """
    file_layer = configuration.read_file(file) if file else {}
    top = {**file_layer, **settings}
    beginning = resume.find(top.get("out"), top.get("resume"), _label(top.get("plugin")))
    saved = dict(beginning.saved) if beginning.saved else None
    base = resume.layer(saved) if saved else {}
    chosen, manager = plugins.select(_plugin_names(top, base))
    set_options = options.parse(settings.get("options", ()), chosen)
    layers = [chosen[0].info.defaults, base, file_layer, {**settings, "options": set_options}]
    config = configuration.resolve(layers)
    config = configuration.resolve(
        [configuration.to_json(config), {"options": options.fill(config.options, chosen)}]
    )
    run = Run(config, Hooks(manager), beginning.directory, algorithm=chosen[0].info,
              name=chosen[0].name)  # fmt: skip
    _load_rows(run)
    plan = service.plan(config)
    sha256 = getattr(run.train_rows, "sha256", None)
    if saved:
        resume.require_same(saved, config, sha256)
    else:
        _require_new_log(run)
    run.directory.claim(resume=beginning.resumes)
    try:
        if not beginning.resumes:
            run.directory.write_config(_record(config, plan, sha256))
        _announce(run, plan, saved)
        return _train(run, plan, beginning)
    finally:
        run.directory.release()


def resume_command(run: Run, outcome: Outcome) -> str:
    """Return the command that goes on with a run."""
    path = run.directory.path
    out = path.name if path.parent == Path("runs") else f"{path}/" if "/" not in str(path) else path
    more = f" --steps {2 * outcome.steps}" if outcome.status == "completed" else ""
    return f"rlt run --out {out} --resume auto{more}"


def _train(run: Run, plan: service.EnginePlan, beginning: resume.Beginning) -> Finished:
    directory = run.directory
    siblings = [path for path in sorted(directory.path.parent.glob("*/weights"))
                if path != directory.weights]  # fmt: skip
    metadata = {
        "product": "rlt",
        "run": directory.name,
        "plugin": run.name,
        "version": rlt.__version__,
        "config": configuration.fingerprint(run.config),
    }
    try:
        with service.connect(
            plan, store=directory.weights, also_read=siblings, metadata=metadata
        ) as opened:
            return asyncio.run(_session(run, opened, beginning, metadata))
    except RltError as error:
        raise _with_way_on(error, run) from error
    except Exception as error:
        told = explain(error)
        if told is None:
            raise
        raise _with_way_on(told, run) from error


async def _session(
    run: Run, opened: service.Service, beginning: resume.Beginning, metadata: dict[str, str]
) -> Finished:
    training, start = await _training_client(run, opened, beginning, metadata)
    if beginning.resumes:
        _rewind(run, start.step if start else 0)
    run.attach(opened, training)
    with _signals(run):
        outcome = await engine.train(run, start)
    if outcome.status == "interrupted":
        raise rlt.Interrupted(
            f"interrupted after step {outcome.steps - 1}, which is saved; "
            f"go on with: {resume_command(run, outcome)}"
        )
    return Finished(run, outcome, await _final_sample(run))


async def _training_client(
    run: Run, opened: service.Service, beginning: resume.Beginning, metadata: dict[str, str]
) -> tuple[Any, Checkpoint | None]:
    """Return the SDK's training client and the checkpoint that it starts from."""
    client, config = opened.client, run.config
    if beginning.weights:
        run.log.warning(
            "no ledger knows these weights: a new run starts from them at step 0",
            weights=beginning.weights,
        )
        return await client.create_training_client_from_state(
            beginning.weights, user_metadata=metadata
        ), None
    for checkpoint in beginning.candidates:
        try:
            training = await client.create_training_client_from_state_with_optimizer(
                checkpoint.state, user_metadata=metadata
            )
        except Exception as error:
            if explain(error) is None:
                raise
            run.log.warning(
                "a checkpoint cannot be loaded; trying the one before",
                step=checkpoint.step, reason=str(explain(error)),
            )  # fmt: skip
            continue
        run.log.info("resuming", step=checkpoint.step, state=checkpoint.state)
        return training, checkpoint
    if beginning.candidates:
        raise RunError("none of the run's checkpoints can be loaded; start a new run")
    return await client.create_lora_training_client(
        opened.model, rank=config.rank, seed=config.seed, user_metadata=metadata
    ), None


def _rewind(run: Run, step: int) -> None:
    """Set aside what the run will do again."""
    superseded = run.directory.rewind(step)
    run.directory.checkpoints.rewind(lambda line: line["step"] <= step)
    if run.config.log:
        JsonLines(Path(run.config.log)).rewind(keep_metrics(step))
    if superseded:
        run.log.info("metrics after the checkpoint are set aside", lines=superseded)


@contextlib.contextmanager
def _signals(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM finish the step and save; a second one stops at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(number: signal.Signals) -> None:
        run.interrupted = True
        run.stop(f"{number.name} received")
        run.log.warning("stopping after this step; once more to stop now", signal=number.name)
        for each in numbers:
            loop.remove_signal_handler(each)

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _final_sample(run: Run) -> tuple[str, str] | None:
    row = run.train_rows[0]
    if "prompt" not in row.data:
        return None
    prompt = run.renderer.prompt(row.data["prompt"], row.data.get("tools"))
    seed = run.sampling_seed(run.config.steps, row)
    (sequence,) = await run.sample(prompt, seed=seed)
    asked = row.data["prompt"]
    shown = asked if isinstance(asked, str) else asked[-1].get("content")
    return str(shown), run.renderer.text(sequence.tokens)


def _load_rows(run: Run) -> None:
    run.train_rows = run.hooks.call("load_rows", run=run, split="train")
    if run.config.eval_data:
        run.eval_rows = run.hooks.call("load_rows", run=run, split="eval")
    count, wanted = len(run.train_rows), run.config.prompts_per_step
    if run.config.data and wanted > count:
        raise UsageError(
            f"--prompts-per-step {wanted} is more than the {count} rows of {run.config.data}"
        )
    if run.config.data and run.config.steps * wanted > count:
        epochs = run.config.steps * wanted / count
        run.log.warning("rows will be used more than once", rows=count, epochs=round(epochs, 2))


def _require_new_log(run: Run) -> None:
    """Refuse to mix the lines of two runs in one `--log` file."""
    log = run.config.log
    if log and Path(log).exists() and Path(log).stat().st_size:
        raise UsageError(f"--log {log} already holds lines; choose another file, or resume its run")


def _announce(run: Run, plan: service.EnginePlan, saved: JSON | None) -> None:
    config, log = run.config, run.log
    if plan.engine == "local" and config.engine == "auto" and not config.model:
        log.warning(
            "training on the embedded engine, on this machine",
            because=plan.reason, model=plan.model, instead_of=service.HOSTED_MODEL,
        )  # fmt: skip
    log.info("engine", engine=plan.engine, model=plan.model, because=plan.reason)
    log.info("data", train=config.data or "built-in example", rows=len(run.train_rows),
             eval=config.eval_data, eval_rows=len(run.eval_rows))  # fmt: skip
    shown = ("steps", "prompts_per_step", "group_size", "rank", "lr", "max_tokens", "temperature",
             "seed", "save_every", "eval_every")  # fmt: skip
    log.info("run", plugin="+".join(config.plugin), directory=str(run.directory.path),
             **{name: getattr(config, name) for name in shown})  # fmt: skip
    log.info("options", **config.options)
    for name, (before, now) in (resume.changes(saved, config) if saved else {}).items():
        log.warning("this setting differs from the run's", setting=name, before=before, now=now)


def _record(config: RunConfig, plan: service.EnginePlan, sha256: str | None) -> JSON:
    return {
        "config": configuration.to_json(config),
        "engine": plan.engine,
        "model": config.model or plan.model,
        "data_sha256": sha256,
        "fingerprint": configuration.fingerprint(config),
        "versions": {name: version(name) for name in ("rlt", "tinker")},
    }


def _with_way_on(error: RltError, run: Run) -> RltError:
    """Add how to resume to an error, when there is something to resume from."""
    ledger = run.directory.ledger()
    if not ledger or error.exit_code != 1:
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
