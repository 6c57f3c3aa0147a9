"""The commands of `gaugeway`, which are imported when they are asked for, and `gaugeway check` of a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.testing import CliRunner, Result

from gaugeway.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping


def commands() -> Mapping[str, click.Command]:
    """All commands by name."""
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def check(text: str, *arguments: str, name: str = "given.toml") -> Result:
    """Run `gaugeway check` on this text, as a file in the working directory."""
    Path(name).write_text(text)
    return CliRunner().invoke(main, ["check", "--config", name, *arguments])


def problems_of(text: str, *arguments: str) -> list[str]:
    """Return the problems that it names, but for the warning about default rules that a rule removes."""
    answer = check(text, *arguments)
    assert answer.exit_code == 2, answer.output
    lines = [line.removeprefix("gaugeway: ") for line in answer.stderr.splitlines()]
    return [line for line in lines if not line.startswith("warning: alerts.rules: these rules remove")]


def invoke(command: click.Command, *arguments: object) -> Result:
    """Run a command with these arguments."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments])
