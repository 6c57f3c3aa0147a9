"""`gaugeway simulate`: simulates the alert rules on traffic like the captured one."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.markup import escape

from gaugeway.cli import shared
from gaugeway.cli.shared import NumberRange
from gaugeway.settings.loading import load
from gaugeway.settings.shared import Alerts, Config, Rule
from gaugeway.signals import enabled
from gaugeway.storage.stores import Query, Store
from monitors.alerting.rules import baseline_for, budget_parts, is_flipped, rules_of, tolerance_of, watch_of
from monitors.analysis import simulate as simulating
from monitors.analysis import simulate as simulation
from monitors.analysis import simulate_report
from monitors.analysis.human_labels import scores
from monitors.analysis.simulate_report import Report, delays, table

TOLERANCES = (0.02, 0.05, 0.10)
MORE_ALARMS, MORE_JUDGED, LESS_JUDGED = 5.0, 3.0, 0.5
MOST_SCORES = 4_000_000  # internal bound: commands an operator runs on a data set
"""Limit of simulated scores per setting without a drop; heavier traffic is simulated for fewer days."""
LEAST_DAYS = 4
INDEPENDENT = "They are independent: no sessions. Where scores of a session are alike, drops take longer to detect."
HINT_FROM_S = 20.0
_ROUNDED_S = 10
_DEFAULT_METRIC = "faithfulness"


@click.command()
@click.option("--metric", help="Metric as stored. [that of the first rule]")
@click.option("--app", help="[the one with the most scores]")
@shared.since_option("14d")
@click.option(
    "--preset", type=click.Choice(["beta", "llm", "binary"]), help="Synthetic scores instead of captured ones."
)
@click.option("--rate", type=NumberRange(0, min_open=True), default=10.0, help="Scores per minute of the preset.")
@click.option(
    "--drop",
    "drops",
    type=NumberRange(0, 1, min_open=True),
    multiple=True,
    help="Drop of the mean; repeatable. [.02 .05 .10 .20]",
)
@click.option("--streams", type=click.IntRange(1, 1000), default=16, help="Number of simulated streams.")
@click.option("--days", type=click.IntRange(LEAST_DAYS, 365), default=30, help="Simulated days without a drop.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Random seed.")
@shared.table_or_json
@click.option("--output", type=shared.FILE, multiple=True, help="A report: .md, .html, .svg or .json.")
@shared.stored_options
def simulate(config: Path | None, data_dir: Path, **options: Any) -> None:
    """Simulate how fast the alert rules detect drops and how often they alarm falsely, on captured or synthetic scores.

    Exit codes: 0 success, 2 bad input.
    """
    with shared.reported_errors():
        if options["preset"] is not None and options["metric"] is not None:
            raise ValueError("--metric is not used with --preset, whose scores belong to no metric; give one of them")
        for path in options["output"]:
            simulate_report.check(path)
        settings = load(config)
        catalogue = shared.catalogue_of(settings)
        signals, lowest = enabled(settings.signals.off), shared.lowest_is_best(catalogue)
        rules = rules_of(
            settings.alerts, [enabled_metric.metric.name for enabled_metric in catalogue.enabled], signals, lowest
        )
        rule = _rule(rules, options["metric"])
        parts = budget_parts(rules, settings.alerts)
        part = parts[rules.index(rule)] if rule in rules else 1.0 / max(1, len(rules))
        flipped = is_flipped(rule, lowest)
        traffic, about, judged = _traffic(settings, data_dir, rule, options, flipped=flipped)
        tried = _settings(rule, settings.alerts, part=part, flipped=flipped)
        tried = [setting for setting in tried if setting.rate * judged <= 1.0]
        with shared.console(stderr=True).status(f"simulating {len(tried)} settings"):
            rows = tuple(
                timed(simulating.simulate(traffic, tried, _plan(traffic, settings.alerts, options)), len(tried))
            )
        title = f"{options['preset'] or rule.metric}: how soon a drop is found"
        report = Report(title=title, about=(*about, *_meaning(settings.alerts)), rows=rows)
        for path in options["output"]:
            simulate_report.write(path, report)
            click.echo(f"wrote {path}", err=True)
        if options["shown_as"] == "json":
            shared.print_json(simulate_report.plain(report))
        else:
            _show(report)


def timed(
    found: Iterable[simulation.Simulated], count: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[simulation.Simulated]:
    """Yield the results; after the first of `count`, say how long all will take if that is long."""
    begin = clock()
    for number, result in enumerate(found):
        took = clock() - begin
        if number == 0 and count > 1 and took * count > HINT_FROM_S:
            about = math.ceil(took * count / _ROUNDED_S) * _ROUNDED_S
            click.echo(f"{count} settings take about {about} s; fewer --streams or --days take less", err=True)
        yield result


def _rule(rules: Sequence[Rule], metric: str | None) -> Rule:
    """Return the first rule of the metric; without one, the default rule."""
    named = metric.partition("~")[0] if metric is not None else None
    found = next((rule for rule in rules if named in (None, rule.metric)), None)
    found = found or Rule(metric=named or _DEFAULT_METRIC, baseline="auto")
    if found.detector != "esr":
        raise ValueError(f"only rules with the detector esr can be simulated; this one uses {found.detector!r}")
    return found


def _settings(rule: Rule, alerts: Alerts, *, part: float, flipped: bool) -> list[simulation.Setting]:
    """Return the rule as configured, and variants with one setting changed."""
    stream = watch_of(rule, alerts, part=part, flipped=flipped).stream("*")
    tolerance, per_month = tolerance_of(rule), alerts.false_alerts_per_30d
    what = "" if rule.slo is None else f"slo {rule.slo:g}, "
    baseline = baseline_for(rule, 0.0, flipped=flipped)

    def setting(
        name: str, *, tolerance: float = tolerance, alarms: float = 1.0, rate: float = 1.0
    ) -> simulation.Setting:
        budget = stream.budget_per_s * alarms if stream is not None else 0.0
        return simulation.Setting(name=name, tolerance=tolerance, budget_per_s=budget, baseline=baseline, rate=rate)

    return [
        setting(f"as configured: {what}tolerance {tolerance:g}"),
        *(setting(f"tolerance {other:g}", tolerance=other) for other in TOLERANCES if other != tolerance),
        setting(f"false_alerts_per_30d = {per_month * MORE_ALARMS:g}", alarms=MORE_ALARMS),
        setting(f"{MORE_JUDGED:g} x as many judged", rate=MORE_JUDGED),
        setting(f"{LESS_JUDGED:g} x as many judged", rate=LESS_JUDGED),
    ]


def _traffic(
    config: Config, data_dir: Path, rule: Rule, options: dict[str, Any], *, flipped: bool
) -> tuple[simulation.Traffic, tuple[str, ...], float]:
    """Return captured or preset scores, sentences about them, and the share of the answers that was judged."""
    if options["preset"] is not None:
        made = simulating.preset(options["preset"], options["rate"], options["seed"])
        about = f"Synthetic scores ({options['preset']}), mean {made.mean:.3f}, {options['rate']:g} a minute."
        return made, (about, INDEPENDENT), 0.0
    metric = options["metric"] or rule.metric
    since, until = shared.span(options["since"])
    query = Query(since=since, until=until, metric=metric, app=options["app"])

    async def query_store(store: Store) -> list[Any]:
        return list(await scores(store, query))

    if not (points := shared.with_store(config, data_dir, query_store)):
        raise ValueError(f"no scores of {metric} in this period; see --metric, --app and --since, or use --preset")
    # each app, judge and version of the metric is a separate stream
    kinds = Counter((point.app, point.version, point.judge or "") for point in points)
    kind, n = kinds.most_common(1)[0]
    chosen = [point for point in points if (point.app, point.version, point.judge or "") == kind]
    traffic = simulating.traffic_of(chosen, flipped=flipped)
    mean = 1.0 - traffic.mean if flipped else traffic.mean
    facts = [
        f"Captured scores of {metric} in {kind[0]}: {traffic.x.size:,} in {traffic.hours} full hours, mean {mean:.3f}."
    ]
    if n < len(points):
        facts.append(f"{len(points) - n:,} scores of other apps, judges or versions of the metric are left out.")
    return traffic, tuple(facts), median(point.rate for point in chosen)


def _plan(traffic: simulation.Traffic, alerts: Alerts, options: dict[str, Any]) -> simulation.Plan:
    """Return the requested plan, with fewer days for heavy traffic."""
    at_most = int(MOST_SCORES / (options["streams"] * traffic.per_hour * simulation.DAY_HOURS))
    return simulation.Plan(
        streams=options["streams"],
        days=max(LEAST_DAYS, min(options["days"], at_most)),
        bucket_s=alerts.bucket_s,
        seed=options["seed"],
        drops=tuple(sorted(options["drops"])) or simulation.DROPS,
    )


def _meaning(alerts: Alerts) -> tuple[str, ...]:
    added = f"add the watermark of {alerts.watermark_s:g} s and the judge's time"
    budget = "The budget is this stream's share of all false alarms."
    return (
        f"Delays run from the drop to the end of the bucket of the alarm; {added}.",
        "They are medians; in brackets is the time within which 90 % were found.",
        f"Not found: not within {simulation.LONGEST_SCORES:,} scores or {simulation.LONGEST_HOURS // 24} days.",
        f"A drop means that a share of the answers scores 0. {budget}",
    )


def _show(report: Report) -> None:
    shown = shared.table(report.title, "setting")
    for name in ("drop", "scores to the alarm", "time to the alarm"):
        shown.add_column(name, justify="right" if name == "drop" else "left", no_wrap=True)
    for row, (name, m0, alarms, *_) in zip(report.rows, table(report.rows)[1:], strict=True):
        about = "\n".join([name, f"m0: {m0}", f"false alarms in 30 days: {alarms}"])
        scores, times = zip(*map(delays, row.found), strict=True)
        shown.add_row(
            escape(about), "\n".join(f"{finding.drop:g}" for finding in row.found), *map("\n".join, (scores, times))
        )
    console = shared.console()
    console.print(shown)
    for sentence in report.about:
        console.print(f"[dim]{escape(sentence)}[/dim]", soft_wrap=True)
