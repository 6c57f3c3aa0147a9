"""`gaugeway evaluate`, `compare-runs`, `replay` and `export`: offline evaluation."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from gaugeway.cli import shared
from gaugeway.cli.shared import FILE, NumberRange, ask_kept, config_option, directory_option, since_option
from gaugeway.extensions import registered
from gaugeway.records import Sample
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load
from gaugeway.settings.shared import Config
from gaugeway.storage.stores import Store
from monitors.analysis.captured import UnknownMetricError, check_metric
from monitors.analysis.datasets import open_datasets
from monitors.offline import comparison, dataset, progress, reports
from monitors.offline.comparison import Comparison
from monitors.offline.export import Exported
from monitors.offline.export import export as run_export
from monitors.offline.library import evaluate_samples
from monitors.offline.replay import replay as run_replay
from monitors.offline.reports import Extras
from monitors.offline.results import Run
from monitors.offline.results_codec import ResultsCache
from monitors.offline.run import LLM, NO_JUDGE, EvaluationRequest, Plan, open_plan

MISSED = 1
RUNS = Path(".gaugeway") / "runs"
_POSITIVE = click.IntRange(min=1)
_IMPORT_STRING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


_judged = shared.with_options(
    click.option("--metrics", help="Names or import strings, comma-separated, or 'all'. [those of the configuration]"),
    config_option(),
    click.option("--judge", help="A model, llm, none, registered name or import string. [the configured one, if any]"),
    click.option("--judge-url", help="Base URL of the judge. [that of [judge], else of the first upstream]"),
    shared.judge_kind_option,
    click.option(
        "--output",
        type=FILE,
        multiple=True,
        help="A report: .html, .md, .json or .xml (JUnit), or one line per sample: .csv or .jsonl.",
    ),
    click.option("--limit", type=_POSITIVE, help="Maximum number of samples. [all]"),
    click.option("--concurrency", type=_POSITIVE, help="Concurrent samples, and concurrent judge calls."),
)


@click.command()
@click.argument("file", type=FILE, required=False)
@_judged
@click.option("--dataset", metavar="NAME[@VERSION]", help="A data set of `gaugeway dataset`; FILE has new answers.")
@directory_option()
@shared.map_option("Name of a field in the file: user_input=query; repeatable.")
@click.option("--judge-repeat", type=NumberRange(0, 1), help="Share of samples judged twice. [judge.repeat]")
@click.option("--fail-under", multiple=True, help="Required means: faithfulness=0.8,hallucination=0.1")
@click.option(
    "--max-failed",
    type=NumberRange(0, 1),
    default=0.1,
    help="Share of failed evaluations above which --fail-under fails.",
)
@click.option("--compare-with", type=FILE, help="The JSON report of an earlier run.")
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 if a metric is worse than in that run.")
@click.option("--run-file", type=FILE, help="File that caches outcomes. [.gaugeway/runs/NAME.db]")
@click.option("--fresh", is_flag=True, help="Ignore cached outcomes and compute everything.")
def evaluate(file: Path | None, **options: Any) -> None:
    """Score a data set (JSONL, JSON, CSV, Parquet) with the metrics and the judge of a configuration.

    With --dataset its recorded answers are scored, or those of FILE, which then has one with the id of each row. Exit
    codes: 0 success, 1 a floor is missed, 2 bad input. A second run judges only what is missing.
    """
    with _reported_errors(options["metrics"]):
        required = {
            name: limit for text in options["fail_under"] for name, limit in comparison.parse_floors(text).items()
        }
        against: Path | None = options["compare_with"]
        old = _load_run(against) if against is not None else None
        request = _request(_settings(options), options)
        samples, notes, source = _samples(file, options)
        cache = ResultsCache(
            options["run_file"] or RUNS / f"{Path(source.partition('@')[0]).stem}.db", fresh=options["fresh"]
        )
        checks = partial(_check_floors, floors=required)
        with progress.progress(shared.console(stderr=True)) as show:
            running = evaluate_samples(
                samples, request, source=source, cache=cache, on_progress=show, on_plan=checks, notes=notes
            )
            run = asyncio.run(running)
        judged = comparison.check_floors(run, required, max_failed=options["max_failed"])
        compared = comparison.compare(old, run) if old is not None else []
        console = shared.console()
        progress.show_run(console, run)
        if old is not None:
            progress.show_comparison(console, compared, str(against), comparison.unpaired(old, run))
        progress.show_floors(console, judged)
        _write(options["output"], run, Extras(floors=judged, comparisons=compared, against=str(against or "")))
    sys.exit(MISSED if comparison.any_missed(judged) or _worse(compared, options) else 0)


def _samples(file: Path | None, options: dict[str, Any]) -> tuple[Sequence[Sample], Sequence[str], str]:
    """Return the samples of a file, or of a stored data set with its answers or the file's; notes; and their source."""
    named, limit, renamed = options["dataset"], options["limit"], shared.mapped_fields(options["mapped"])
    if file is None and named is None:
        raise ConfigError(["give a FILE or --dataset"])
    answers, notes = dataset.read(file, limit=None if named else limit, renamed=renamed) if file else ([], [])
    if named is None:
        return answers, notes, str(file)
    made, records = ask_kept(open_datasets, options["config"], options["data_dir"], lambda kept: kept.read(named))
    samples, more = dataset.collect(enumerate(records, 1), where=f"{named} row ", limit=limit)
    given = {answer.id: answer for answer in answers}
    if missing := [sample.id for sample in samples if given and sample.id not in given]:
        raise ConfigError([f"{file}: no answer with the id {name}, a row of {named}" for name in missing])
    samples = [_answered(sample, given.get(sample.id, sample)) for sample in samples]
    return samples, [*notes, *more], f"{made.name}@{made.version} ({made.hash})"


def _answered(row: Sample, answer: Sample) -> Sample:
    """Return a row with the answer, and its passages if it has some."""
    seen = answer if answer.context_source != "none" else row
    row = replace(row, response=answer.response, calls=answer.calls, duration_s=answer.duration_s)
    return replace(row, contexts=seen.contexts, context_source=seen.context_source)


@click.command("compare-runs")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option(
    "--output", type=FILE, multiple=True, help="A report on NEW with the comparison: .html, .md, .json, .xml."
)
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 if a metric is worse.")
def compare_runs(old: Path, new: Path, **options: Any) -> None:
    """Compare two JSON reports of the same data set: better, worse, or how many more samples are needed."""
    with _reported_errors():
        before, after = _load_run(old), _load_run(new)
        if not (compared := comparison.compare(before, after)):
            raise ConfigError([f"{old} and {new} have no metric in common"])
        progress.show_comparison(shared.console(), compared, str(old), comparison.unpaired(before, after))
        _write(options["output"], after, Extras(comparisons=compared, against=str(old)))
    sys.exit(MISSED if _worse(compared, options) else 0)


@click.command()
@since_option("24h")
@_judged
@click.option("--label", help="Suffix of the replayed metrics' names, after ~. [the judge's model, or 'replay']")
@directory_option()
def replay(since: str, label: str | None, data_dir: Path, **options: Any) -> None:
    """Score captured exchanges again, with another judge or other metrics; the old scores do not change.

    The new scores are stored in the same store as separate metrics: faithfulness~JUDGE.
    """
    with _reported_errors(options["metrics"]):
        settings = _settings(options)
        request = _request(settings, options)
        _check_content(settings)
        start, end = shared.span(since)

        async def run() -> tuple[Run, Run]:
            async with (
                contextlib.aclosing(shared.open_store(settings, data_dir)) as store,
                open_plan(request) as (plan, _),
            ):
                with progress.progress(shared.console(stderr=True)) as show:
                    return await run_replay(
                        store, plan, since=start, until=end, label=label, limit=options["limit"], on_progress=show
                    )

        old, new = asyncio.run(run())
        console = shared.console()
        progress.show_run(console, new)
        if compared := comparison.compare(old, new):
            progress.show_comparison(console, compared, "the stored scores")
        _write(options["output"], new, Extras(comparisons=compared, against="the stored scores"))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@since_option("24h")
@click.option("--worst", type=_POSITIVE, help="Only the N exchanges with the worst scores. [all]")
@click.option("--metric", help="Metric to select and rank by, as stored (with ~ if replayed). [any]")
@click.option("--gaps", is_flag=True, help="Only questions that were declined, found no passages or scored low.")
@config_option()
@directory_option()
def export(file: Path, since: str, data_dir: Path, **options: Any) -> None:
    """Write captured exchanges with their scores as JSONL for `gaugeway evaluate` ("-": standard output)."""
    with _reported_errors():
        settings = load(options["config"])
        _check_content(settings)
        start, end = shared.span(since)

        async def run(store: Store) -> Exported:
            if (metric := options["metric"]) is not None:
                try:
                    await check_metric(store, metric, since=start, until=end, enabled=settings.metrics)
                except UnknownMetricError as error:
                    raise ConfigError([f"--metric: {error}"]) from error
            with click.open_file(str(file), "w", encoding="utf-8") as out:
                chosen = {name: options[name] for name in ("worst", "metric", "gaps")}
                return await run_export(store, out, since=start, until=end, **chosen)

        exported = shared.with_store(settings, data_dir, run)
    said = [f"{exported.written} exchanges written"]
    said += [f"{exported.left_out} without an answer left out"] if exported.left_out else []
    if n := exported.conversations:
        said.append(f"{n} {'record' if n == 1 else 'records'} of whole conversations left out")
    click.echo(", ".join(said), err=True)


def _settings(options: dict[str, Any]) -> Config:
    """Read the configuration, with the judge of the command line."""
    named, url = _names_model(options), options["judge_url"]
    settings = load(options["config"], judge=(options["judge"] if named else None, url, options["judge_kind"]))
    if (repeat := options.get("judge_repeat")) is not None:
        settings = msgspec.structs.replace(settings, judge=msgspec.structs.replace(settings.judge, repeat=repeat))
    if named and settings.judge.base_url is None:
        raise ConfigError(
            [f"--judge-url: missing: {options['judge']} has no address in [judge], and there is no upstream"]
        )
    if url is not None and settings.judge.model is None:
        raise ConfigError(
            ["--judge: missing: --judge-url is the address of a judge, which needs the name of its model"]
        )
    return settings


def _names_model(options: dict[str, Any]) -> bool:
    """Return whether `--judge` names a model. `llama3:latest` looks like an import string: `--judge-url` decides."""
    judge: str | None = options["judge"]
    if judge is None or judge in (LLM, NO_JUDGE):
        return False
    is_class = judge in registered("judges") or _IMPORT_STRING.fullmatch(judge) is not None
    return options["judge_url"] is not None or not is_class


def _request(settings: Config, options: dict[str, Any]) -> EvaluationRequest:
    for path in options["output"]:
        reports.check(path)
    text: str | None = options["metrics"]
    names = None if text is None else _names(text)
    judge = LLM if _names_model(options) else options["judge"]
    return EvaluationRequest(config=settings, metrics=names, judge=judge, concurrency=options["concurrency"])


def _check_floors(plan: Plan, floors: dict[str, float]) -> None:
    known = [enabled.metric.name for enabled in plan.metrics]
    if unknown := [name for name in floors if name not in known]:
        raise ConfigError(
            [f"--fail-under: {name!r} is not computed; computed are: {', '.join(known)}" for name in unknown]
        )


def _check_content(config: Config) -> None:
    if not config.capture.content:
        raise ConfigError(["capture.content is false: the store has only hashes of the texts"])


def _load_run(path: Path) -> Run:
    try:
        return Run.load(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error


def _write(paths: tuple[Path, ...], run: Run, extras: Any) -> None:
    for path in paths:
        reports.write(run, path, extras)
        click.echo(f"wrote {path}", err=True)


def _worse(compared: list[Comparison], options: dict[str, Any]) -> bool:
    return options["fail_if_worse"] and any(metric.verdict == "worse" for metric in compared)


@contextlib.contextmanager
def _reported_errors(metrics: str | None = None) -> Iterator[None]:
    """Report errors; those about the names given with `--metrics` name the option."""
    with shared.reported_errors("interrupted; finished work is saved, run the same command to continue"):
        try:
            yield
        except ConfigError as error:
            names = [] if metrics is None else _names(metrics)
            raise ConfigError([_of_option(line, names) for line in error.problems]) from error


def _names(metrics: str) -> list[str]:
    return [name.strip() for name in metrics.split(",") if name.strip()]


def _of_option(line: str, names: Sequence[str]) -> str:
    key, _, problem = line.partition(": ")
    if names and key == "metrics":
        return f"--metrics: {problem}"
    name = key.removeprefix("metrics.")
    return f"--metrics: {name}: {problem}" if name != key and name in names else line
