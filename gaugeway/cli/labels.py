"""`gaugeway labels` and `judge check`: human labels correct the judge, and show where and how it differs from them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from gaugeway.cli import shared
from gaugeway.cli.shared import NumberRange
from gaugeway.settings.loading import load
from gaugeway.settings.shared import Config
from gaugeway.storage.stores import Query, Store
from monitors.analysis import captured
from monitors.analysis.human_labels import Labelled, Passing, drawn, labelled, passings, scores
from monitors.analysis.judge_check import JudgeCheck, Judged, Wording, compare_wordings, judge_checks, judged_answers
from monitors.offline.library import evaluate_samples
from monitors.offline.reports.documents import markdown
from monitors.offline.results_codec import ResultsCache
from monitors.offline.run import EvaluationRequest

MAX_WORDINGS = 2
"""Wordings that are compared with the configured one: of two, the strongest named is wrong with probability <= .05."""
WORDINGS = Path(".gaugeway") / "runs" / "wordings.db"
"""Outcomes of wordings, so that no answer is judged twice."""


@click.command()
@click.option("--metric", help="Metric as stored. [those that have labels]")
@click.option("--app", help="[each app separately]")
@shared.since_option("30d")
@click.option(
    "--half-width",
    type=NumberRange(0, 0.5, min_open=True),
    default=0.03,
    help="Target half-width of the interval: mean ± this.",
)
@shared.table_or_json
@click.option("--draw", type=click.IntRange(min=1), help="Number of answers to draw for labelling. [as many as needed]")
@click.option("--output", type=shared.FILE, help="JSONL file for the drawn answers.")
@shared.stored_options
def labels(config: Path | None, data_dir: Path, **options: Any) -> None:
    """Correct the judge's mean by human labels, and compute how many labels are needed.

    Exit codes: 0 success, 2 bad input.
    """
    with shared.reported_errors():
        settings = load(config)
        passing = passings(shared.catalogue_of(settings))
        since, until = shared.span(options["since"])
        query = Query(since=since, until=until, metric=options["metric"], app=options["app"])
        wants_draw = options["output"] is not None or options["draw"] is not None
        if wants_draw and (options["output"] is None or options["metric"] is None):
            raise ValueError("drawing answers to label needs --metric and --output")

        async def query_store(store: Store) -> tuple[list[Labelled], list[dict[str, Any]]]:
            rows = await labelled(store, query, passing=passing, half_width=options["half_width"])
            return rows, await _draw(store, query, rows, options["draw"]) if wants_draw else []

        rows, records = shared.with_store(settings, data_dir, query_store)
        if not rows:
            raise ValueError("no labels in this period; use --metric to see how many are needed")
        if options["output"] is not None:
            lines = (msgspec.json.encode(record) + b"\n" for record in records)
            options["output"].write_bytes(b"".join(lines))
            click.echo(f"wrote {len(records)} answers to label: {options['output']}", err=True)
        if options["shown_as"] == "json":
            shared.print_json(rows)
        else:
            click.echo(markdown("labels.txt.j2", rows=rows))


async def _draw(store: Store, query: Any, rows: Sequence[Labelled], count: int | None) -> list[dict[str, Any]]:
    """Draw answers without a label; the judge's scores are omitted so that they do not bias the labels."""
    wanted = count if count is not None else max((max(0, (row.needed or 0) - row.labels) for row in rows), default=0)
    known = {label.sample_id for label in await store.ratings(query) if label.source == "rating"}
    # labelled answers are excluded after the draw, so that old and new ones together are one random sample
    everything = {point.sample_id for point in await scores(store, query)}
    records: list[dict[str, Any]] = []
    for name in drawn(everything, wanted + len(known)):
        found = await store.sample(name) if name not in known and len(records) < wanted else None
        if found is not None:
            records.append(captured.as_record(found[0], {}))
    return records


@click.group()
def judge() -> None:
    """Check the judge against people."""


@judge.command()
@click.option("--metric", help="Metric as stored. [those that have labels]")
@click.option("--app", help="[all together]")
@shared.since_option("30d")
@click.option("--truth", help="A metric whose scores stand for the truth, such as the LLM's. [human labels]")
@click.option("--wording", "paths", type=shared.FILE, multiple=True, help="TOML with other options of a geval: metric.")
@click.option("--limit", type=click.IntRange(min=10), default=200, help="Answers to judge by each.")
@click.option("--format", "shown_as", type=click.Choice(["markdown", "json"]), default="markdown", show_default=False)
@shared.stored_options
def check(config: Path | None, data_dir: Path, paths: Sequence[Path], **options: Any) -> None:
    """Compare judge and people: agreement, disagreements, calibration; propose a map, or the better of some wordings.

    Nothing is switched: a proposal is printed as TOML. Exit codes: 0 success, 2 bad input.
    """
    with shared.reported_errors():
        settings, metric = load(config), options["metric"]
        passing = passings(shared.catalogue_of(settings))
        since, until = shared.span(options["since"])
        query = Query(since=since, until=until, metric=metric, app=options["app"])
        if options["truth"] is not None and metric is None:
            raise ValueError("--truth needs --metric")
        if paths and (metric not in settings.metrics or not metric.startswith("geval:") or len(paths) > MAX_WORDINGS):
            raise ValueError(f"--wording needs --metric with a configured geval: metric, at most {MAX_WORDINGS} times")

        async def read(store: Store) -> tuple[list[JudgeCheck], list[Wording]]:
            checks = await judge_checks(store, query, passing=passing, truth=options["truth"])
            if not (checks and paths):
                return checks, []
            _, answers = await judged_answers(store, query, passing=passing, truth=options["truth"])
            return checks, await _compared(answers[-options["limit"] :], settings, metric, paths, passing(metric))

        checks, wordings = shared.with_store(settings, data_dir, read)
        if not checks:
            raise ValueError("no scores with labels in this period")
        if options["shown_as"] == "json":
            shared.print_json({"checks": checks, "wordings": wordings})
            return
        texts = {f"{metric}.{path.stem}": path.read_text("utf-8") for path in paths}
        click.echo(markdown("judge_check.md.j2", checks=checks, wordings=wordings, metric=metric, texts=texts))


async def _compared(
    answers: Sequence[Judged], settings: Config, metric: str, paths: Sequence[Path], rule: Passing
) -> list[Wording]:
    """Judge the answers by each wording, and compare those that every one gave a score."""
    plain = msgspec.structs.replace(settings.metrics[metric], calibration=None, enabled=True)
    kept = {name: value for name, value in plain.options.items() if name not in ("criteria", "steps", "rubric")}
    tables = {metric: plain}
    for path in paths:
        given = kept | tomllib.loads(path.read_text("utf-8"))
        tables[f"{metric}.{path.stem}"] = msgspec.structs.replace(plain, options=given)
    judging = msgspec.structs.replace(settings.judge, repeat=0.0)
    changed = msgspec.structs.replace(settings, metrics=tables, judge=judging)
    request, samples = EvaluationRequest(config=changed, metrics=list(tables)), [answer.sample for answer in answers]
    run = await evaluate_samples(samples, request, source="labels", cache=ResultsCache(WORDINGS))
    scores = {name: [row.score(name) for row in run.rows] for name in tables}
    whole = [at for at, some in enumerate(zip(*scores.values(), strict=True)) if None not in some]
    if not whole:
        without = [name for name, some in scores.items() if all(score is None for score in some)]
        raise ValueError(f"no answer has a score by every wording{', none by ' if without else ''}{', '.join(without)}")
    return compare_wordings(
        {name: [rule.passes(some[at] or 0.0) == answers[at].passed for at in whole] for name, some in scores.items()}
    )
