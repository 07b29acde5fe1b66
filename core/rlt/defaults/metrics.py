"""The metrics log: a line a step and a line an evaluation, in the run directory and in `--log`."""

from __future__ import annotations

import rlt


@rlt.hookimpl
def on_step(run: rlt.Run, record: rlt.StepRecord) -> None:
    """Append and show the step's line."""
    _append(run, record.metrics)
    run.log.info("step", **_readable(record.metrics))


@rlt.hookimpl
def on_evaluate(run: rlt.Run, record: rlt.JSON) -> None:
    """Append and show the evaluation's line."""
    _append(run, record)
    run.log.info("eval", **_readable({k: v for k, v in record.items() if k != "split"}))


def _append(run: rlt.Run, line: rlt.JSON) -> None:
    for file in run.metrics_files:
        file.append(line)


def _readable(line: rlt.JSON) -> rlt.JSON:
    rounded = {k: round(v, 4) if isinstance(v, float) and k != "lr" else v for k, v in line.items()}
    return {key: value for key, value in rounded.items() if value is not None}
