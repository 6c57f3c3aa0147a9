"""A command group whose commands are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Imports a command when it is called or listed: a process that serves does not load the other commands.

    `modules` is the module of each command, by its name. There the command is the attribute of that name, with "_" for
    "-", or with "_" at its end where the name is a keyword.
    """

    def __init__(self, *arguments: Any, modules: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._modules and cmd_name not in self.commands:
            module, name = import_module(self._modules[cmd_name]), cmd_name.replace("-", "_")
            self.add_command(getattr(module, name, None) or getattr(module, f"{name}_"), cmd_name)
        return super().get_command(ctx, cmd_name)
