"""The command line: `gaugeway serve | gateway | monitors | demo | init | check | keys | templates | inspect`."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from setproctitle import setproctitle

from gateway import config as configuration
from gaugeway.cli.config_option import data_dir_problem
from gaugeway.cli.output import fail
from gaugeway.cli.plane import log_config, monitors, plane_options
from gaugeway.processes.data_directory import hold
from gaugeway.runtime import audit, descriptors
from gaugeway.runtime.logs import configure_logs
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import port_problems
from gaugeway.settings.loading import address_warnings
from gaugeway.settings.placeholders import concealed

if TYPE_CHECKING:
    from monitors.app import PageFactory

MIN_DEMO_S = 45
"""What the demo takes on an idle machine, with some reserve."""
COMMANDS = {
    "compare": "gaugeway.cli.compare",
    "compare-runs": "gaugeway.cli.evaluate",
    "dashboards": "gaugeway.cli.dashboards",
    "evaluate": "gaugeway.cli.evaluate",
    "export": "gaugeway.cli.evaluate",
    "forget": "gaugeway.cli.forget",
    "import": "gaugeway.cli.import_evals",
    "init": "gaugeway.cli.init",
    "inspect": "gaugeway.cli.inspect",
    "keys": "gaugeway.cli.keys",
    "labels": "gaugeway.cli.labels",
    "migrate": "gaugeway.cli.migrate",
    "move": "gaugeway.cli.migrate",
    "replay": "gaugeway.cli.evaluate",
    "simulate": "gaugeway.cli.simulate",
    "templates": "gaugeway.cli.templates",
}
"""The modules of the commands that serve no traffic."""
_log = logging.getLogger("gaugeway")


class _LazyGroup(click.Group):
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


@click.group(cls=_LazyGroup, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
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
    """Run the data plane only: the proxy with capture, and its admin port."""
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
def demo(seconds: float | None, port: int | None) -> None:
    """Run a demo with a scripted model: traffic, scores, a regression, the alert. Needs no key and no network.

    It asks as fast as the machine scores: half a minute on an idle machine, some minutes on a busy one. Exit code: 0
    when the alert fired, 1 when not.
    """
    from rich.console import Console  # noqa: PLC0415 - only here

    from gaugeway.demo.run import run_demo  # noqa: PLC0415

    sys.exit(asyncio.run(run_demo(seconds, port, Console())))


def _page() -> PageFactory:
    from dashboards.web.app import operator_page  # noqa: PLC0415 - only the monitors need it

    return operator_page


def _print_schema(context: click.Context, parameter: click.Parameter, asked: bool) -> None:  # noqa: ARG001, FBT001 - click's
    if not asked:
        return
    from gaugeway.cli.config_schema import config_schema  # noqa: PLC0415 - only here

    click.echo(json.dumps(config_schema(), indent=2))
    context.exit()


@main.command()
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of gaugeway.toml, for editors, and exit.",
)
@plane_options
def check(supervised: bool, **options: Any) -> None:  # noqa: FBT001 - click passes options by name
    """Check a configuration; each error names its key, the reason and the nearest valid key."""
    from gateway.access import admission  # noqa: PLC0415 - `--help` need not load the whole plane
    from monitors import app  # noqa: PLC0415

    try:
        config, problems = configuration.examine(options["config"], *_given(options))
    except ConfigError as error:
        fail(error)
    app.examine(config, problems)
    admission.examine(config, problems)
    problems.extend(port_problems(configuration.listeners(config)))
    if not supervised:
        problem = data_dir_problem(options["data_dir"])
        problems.extend([] if problem is None else [problem])
        app.examine_files(config, options["data_dir"], problems)
        admission.examine_file(config, options["data_dir"], problems)
    if click.get_current_context().get_parameter_source("config") is ParameterSource.DEFAULT and options["config"]:
        click.echo(f"gaugeway: using ./{options['config']}", err=True)
    found = [*address_warnings(config), *configuration.credential_warnings(config)]
    warnings = [*problems.warnings, *(text for text in found if not problems.cover(text))]
    for warning in warnings:
        click.echo(f"gaugeway: warning: {concealed(warning)}", err=True)
    if problems.lines:
        fail(ConfigError(problems.lines))
    count = len(warnings)
    verdict = f"ok, {count} warning{'s' if count > 1 else ''}" if count else "ok"
    click.echo(f"{options['config'] or 'the default configuration'}: {verdict}")
    if audits := configuration.audits_per_day(config):
        click.echo(
            f"The judge sees {audits} exchanges a day of each app, redacted, to check what was captured "
            "([capture] audits_per_day = 0 turns it off)."
        )
    if configuration.asks_judge(config):
        from monitors.evaluation.judge_marks import MARKED_PER_DAY  # noqa: PLC0415 - `--help` need not load it

        click.echo(
            "The judge sees one request of each new prompt, redacted, to find its question and passages "
            f"(at most {MARKED_PER_DAY} a day; [capture] ask_judge = false turns it off)."
        )


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
        descriptors.raise_limit()
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
    return configuration.load(options["config"], *_given(options))


def _load_with_warnings(options: dict[str, Any]) -> configuration.Config:
    config, problems = configuration.examine(options["config"], *_given(options))
    problems.raise_any()
    for warning in problems.warnings:
        _log.warning("%s", concealed(warning))
    return config


def _given(
    options: dict[str, Any],
) -> tuple[dict[str, dict[str, Any]], str | None, tuple[str | None, str | None]]:
    """Return what the command line gives: keys by table, the upstream, and the judge's model and address."""
    gateway_options = {name: options[name] for name in ("host", "port", "workers", "admin_port")}
    monitors_options = {"host": options["monitors_host"], "port": options["monitors_port"]}
    tables = {"gateway": gateway_options, "monitors": monitors_options}
    return tables, options["upstream"], (options["judge"], options["judge_url"])


def _arguments(options: dict[str, Any]) -> list[str]:
    """Return the options as arguments for the process of one plane."""
    given = ((name, value) for name, value in options.items() if value is not None)
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


main.add_command(monitors)

if __name__ == "__main__":
    main(prog_name="gaugeway")
