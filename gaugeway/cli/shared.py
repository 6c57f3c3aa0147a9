"""What commands share: options, the store, exit codes and messages, tables, and the audit record of a change."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec

from gaugeway.processes.data_directory import directory_problem
from gaugeway.runtime import audit
from gaugeway.settings import ConfigError
from gaugeway.settings.placeholders import concealed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gaugeway.settings.shared import Config, Shared
    from gaugeway.storage.stores import Store
    from monitors.metrics.registry import Catalogue

F = TypeVar("F", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """A number within bounds; unlike click's own, not NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is no number", param, ctx) if math.isnan(number) else number


T = TypeVar("T")
BAD_INPUT, INTERRUPTED = 2, 130
DEFAULT = Path("gaugeway.toml")
FILE, _DIRECTORY = click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path, file_okay=False)
_WIDTH = 80

table_or_json = click.option("--format", "shown_as", type=click.Choice(["table", "json"]), default="table")


judge_kind_option = click.option(
    "--judge-kind",
    type=click.Choice(["llm", "decisions", "systemone"]),
    envvar="GAUGEWAY_JUDGE_KIND",
    help="Whether the judge writes verdicts, or answers typed questions with probabilities. [judge.kind]",
)


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
        type=FILE,
        envvar="GAUGEWAY_CONFIG",
        callback=found,
        help=f"{meaning} [./{DEFAULT}, if there is one]",
    )


def directory_option(
    meaning: str = "Directory of the embedded store.", kind: click.Path = _DIRECTORY
) -> Callable[[F], F]:
    """Add `--data-dir`: the given directory, else GAUGEWAY_DATA_DIR, else ./gaugeway-data."""
    return click.option(
        "--data-dir", type=kind, envvar="GAUGEWAY_DATA_DIR", default=Path("gaugeway-data"), help=meaning
    )


def since_option(default: str) -> Callable[[F], F]:
    """Add `--since`, which `span` reads."""
    return click.option("--since", default=default, help="30m, 24h, 7d, or an ISO date or time (UTC).")


def map_option(meaning: str) -> Callable[[F], F]:
    """Add `--map`, which `mapped_fields` reads."""
    return click.option("--map", "mapped", multiple=True, metavar="FIELD=NAME", help=meaning)


def with_options(*given: Callable[[F], F]) -> Callable[[F], F]:
    """Add several options, in this order."""

    def add(function: F) -> F:
        for option in reversed(given):
            function = option(function)
        return function

    return add


stored_options = with_options(config_option(), directory_option())
"""`--config` and `--data-dir`, which together locate the store."""


def data_dir_problem(data_dir: Path) -> str | None:
    """Return why the data directory, which need not exist yet, is not writable; None if it is."""
    problem = directory_problem(data_dir)
    return None if problem is None else f"--data-dir: the data directory {data_dir} cannot be written: {problem}"


def mapped_fields(given: Iterable[str]) -> dict[str, str]:
    """Read `--map FIELD=NAME`: the name in the file by field. Raises ConfigError with every invalid mapping."""
    from monitors.offline.dataset_fields import ALIASES, canonical  # noqa: PLC0415 - most commands need it not

    names: dict[str, str] = {}
    problems: list[str] = []
    for text in given:
        field, equals, name = (part.strip() for part in text.partition("="))
        ours = canonical(field)
        if not (field and equals and name):
            problems.append(f"--map: expected FIELD=NAME, for example user_input=query, got {text!r}")
        elif ours not in ALIASES:
            problems.append(f"--map: {field!r} is not a field; the fields are {', '.join(ALIASES)}")
        elif ours in names:
            problems.append(f"--map: {ours!r} is mapped twice")
        elif name in names.values():
            problems.append(f"--map: {name!r} is mapped to two fields")
        else:
            names[ours] = name
    if problems:
        raise ConfigError(problems)
    return names


def span(since: str) -> tuple[float, float]:
    """Return the Unix times from `since` (30m, 24h, 7d, or an ISO date or time) to now. Raises ValueError."""
    from monitors.analysis import captured  # noqa: PLC0415 - most commands need it not

    now = time.time()
    return captured.since(since, now), now + 1.0


def with_store(config: Shared, data_dir: Path, query: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, run `query` on it, and close it. Raises ConfigError if there is no store."""
    return run_on(open_store(config, data_dir), query)


def run_on(opened: Any, query: Callable[[Any], Awaitable[T]]) -> T:
    """Run `query` on what has a method `aclose`, and close it."""

    async def run() -> T:
        async with contextlib.aclosing(opened):
            return await query(opened)

    return asyncio.run(run())


def ask_kept(open_: Callable[[str], Any], config: Path | None, data_dir: Path, ask: Callable[[Any], Any]) -> Any:
    """Ask the documents beside the store, which `open_` opens by its URL. Errors are reported."""
    from gaugeway.settings.loading import load, store_url  # noqa: PLC0415 - most commands need them not

    with reported_errors():
        settings = load(config)
        if settings.store.url is None and not data_dir.is_dir():
            raise ValueError(f"{data_dir}: nothing was captured here; see --data-dir and --config")
        return run_on(open_(store_url(settings, data_dir)), ask)


def open_store(config: Shared, data_dir: Path) -> Any:  # a Store with `aclose`
    """Open the configured store. Raises ConfigError if there is none yet."""
    from gaugeway.settings.loading import store_url  # noqa: PLC0415 - most commands need them not
    from gaugeway.storage.stores import from_url  # noqa: PLC0415

    if config.store.url is None and not (data_dir / "store.db").exists():
        raise ConfigError([f"{data_dir / 'store.db'}: nothing was captured here; see --data-dir and --config"])
    return from_url(store_url(config, data_dir))


def catalogue_of(config: Config) -> Catalogue:
    """Build the metrics of a configuration without calling or opening anything."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - most commands need them not

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
    from monitors.analysis import captured  # noqa: PLC0415 - most commands need them not
    from monitors.metrics import lower_is_better  # noqa: PLC0415

    known = {enabled.metric.name: lower_is_better(enabled.metric) for enabled in catalogue.enabled}
    return lambda metric: known.get(captured.plain_name(metric), captured.lowest_is_best(metric))


def fail(problem: Exception | str, code: int = BAD_INPUT) -> NoReturn:
    """Print a problem, or those of a ConfigError, one line each, and exit with `code`."""
    for line in problem.problems if isinstance(problem, ConfigError) else [str(problem)]:
        click.echo(f"gaugeway: {concealed(line)}", err=True)
    sys.exit(code)


@contextlib.contextmanager
def reported_errors(interrupted: str = "") -> Iterator[None]:
    """Print errors in the input, one line each, and exit with 2; after Ctrl-C print `interrupted`, exit with 130."""
    try:
        yield
    except (ConfigError, OSError, ValueError) as error:  # EngineError and RefusedError among them
        fail(error)
    except RecursionError:
        fail("a value in the file is nested too deeply")
    except KeyboardInterrupt:
        if interrupted:
            click.echo(f"gaugeway: {interrupted}", err=True)
        sys.exit(INTERRUPTED)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_table(rows: Sequence[Sequence[str]], otherwise: str) -> None:
    """Print rows in columns; `otherwise` where there is none below the heading."""
    if len(rows) == 1:
        click.echo(otherwise)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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


def utc(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(data_dir: Path, action: str, **about: str) -> None:
    """Write an audit record to the data directory on this machine; where that is not possible, print why."""
    try:
        log = audit.open_file(data_dir)
    except OSError as error:
        click.echo(f"gaugeway: not in the audit log: {error}", err=True)
        return
    audit.tell(action, by=audit.whoami(), **about)
    audit.close_file(log)
