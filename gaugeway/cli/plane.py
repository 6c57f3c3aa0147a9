"""`gaugeway monitors` and `python -m monitors`: runs only the evaluation plane."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from setproctitle import setproctitle

from gaugeway.cli.shared import BAD_INPUT, config_option, directory_option, fail, judge_kind_option
from gaugeway.processes.data_directory import TAKE_OVER_S, hold
from gaugeway.runtime import system
from gaugeway.runtime.logs import configure_logs
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load, otlp_endpoint, sources_of

if TYPE_CHECKING:
    from monitors.app import PageFactory

F = TypeVar("F", bound=Callable[..., Any])
BROKEN = 1
_log = logging.getLogger("gaugeway")


class _Directory(click.Path):
    """A directory; an empty name, which a script's unset variable gives, is not the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


def _option(name: str, meaning: str, **more: Any) -> Callable[[F], F]:
    """Return an option that an environment variable can set: `--judge-url` by GAUGEWAY_JUDGE_URL."""
    return click.option(f"--{name}", envvar=f"GAUGEWAY_{name.upper().replace('-', '_')}", help=meaning, **more)


def plane_options(function: F) -> F:
    """Add the options shared by `serve`, `gateway` and `monitors`; each can be set by an environment variable.

    Standard streams that are closed are opened first, as the planes open files and start processes.
    """

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        system.open_standard()
        return function(*arguments, **options)

    options = [
        config_option(announced=False),
        _option("upstream", "Base URL of the provider, as configured in a client."),
        _option(
            "judge",
            "Model that judges the answers, with the key in OPENAI_API_KEY. [none: only metrics without a model]",
        ),
        _option("judge-url", "Base URL of the judge. [that of --upstream]"),
        judge_kind_option,
        _option("host", "Address of the traffic port. [127.0.0.1]"),
        _option("port", "Traffic port. [8080]", type=int),
        _option("workers", "Gateway processes. [1]", type=int),
        _option("admin-port", "Gateway metrics. [9464]", type=int),
        _option("monitors-host", "Address of the page. [127.0.0.1]"),
        _option("monitors-port", "Port of the page. [9465]", type=int),
        directory_option("Directory of the embedded queue and store.", _Directory(path_type=Path, file_okay=False)),
        _option("log-format", "Format of log lines.", type=click.Choice(["text", "json"]), default="text"),
        click.option("--supervised", is_flag=True, hidden=True, help="Stop when standard input closes."),
    ]
    for option in reversed(options):
        run = option(run)
    return cast("F", run)


def given_tables(options: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str | None, tuple[str | None, ...]]:
    """Return what the command line gives: keys by table, the upstream, and the judge's model, address and kind."""
    gateway_options = {name: options[name] for name in ("host", "port", "workers", "admin_port")}
    monitors_options = {"host": options["monitors_host"], "port": options["monitors_port"]}
    tables = {"gateway": gateway_options, "monitors": monitors_options}
    return tables, options["upstream"], (options["judge"], options["judge_url"], options["judge_kind"])


def given_keys(options: Mapping[str, Any]) -> dict[str, object]:
    """Return the keys of the configuration that options set, None for options that are not given."""
    return {
        "upstreams[0].base_url": options["upstream"],
        "judge.model": options["judge"],
        "judge.kind": options["judge_kind"],
        "judge.base_url": options["judge_url"] or (options["judge"] and options["upstream"]),
        "gateway.host": options["host"],
        "gateway.port": options["port"],
        "gateway.admin_port": options["admin_port"],
        "monitors.host": options["monitors_host"],
        "monitors.port": options["monitors_port"],
    }


def log_config(config: Path | None) -> None:
    """Log the path of the configuration."""
    _log.info("configuration: %s", "defaults and options, no file" if config is None else config.absolute())


@click.command()
@plane_options
@click.pass_obj
def monitors(page: Callable[[], PageFactory] | None, /, data_dir: Path, **options: Any) -> None:
    """Run only the monitors: scores, alerts, the page."""
    from gaugeway.runtime import serving  # noqa: PLC0415 - `--help` need not load the whole plane
    from monitors.app import run  # noqa: PLC0415
    from monitors.scoring_workers import ScoringWorkers  # noqa: PLC0415

    try:
        if options["supervised"]:
            setproctitle("gaugeway: monitors")
        config = load(options["config"], *given_tables(options))
        if not options["supervised"]:
            configure_logs(options["log_format"])
            log_config(options["config"])
            if config.telemetry.otlp_endpoint is None and (warning := otlp_endpoint().warning) is not None:
                logging.getLogger("gaugeway").warning("%s", warning)
        supervised, log_format = options["supervised"], options["log_format"]
        workers = ScoringWorkers(config, data_dir, supervised=supervised, log_format=log_format)
        workers.fork()
        with hold(data_dir, "monitors", TAKE_OVER_S if supervised else 0.0):
            sources = sources_of(options["config"], given_keys(options))
            running = run(
                config, data_dir, page=page and page(), sources=sources, supervised=supervised, workers=workers
            )
            serving.run(running, log_format)
    except (ConfigError, OSError) as error:
        # BAD_INPUT stops the supervisor and the gateway; after BROKEN it restarts this process: the file may recover.
        is_file = isinstance(error, OSError) and error.filename is not None
        fail(error, BROKEN if is_file and options["supervised"] else BAD_INPUT)
