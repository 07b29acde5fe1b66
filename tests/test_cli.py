"""The command line itself."""

from __future__ import annotations

import importlib

import pytest

from conftest import Cli
from rlt.cli import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_the_commands_say(name: str) -> None:
    command = importlib.import_module(f"rlt.cli.{name}").command
    assert command.get_short_help_str(80) == COMMANDS[name]


def test_a_mistyped_command_gets_a_suggestion(cli: Cli) -> None:
    result = cli("rnu")
    assert (result.code, result.err) == (
        2,
        "rlt: no command 'rnu'; did you mean 'run'?; see rlt --help\n",
    )


def test_the_version_is_the_distributions(cli: Cli) -> None:
    from importlib.metadata import version

    import rlt

    assert cli("--version").out == f"rlt {version('rlt')}\n"
    assert rlt.__version__ == version("rlt")
