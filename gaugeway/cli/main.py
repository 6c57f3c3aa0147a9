"""The command line: `gaugeway serve | gateway | monitors | demo | init | check | keys | templates | inspect`."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from setproctitle import setproctitle

from gateway import config as configuration
from gaugeway.cli.plane import given_tables, log_config, monitors, plane_options
from gaugeway.cli.shared import fail
from gaugeway.data_files import table
from gaugeway.processes.data_directory import hold
from gaugeway.runtime import audit, system
from gaugeway.runtime.logs import configure_logs
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import port_problems
from gaugeway.settings.placeholders import concealed

if TYPE_CHECKING:
    from monitors.app import PageFactory

MIN_DEMO_S = 45
"""What the demo takes on an idle machine, with some reserve."""
COMMANDS: dict[str, list[str]] = table("gaugeway.cli", "commands.toml")
"""The commands that serve no traffic: the module of `gaugeway.cli`, and what the list of commands says."""
_SHORT_HELP = 60
_log = logging.getLogger("gaugeway")


class _LazyGroup(click.Group):
    """Imports a command of `COMMANDS` when it is called: a process that serves does not load the others.

    In its module the command is the attribute of its name, with "_" for "-", or with "_" at its end where the name is a
    keyword.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, name = import_module(f"gaugeway.cli.{COMMANDS[cmd_name][0]}"), cmd_name.replace("-", "_")
            self.add_command(getattr(module, name, None) or getattr(module, f"{name}_"), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        words = {name: command.get_short_help_str(_SHORT_HELP) for name, command in self.commands.items()}
        words |= {name: about for name, (_, about) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(words.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(version("gaugeway"), prog_name="gaugeway")
@click.pass_context
def main(context: click.Context) -> None:
    """Measure the quality of RAG answers, and alert when it degrades."""
    context.obj = _page


@main.command()
@plane_options
def serve(supervised: bool, **options: Any) -> None:  # noqa: ARG001, FBT001 - click passes options by name
    """Run both planes: the gateway and the monitors. Requires no other service."""
    _supervise(options, monitors=True)


@main.command()
@plane_options
def gateway(data_dir: Path, supervised: bool, **options: Any) -> None:  # noqa: FBT001 - click passes options by name
    """Run only the gateway: the proxy with capture."""
    from gateway import app  # noqa: PLC0415 - `--help` need not load the whole plane
    from gateway.handoff.sampler_client import SamplerProcesses  # noqa: PLC0415
    from gaugeway.runtime import serving  # noqa: PLC0415

    try:
        if supervised:
            setproctitle("gaugeway: gateway")
        config = _load(options)
        if config.gateway.workers > 1 and not supervised:
            _supervise(options | {"data_dir": data_dir}, monitors=False)
        sampler = SamplerProcesses()
        sampler.fork(configuration.sampled(config))
        read = _load if supervised else _load_with_warnings  # the supervisor logs them for its workers
        if not supervised:
            configure_logs(options["log_format"])
            config = read(options)
            log_config(options["config"])
        with nullcontext() if supervised else hold(data_dir, "gateway"):  # the supervisor holds it for its workers
            running = app.run(config, data_dir, supervised=supervised, reload=lambda: read(options), sampler=sampler)
            serving.run(running, options["log_format"])
    except (ConfigError, OSError) as error:
        fail(error)


def _long_enough(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not seconds >= MIN_DEMO_S:
        raise click.BadParameter(
            f"{seconds:g} s are too few: an idle machine needs up to {MIN_DEMO_S} s, a busy one more. Leave it out: "
            "then the demo takes the time it needs."
        )
    return seconds


@main.command()
@click.option(
    "--seconds",
    type=float,
    callback=_long_enough,
    help=f"Stop after so many seconds, at least {MIN_DEMO_S}. [no limit]",
)
@click.option("--port", type=int, help="Traffic port. [a free one]")
@click.option("--keep", is_flag=True, help="Keep the page open behind the alert, until Ctrl-C.")
def demo(seconds: float | None, port: int | None, *, keep: bool) -> None:
    """Run a demo: scripted traffic, a drop, the alert. Needs no key and no network.

    It asks as fast as the machine scores: half a minute on an idle machine, some minutes on a busy one. Exit code: 0
    when the alert fired, 1 when not.
    """
    if keep and seconds is not None:
        raise click.UsageError("--keep has no end: leave --seconds out")
    from rich.console import Console  # noqa: PLC0415 - only here

    from gaugeway.demo.run import run_demo  # noqa: PLC0415

    sys.exit(asyncio.run(run_demo(seconds, port, Console(), keep=keep)))


def _page() -> PageFactory:
    from dashboards.web.app import operator_page  # noqa: PLC0415 - only the monitors need it

    return operator_page


def _supervise(options: dict[str, Any], *, monitors: bool) -> NoReturn:
    from gateway.supervisor import Supervisor  # noqa: PLC0415 - `--help` need not load it

    configure_logs(options["log_format"])
    try:
        if monitors:
            _check_ports(_load(options))
        supervisor = Supervisor(
            lambda path: _arguments(options | {"config": path}),
            lambda path: _load_with_warnings(options | {"config": path}),
            config=options["config"],
            monitors=monitors,
        )
        system.raise_limit()
        supervisor.fork()
    except (ConfigError, OSError) as error:
        fail(error)
    log_config(options["config"])
    try:
        with hold(options["data_dir"], "gateway"):
            audit.open_if_possible(options["data_dir"])
            sys.exit(asyncio.run(supervisor.run()))
    except OSError as error:  # the directory or an address is in use
        fail(error)


def _check_ports(config: configuration.Config) -> None:
    """Raise ConfigError if the two planes cannot run side by side."""
    if problems := list(port_problems(configuration.listeners(config))):
        raise ConfigError(problems)


def _load(options: dict[str, Any]) -> configuration.Config:
    return configuration.load(options["config"], *given_tables(options))


def _load_with_warnings(options: dict[str, Any]) -> configuration.Config:
    config, problems = configuration.examine(options["config"], *given_tables(options))
    problems.raise_any()
    for warning in problems.warnings:
        _log.warning("%s", concealed(warning))
    return config


def _arguments(options: dict[str, Any]) -> list[str]:
    """Return the options as arguments for the process of one plane."""
    given = ((name, value) for name, value in options.items() if value is not None)
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


main.add_command(monitors)

if __name__ == "__main__":
    main(prog_name="gaugeway")
