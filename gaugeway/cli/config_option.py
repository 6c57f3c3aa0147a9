"""The option `--config` and its default file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gaugeway.processes.data_directory import directory_problem

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = Path("gaugeway.toml")


def config_option(meaning: str = "gaugeway.toml", *, announced: bool = True) -> Callable[[F], F]:
    """Add `--config`: the given file, else GAUGEWAY_CONFIG, else ./gaugeway.toml if it exists.

    Use of the default is printed to standard error unless `announced` is False.
    """

    def found(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path | None:  # noqa: ARG001 - click's
        if given is not None or not DEFAULT.is_file():
            return given
        if announced:
            click.echo(f"gaugeway: using ./{DEFAULT}", err=True)
        return DEFAULT

    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="GAUGEWAY_CONFIG",
        callback=found,
        help=f"{meaning} [./{DEFAULT}, if there is one]",
    )


def directory_option(meaning: str) -> Callable[[F], F]:
    """Add `--data-dir`: the given directory, else GAUGEWAY_DATA_DIR, else ./gaugeway-data."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="GAUGEWAY_DATA_DIR",
        default=Path("gaugeway-data"),
        show_default=True,
        help=meaning,
    )


def with_options(*given: Callable[[F], F]) -> Callable[[F], F]:
    """Add several options, in this order."""

    def add(function: F) -> F:
        for option in reversed(given):
            function = option(function)
        return function

    return add


def data_dir_problem(data_dir: Path) -> str | None:
    """Return why the data directory, which need not exist yet, is not writable; None if it is."""
    problem = directory_problem(data_dir)
    return None if problem is None else f"--data-dir: the data directory {data_dir} cannot be written: {problem}"
