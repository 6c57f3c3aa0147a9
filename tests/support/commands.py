"""The commands of `gaugeway`, which are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gaugeway.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping


def commands() -> Mapping[str, click.Command]:
    """All commands by name."""
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
