"""Shared by the commands that read the store: options, opening the store, time spans, error reporting."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gaugeway.cli.config_option import config_option, directory_option
from gaugeway.cli.output import fail
from gaugeway.settings import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gaugeway.settings.shared import Config
    from gaugeway.storage.stores import Store
    from monitors.metrics.registry import Catalogue

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
INTERRUPTED = 130
_WIDTH = 80


data_dir_option = directory_option("Directory of the embedded store.")


def stored_options(function: F) -> F:
    """Add `--config` and `--data-dir`, which together locate the store."""
    return config_option()(data_dir_option(function))


def span(since: str) -> tuple[float, float]:
    """Return the Unix times from `since` (30m, 24h, 7d, or an ISO date or time) to now. Raises ValueError."""
    from monitors.analysis import captured  # noqa: PLC0415 - `--help` need not load it

    now = time.time()
    return captured.since(since, now), now + 1.0


def with_store(config: Config, data_dir: Path, query: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, run `query` on it, and close it. Raises ConfigError if there is no store."""

    async def run() -> T:
        async with contextlib.aclosing(open_store(config, data_dir)) as store:
            return await query(store)

    return asyncio.run(run())


def open_store(config: Config, data_dir: Path) -> Any:  # a Store with `aclose`
    """Open the configured store. Raises ConfigError if there is none yet."""
    from gaugeway.settings.loading import store_url  # noqa: PLC0415 - `--help` need not load them
    from gaugeway.storage.stores import from_url  # noqa: PLC0415

    if config.store.url is None and not (data_dir / "store.db").exists():
        raise ConfigError([f"{data_dir / 'store.db'}: nothing was captured here; see --data-dir and --config"])
    return from_url(store_url(config, data_dir))


def catalogue_of(config: Config) -> Catalogue:
    """Build the metrics of a configuration without calling or opening anything."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - `--help` need not load them

    from monitors.evaluation.models import open_embeddings, open_judge  # noqa: PLC0415
    from monitors.evaluation.verifiers import open_verifier  # noqa: PLC0415
    from monitors.exporters.instruments import Instruments  # noqa: PLC0415
    from monitors.metrics.registry import build  # noqa: PLC0415

    instruments = Instruments(CollectorRegistry(), version="")
    judging = open_judge(config.judge, instruments)
    judge, embeddings = judging.judge if judging else None, open_embeddings(config, instruments)
    return build(
        config.metrics, judge, embeddings, config.judge.mode, verifier=open_verifier(config.judge, instruments)
    )


def lowest_is_best(catalogue: Catalogue) -> Callable[[str], bool]:
    """Return which stored metrics are best at 0, custom ones included; a replayed metric is like its original."""
    from monitors.analysis import captured  # noqa: PLC0415
    from monitors.metrics import lower_is_better  # noqa: PLC0415 - `--help` need not load them

    known = {enabled.metric.name: lower_is_better(enabled.metric) for enabled in catalogue.enabled}
    return lambda metric: known.get(captured.plain_name(metric), captured.lowest_is_best(metric))


def console(*, stderr: bool = False) -> Console:
    """Return the console; 80 columns wide if the output is redirected."""
    from rich.console import Console  # noqa: PLC0415 - only where something is shown

    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)


def table(title: str, first: str) -> Table:
    """Return a table for 80 columns, a line between its rows; the first column, of names, is wrapped, never cut."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - as above
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    made.add_column(first, overflow="fold")
    return made


@contextlib.contextmanager
def reported_errors(interrupted: str = "") -> Iterator[None]:
    """Print errors in the input, one line each, and exit with 2; after Ctrl-C print `interrupted`, exit with 130."""
    try:
        yield
    except (ConfigError, OSError, ValueError) as error:  # EngineError and RefusedError among them
        fail(error)
    except KeyboardInterrupt:
        if interrupted:
            click.echo(f"gaugeway: {interrupted}", err=True)
        sys.exit(INTERRUPTED)
