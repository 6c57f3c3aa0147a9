"""`gaugeway evaluate`, `compare-runs`, `replay` and `export`: the evaluation plane without traffic."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from monitors.cli.config_option import config_option
from monitors.runtime.settings import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from monitors.config import Config
    from monitors.offline.comparison import Comparison
    from monitors.offline.results import Run
    from monitors.offline.run import Plan
    from monitors.storage.stores import Store

F = TypeVar("F", bound=Callable[..., Any])
MISSED, BAD_INPUT, INTERRUPTED = 1, 2, 130
RUNS = Path(".gaugeway") / "runs"
_POSITIVE = click.IntRange(min=1)
_PATH = click.Path(path_type=Path, dir_okay=False)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_judged = _options(
    click.option("--metrics", help="Names or import strings, separated by commas; 'all'. [those of the configuration]"),
    config_option(),
    click.option("--judge", help="llm, none, or an import string. [the configuration's, if it has one]"),
    click.option("--output", type=_PATH, multiple=True, help="A report: .html, .md, .json or .xml (JUnit)."),
    click.option("--limit", type=_POSITIVE, help="At most so many samples. [all]"),
    click.option("--concurrency", type=_POSITIVE, help="Samples, and questions to the judge, at once."),
)
_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="GAUGEWAY_DATA_DIR",
    default=Path("gaugeway-data"),
    show_default=True,
    help="Where the embedded store lives.",
)


@click.command()
@click.argument("file", type=_PATH)
@_judged
@click.option("--fail-under", multiple=True, help="Floors for means: faithfulness=0.8,hallucination=0.1")
@click.option("--max-failed", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="Share; for floors.")
@click.option("--compare-with", type=_PATH, help="An earlier run's JSON report.")
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 when a metric is worse than there.")
@click.option("--run-file", type=_PATH, help="Where outcomes are kept. [.gaugeway/runs/NAME.db]")
@click.option("--fresh", is_flag=True, help="Compute everything, also what is known from an earlier run.")
def evaluate(file: Path, **options: Any) -> None:
    """Score a data set (JSONL, JSON, CSV, Parquet) with the metrics and the judge of a configuration.

    Exit 0 fine, 1 a floor is missed, 2 bad input. A second run asks the judge only for what is missing.
    """
    from monitors.offline import comparison  # noqa: PLC0415 - `--help` need not load them
    from monitors.offline import dataset as reading  # noqa: PLC0415
    from monitors.offline import progress as terminal  # noqa: PLC0415
    from monitors.offline import thresholds as floors  # noqa: PLC0415
    from monitors.offline.library import evaluate_samples  # noqa: PLC0415
    from monitors.offline.reports import Extras  # noqa: PLC0415
    from monitors.offline.results_cache import Kept  # noqa: PLC0415

    with _complaining():
        wanted_floors = {name: limit for text in options["fail_under"] for name, limit in floors.parse(text).items()}
        against: Path | None = options["compare_with"]
        old = _load_run(against) if against is not None else None
        wanted = _wanted(options)
        samples, notes = reading.read(file, limit=options["limit"])
        kept = Kept(options["run_file"] or RUNS / f"{file.stem}.db", fresh=options["fresh"])
        with terminal.progress(_console(stderr=True)) as show:
            running = evaluate_samples(
                samples,
                wanted,
                source=str(file),
                kept=kept,
                on_progress=show,
                on_plan=lambda plan: _check_floors(plan, wanted_floors),
                notes=notes,
            )
            run = asyncio.run(running)
        judged = floors.judge(run, wanted_floors, max_failed=options["max_failed"])
        compared = comparison.compare(old, run) if old is not None else []
        console = _console()
        terminal.show_run(console, run)
        if old is not None:
            terminal.show_comparison(console, compared, str(against), comparison.unpaired(old, run))
        terminal.show_floors(console, judged)
        _write(options["output"], run, Extras(floors=judged, comparisons=compared, against=str(against or "")))
    sys.exit(MISSED if floors.missed(judged) or _worse(compared, options) else 0)


@click.command("compare-runs")
@click.argument("old", type=_PATH)
@click.argument("new", type=_PATH)
@click.option(
    "--output", type=_PATH, multiple=True, help="A report on NEW with the comparison: .html, .md, .json, .xml."
)
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 when a metric is worse.")
def compare_runs(old: Path, new: Path, **options: Any) -> None:
    """Compare two JSON reports of the same data set: better, worse, or how many more samples it takes to tell."""
    from monitors.offline import comparison  # noqa: PLC0415 - `--help` need not load them
    from monitors.offline import progress as terminal  # noqa: PLC0415
    from monitors.offline.reports import Extras  # noqa: PLC0415

    with _complaining():
        before, after = _load_run(old), _load_run(new)
        compared = comparison.compare(before, after)
        if not compared:
            raise ConfigError([f"{old} and {new} have no metric in common"])
        terminal.show_comparison(_console(), compared, str(old), comparison.unpaired(before, after))
        _write(options["output"], after, Extras(comparisons=compared, against=str(old)))
    sys.exit(MISSED if _worse(compared, options) else 0)


@click.command()
@click.option("--since", default="24h", show_default=True, help="30m, 24h, 7d, or an ISO date or time (UTC).")
@_judged
@click.option("--label", help="What follows the ~ in the replayed metrics' names. [the judge's model, or 'replay']")
@_data_dir
def replay(since: str, label: str | None, data_dir: Path, **options: Any) -> None:
    """Score captured exchanges again, with a new judge or new metrics; the old scores stay as they are.

    The new ones are kept in the same store as metrics of their own: faithfulness~JUDGE.
    """
    from monitors.offline import comparison  # noqa: PLC0415 - `--help` need not load them
    from monitors.offline import plan as parts  # noqa: PLC0415
    from monitors.offline import progress as terminal  # noqa: PLC0415
    from monitors.offline.replay import replay as run_replay  # noqa: PLC0415
    from monitors.offline.reports import Extras  # noqa: PLC0415

    with _complaining():
        wanted = _wanted(options)
        _check_content(wanted.config)
        start, end = _span(since)

        async def run() -> tuple[Run, Run]:
            async with contextlib.aclosing(_store(wanted.config, data_dir)) as store, parts.opened(wanted) as (plan, _):
                with terminal.progress(_console(stderr=True)) as show:
                    return await run_replay(
                        store, plan, since=start, until=end, label=label, limit=options["limit"], on_progress=show
                    )

        old, new = asyncio.run(run())
        console = _console()
        terminal.show_run(console, new)
        compared = comparison.compare(old, new)
        if compared:
            terminal.show_comparison(console, compared, "the scores there were")
        _write(options["output"], new, Extras(comparisons=compared, against="the scores there were"))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--since", default="24h", show_default=True, help="30m, 24h, 7d, or an ISO date or time (UTC).")
@click.option("--worst", type=_POSITIVE, help="Only so many, those with the worst scores. [all]")
@click.option("--metric", help="The metric that counts, as stored (with ~ where replayed). [any]")
@config_option()
@_data_dir
def export(file: Path, since: str, data_dir: Path, **options: Any) -> None:
    """Write captured exchanges with their scores to a JSONL that `gaugeway evaluate` reads ("-": standard output)."""
    from monitors.config import load  # noqa: PLC0415 - `--help` need not load them
    from monitors.offline.export import Exported  # noqa: PLC0415
    from monitors.offline.export import export as run_export  # noqa: PLC0415

    with _complaining():
        settings = load(options["config"])
        _check_content(settings)
        start, end = _span(since)

        async def run() -> Exported:
            async with contextlib.aclosing(_store(settings, data_dir)) as store:
                with click.open_file(str(file), "w", encoding="utf-8") as out:
                    return await run_export(
                        store, out, since=start, until=end, worst=options["worst"], metric=options["metric"]
                    )

        exported = asyncio.run(run())
    left_out = f", {exported.left_out} without an answer left out" if exported.left_out else ""
    click.echo(f"{exported.written} exchanges written{left_out}", err=True)


def _wanted(options: dict[str, Any]) -> Any:
    from monitors.config import load  # noqa: PLC0415 - `--help` need not load it
    from monitors.offline import plan as parts  # noqa: PLC0415
    from monitors.offline import reports  # noqa: PLC0415

    for path in options["output"]:
        reports.check(path)
    text: str | None = options["metrics"]
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    judge: str | None = options["judge"]
    if judge is not None and judge not in (parts.LLM, parts.NO_JUDGE) and ":" not in judge:
        raise ConfigError([f"--judge: expected llm, none or an import string 'pkg.mod:Name', got {judge!r}"])
    return parts.Wanted(config=load(options["config"]), metrics=names, judge=judge, concurrency=options["concurrency"])


def _check_floors(plan: Plan, floors: dict[str, float]) -> None:
    known = [one.metric.name for one in plan.metrics]
    if unknown := [name for name in floors if name not in known]:
        raise ConfigError(
            [f"--fail-under: {name!r} is not computed; these are: {', '.join(known)}" for name in unknown]
        )


def _check_content(config: Config) -> None:
    if not config.capture.content:
        raise ConfigError(["capture.content is false: the store holds hashes, and there is nothing to read or judge"])


def _span(since: str) -> tuple[float, float]:
    from monitors.analysis import captured  # noqa: PLC0415 - `--help` need not load it

    now = time.time()
    return captured.since(since, now), now + 1.0


def _store(config: Config, data_dir: Path) -> Any:
    from monitors.config import store_url  # noqa: PLC0415 - `--help` need not load them
    from monitors.storage.stores import from_url  # noqa: PLC0415

    url = store_url(config, data_dir)
    if config.store.url is None and not (data_dir / "store.db").exists():
        raise ConfigError([f"{data_dir / 'store.db'}: nothing was captured here; see --data-dir and --config"])
    store: Store = from_url(url)
    return store


def _load_run(path: Path) -> Run:
    from monitors.offline.results import Run  # noqa: PLC0415 - `--help` need not load it

    try:
        return Run.load(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error


def _write(paths: tuple[Path, ...], run: Run, extras: Any) -> None:
    from monitors.offline import reports  # noqa: PLC0415 - `--help` need not load it

    for path in paths:
        reports.write(path, run, extras)
        click.echo(f"wrote {path}", err=True)


def _worse(compared: list[Comparison], options: dict[str, Any]) -> bool:
    return options["fail_if_worse"] and any(one.verdict == "worse" for one in compared)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415 - only where something is shown

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=160)


@contextlib.contextmanager
def _complaining() -> Iterator[None]:
    """Say what is wrong with the input, one line each, and exit with 2."""
    from monitors.offline.dataset_fields import DataError  # noqa: PLC0415 - `--help` need not load it

    try:
        yield
    except (ConfigError, DataError) as error:
        _fail(error.problems)
    except (OSError, ValueError) as error:  # EngineError and RefusedError among them
        _fail([str(error)])
    except KeyboardInterrupt:
        click.echo("gaugeway: stopped; what was done is kept, the same command goes on from there", err=True)
        sys.exit(INTERRUPTED)


def _fail(problems: list[str]) -> NoReturn:
    for line in problems:
        click.echo(f"gaugeway: {line}", err=True)
    sys.exit(BAD_INPUT)
