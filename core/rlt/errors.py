"""What can go wrong, as one family.

An error is a sentence for the person who typed the command: what was expected, what was found,
where, and what to do. `rlt.cli` is the only place that prints one, on one line and without a
traceback, and exits with its `exit_code`:

- 1, `RunError`: the run had begun and failed;
- 2, `UsageError`: the command, the configuration or the input was wrong; nothing was trained;
- 130, `Interrupted`: stopped by the user, after a checkpoint.
"""

from __future__ import annotations


class RltError(Exception):
    """The root of every error that rlt raises on purpose."""

    exit_code = 1


class UsageError(RltError):
    """The command, the configuration or the input is wrong. Nothing was trained."""

    exit_code = 2


class RunError(RltError):
    """The run failed after it had begun."""


class DiskError(RunError):
    """What happened cannot be written down: the disk is full, read-only, or files were removed."""


class PluginError(RunError):
    """A plugin raised inside a hook; the message names the plugin, the hook and the step."""


class Interrupted(RltError):  # noqa: N818 - it is not a fault
    """The user asked the run to stop, and it did, after a checkpoint."""

    exit_code = 130
