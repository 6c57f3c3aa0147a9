"""One app: every metric over time, its scores, traffic, and the parts of its traffic."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

from litestar import get
from litestar.exceptions import HTTPException
from litestar.params import FromPath, FromQuery
from litestar.response import Redirect, Template
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace as replace_struct

from dashboards.web.addresses import APPS, address_with, app_page, fits_in_path
from dashboards.web.app_readings import HeatMapReader, TrafficReader, drawn
from dashboards.web.charts import Dot, Line, Mark, bars, sparkline, timeline
from dashboards.web.format import day, duration, iso, number, shortened
from dashboards.web.quality_matrix import ORDER, RECENT_PART, Trend, Watches, trend_between
from dashboards.web.site import Page, Site
from dashboards.web.toolbar import TimeRange, address, time_range
from gaugeway.signals import SIGNALS, UNDIRECTED
from gaugeway.storage.stores import Query
from monitors.alerting.rule_watch import ALL
from monitors.analysis.quality import Quality, two_tiers
from monitors.analysis.series import (
    FEW_POINTS,
    ReferenceLine,
    SeriesGroup,
    SeriesPoint,
    SeriesQuery,
    chosen_step,
    marks_of,
    reference_lines,
)
from monitors.analysis.series import Mark as SeriesMark
from monitors.metrics import ANCHOR, DISAGREEMENT
from monitors.statistics.confidence_sequence import Level

MAX_NAME = 300
MAX_CHARTS, MAX_LARGE, LEAST_LARGE = 24, 4, 2
"""Metrics and signals with a chart, and those of them with a large one: the watched ones, or else the first two."""
MAX_CHANGES = 8
"""Changes of the last 24 hours that are named: the latest."""
USUAL = 0.5
"""The usual value of a signal that compares with the app's own past."""
MAX_TAGS = 12
"""Tags offered to break down by."""
MAX_TABLE_ROWS = 48
"""Latest steps in the table behind a chart; the API has all."""
READING_S = 0.2
"""How long a view waits for the store; the browser asks again for what is incomplete."""
HEIGHT = 220
LEAST_DOTS = 2
"""Means of a chart: a single dot shows less than the number beside it."""
MARKS, LABEL = 4, 34
"""Marks of a chart without JavaScript, and characters of one."""
SMALL = (240.0, 56.0)
"""Width and height of a small chart."""
DAY_S = 86_400.0
MANY_DAYS_S = 4 * DAY_S


class MetricView(Struct, frozen=True, kw_only=True):
    """One metric over the range: its value, its trend within the range, its scores, and its chart without JavaScript.

    `value` is the mean that the overview shows, of the last `window_s` seconds; for a range that has ended that of the
    range, with `window_s` 0. `line` is the SLO or baseline.
    """

    metric: str
    group: SeriesGroup | None
    value: Quality | SeriesPoint | None
    window_s: float
    trend: Trend
    line: ReferenceLine | None
    drawing: Markup
    complete: bool


class Changed(Struct, frozen=True, kw_only=True):
    """Something new in an app at Unix time `at` (None: some time in the window of its means), in words."""

    at: float | None
    words: str
    url: str = ""


class AppRequest(Struct, frozen=True, kw_only=True):
    """What the address asks for."""

    app: str
    range: TimeRange
    metric: str
    by: str

    def url(self, path: str, **fields: str) -> str:
        """The address of another view with the app and time range of this one."""
        return f"{path}?{urlencode({'app': self.app, **self.range.params, **fields})}"

    def slice_url(self, value: str) -> str:
        """The address of the exchanges of a slice."""
        tag = self.by.partition(":")[2]
        return self.url("/explore", metric=self.metric, **({"tag": f"{tag}={value}"} if tag else {self.by: value}))

    def query(self, metric: str, by: str = "") -> SeriesQuery:
        """The series of a metric over the range, in the steps that are read first."""
        found = self.range
        return SeriesQuery(
            app=self.app,
            metric=metric,
            by=by,
            since=found.since,
            until=found.until,
            step_s=chosen_step(found.seconds, points=FEW_POINTS),
        )

    def series_url(self, metric: str, **fields: str) -> str:
        """The address of a metric's data."""
        return f"/api/series?{urlencode({'app': self.app, 'metric': metric, **self.range.params, **fields})}"


def known_metrics(site: Site, app: str, enabled: Sequence[str]) -> list[str]:
    """The metrics and signals with recent scores of an app, metrics first; the enabled ones if there are none."""
    found = {quality.metric for quality in site.insight.quality() if quality.app == app and not quality.slice}
    found |= {stream.metric for stream in site.engine.streams() if stream.app == app}
    return sorted(found or set(enabled), key=lambda name: (name in SIGNALS, name))


def ranked(site: Site, app: str, metrics: Sequence[str], enabled: Sequence[str]) -> tuple[list[str], int]:
    """The metrics of an app, the most important first, and how many of them have a large chart.

    Those whose alert fires come first; then those with an objective, with a recent alert, with a rule, those that are
    no signal, those with scores, the most first. Whatever the time range. Watched ones have large charts.
    """
    alerts = [alert for alert in site.engine.alerts() if alert.app in (app, ALL)]
    firing = {alert.metric for alert in alerts if alert.state == "firing"}
    alerted = {alert.metric for alert in alerts}
    rules = [rule for rule in site.config.alerts.rules or () if any(fnmatchcase(app, name) for name in rule.apps)]
    objectives = {rule.metric for rule in rules if rule.slo is not None}
    watched = {rule.metric for rule in rules} | {stream.metric for stream in site.engine.streams() if stream.app == app}
    scores = {
        quality.metric: quality.n for quality in site.insight.quality() if quality.app == app and not quality.slice
    }
    place = {metric: index for index, metric in enumerate(enabled)}

    def rank(metric: str) -> tuple[bool, bool, bool, bool, bool, bool, int, str]:
        return (
            metric not in firing,
            metric not in objectives,
            metric not in alerted,
            metric not in watched,
            metric in SIGNALS,
            not scores.get(metric),
            place.get(metric, len(place)),
            metric,
        )

    large = sum(metric in firing or (metric in watched and metric not in SIGNALS) for metric in metrics)
    return sorted(metrics, key=rank), min(MAX_LARGE, max(LEAST_LARGE, large))


def changes_of(site: Site, app: str, now: float) -> list[Changed]:
    """What changed in an app in the last 24 hours, the latest first: models, prompts, releases, sources, passages."""
    every = [version for version in site.engine.versions.all() if version.app == app]
    found = []
    for version in site.engine.versions.changes():
        if version.app != app or version.first_seen < now - DAY_S:
            continue
        same = [other for other in every if other.kind == version.kind and other.first_seen < version.first_seen]
        kind, old = version.kind.removeprefix("tag:"), max(same, key=lambda other: other.exchanges, default=None)
        fields = {"app": app, "by": version.kind, "a": "" if old is None else old.value, "b": version.value}
        url = address_with("/compare", fields) if old is not None else ""
        found.append(Changed(at=version.first_seen, words=f"{kind} {version.value}", url=url))
    for alert in site.engine.alerts():
        if alert.app == app and alert.finding.onset > now - DAY_S:
            sources = [change for change in alert.changes or () if change.kind in ("source", "documents")]
            words = [f"{change.kind} {change.value}" for change in sources]
            found += [Changed(at=alert.finding.onset, words=said, url=f"/alerts/{alert.fingerprint}") for said in words]
    for quality in site.insight.quality():
        if quality.app == app and quality.metric == "contexts_per_answer" and not quality.slice:
            more, fewer = (quality.ci_low or 0.0) > USUAL, (1.0 if quality.ci_high is None else quality.ci_high) < USUAL
            if more or fewer:
                said = f"{'more' if more else 'fewer'} passages per answer than usual"
                found.append(Changed(at=None, words=said))
    found.sort(key=lambda changed: -(changed.at or now))
    return list({changed.words: changed for changed in found}.values())[:MAX_CHANGES]


def health_of(states: Collection[str]) -> str:
    """The state of an app, that of its worst rule; "unwatched" without one."""
    return min(states, key=ORDER.index, default="unwatched")


async def is_known(site: Site, app: str, metrics: Sequence[str]) -> bool:
    """Return whether an app has recent scores or answers, a rule's stream, or a stored evaluation of the metrics."""
    if any(name == app for name, _ in site.apps()) or any(stream.app == app for stream in site.engine.streams()):
        return True
    now = site.clock()
    for metric in metrics:
        found = await site.insight.store.series(Query(since=0.0, until=now + DAY_S, app=app, metric=metric, limit=1))
        if found:
            return True
    return False


def tiers_of(site: Site, app: str, enabled: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of an app that decisions and an LLM judge: estimates by each, and that of their disagreement."""
    known = {quality.metric: quality for quality in site.insight.quality() if quality.app == app and not quality.slice}
    judges, tiers = {metric["name"]: metric["judge"] for metric in enabled}, []
    for name in two_tiers(judges):
        names = (name, name + ANCHOR, name + DISAGREEMENT)
        rows = [known.get(each) or Quality(app=app, metric=each, n=0, n_eff=0.0, coverage_ratio=0.0) for each in names]
        if any(row.n for row in rows):
            tiers.append(rows)
    return {"tiers": tiers, "judges": judges, "window_s": site.config.monitors.window_s}


def drawing(asked: AppRequest, query: SeriesQuery, group: SeriesGroup | None, site: Site, *, large: bool) -> Markup:
    """The chart of a metric that is shown without JavaScript; empty with fewer than two means."""
    step, since, until = query.step_s, query.steps.start * query.step_s, query.steps.stop * query.step_s
    dots = [
        Dot(at=point.at + step / 2, mean=point.mean, low=point.ci_low, high=point.ci_high, n=point.n)
        for point in (group.points if group is not None else ())
        if point.mean is not None
    ]
    if group is None or len(dots) < LEAST_DOTS:
        return Markup("")
    changes, alerts, metric = site.engine.versions.changes(), site.engine.alerts(), query.metric
    line, title = line_of(site, asked.app, metric), f"{metric} of {asked.app}"
    baseline, desc = None if line is None else line.value, f"Mean of the whole range {number(group.total.mean)}"
    if not large:
        return sparkline(
            dots,
            title=title,
            desc=desc,
            since=since,
            until=until,
            gap_s=2.5 * step,
            baseline=baseline,
            width=SMALL[0],
            height=SMALL[1],
        )
    marks, _ = marks_of(changes, alerts, app=asked.app, metric=metric, since=since, until=until)
    return timeline(
        [Line(dots=dots, gap_s=2.5 * step)],
        title=title,
        desc=desc,
        since=since,
        until=until,
        baseline=baseline,
        marks=releases(marks, 2.0 * step)[-MARKS:],
    )


def releases(marks: Sequence[SeriesMark], apart_s: float) -> list[Mark]:
    """The new versions of a chart: those that came within `apart_s` of each other, as one release, have one mark."""
    found: list[tuple[float, list[str]]] = []
    for mark in marks:
        name = f"{mark.kind.removeprefix('tag:')} {mark.value}"
        if mark.kind != "alert" and found and mark.at - found[-1][0] <= apart_s:
            found[-1][1].append(name)
        elif mark.kind != "alert":
            found.append((mark.at, [name]))
    return [Mark(at=at, label=shortened(", ".join(names), LABEL)) for at, names in found]


def line_of(site: Site, app: str, metric: str) -> ReferenceLine | None:
    """What a rule compares a metric of an app with, an SLO before a baseline."""
    rules, lower = site.config.alerts.rules or (), site.is_best_at_0(metric)
    lines = reference_lines(site.engine.streams(), rules, app=app, metric=metric, lower_is_better=lower)
    return lines[0] if lines else None


async def trend_within(site: Site, query: SeriesQuery, *, lower_is_better: bool | None) -> Trend:
    """How the latest quarter of a range differs from the time before, from steps that have been read."""
    edge = math.floor((query.until - RECENT_PART * (query.until - query.since)) / query.step_s) * query.step_s
    halves = (replace_struct(query, until=edge), replace_struct(query, since=edge))
    found = [await site.series.read(half, 0.0) for half in halves if half.since < half.until]
    totals = [half.groups[0].total for half in found if half.groups and half.complete]
    old, new = map(level_at, totals) if len(totals) == len(halves) else (None, None)
    return trend_between(old, new, query.until - query.since, lower_is_better=lower_is_better)


def level_at(point: SeriesPoint) -> Level | None:
    """The mean of a step, if it has one."""
    return None if point.mean is None else Level(mean=point.mean, n=point.n, low=point.ci_low, high=point.ci_high)


async def metric_views(site: Site, asked: AppRequest, metrics: Sequence[str], large: int) -> list[MetricView]:
    """The metrics over the range with what can be read in time; the first `large` have a large chart."""
    now = {quality.metric: quality for quality in site.insight.quality() if _is_of(quality, asked)}
    read = (site.series.read_fitted(asked.query(metric), READING_S, FEW_POINTS) for metric in metrics)
    shown = []
    for index, (query, found) in enumerate(await asyncio.gather(*read)):
        metric, group = query.metric, found.groups[0] if found.groups else None
        total = group.total if group is not None and found.complete else None
        lower = None if metric in UNDIRECTED else site.is_best_at_0(metric)
        view = MetricView(
            metric=metric,
            group=group,
            value=now.get(metric, total),
            window_s=now[metric].window_s if metric in now else 0.0,
            trend=await trend_within(site, query, lower_is_better=lower),
            line=line_of(site, asked.app, metric),
            drawing=drawing(asked, query, group, site, large=index < large),
            complete=found.complete,
        )
        shown.append(view)
    return shown


def _is_of(quality: Quality, asked: AppRequest) -> bool:
    """Whether an estimate is of the app's traffic until now, where now is asked for."""
    return quality.app == asked.app and not quality.slice and asked.range.live and quality.mean is not None


def volume(query: SeriesQuery, group: SeriesGroup | None, seconds: float) -> Markup:
    """Bars of the number of scores by step, over a range of so many seconds."""
    if group is None:
        return Markup("")
    counts = {round(point.at / query.step_s): point.n for point in group.points}
    bounds = [index * query.step_s for index in (*query.steps, query.steps.stop)]
    words = [day(bound) if seconds > MANY_DAYS_S else iso(bound)[11:16] for bound in bounds]
    return bars(
        [counts.get(index, 0) for index in query.steps],
        title=f"Scores of {query.metric} by {duration(query.step_s)}",
        desc=f"{group.n} in all, at most {max(counts.values(), default=0)}",
        edges=words,
        times=[iso(bound) for bound in bounds],
    )


def app_handlers(site: Site) -> list[Any]:
    """The handlers of `/apps` and `/apps/{app}`."""
    traffic = TrafficReader(site.insight.store)
    heat = HeatMapReader(site.insight.store, site.clock, site.reading)

    @get(APPS)
    async def apps(request: Page, app: FromQuery[str] = "") -> Template | Redirect:
        if app and not fits_in_path(app):
            return await view(site, request, app, traffic, heat)
        name = app.strip()[:MAX_NAME]
        kept = [(field, value) for field, value in request.query_params.multi_items() if field != "app"]
        return Redirect(address(app_page(name) if name else "/", kept))

    @get(f"{APPS}/{{app:path}}")
    async def app_view(request: Page, app: FromPath[str]) -> Template:
        return await view(site, request, app.removeprefix("/"), traffic, heat)

    return [apps, app_view]


async def view(site: Site, request: Page, name: str, traffic: TrafficReader, heat: HeatMapReader) -> Template:
    """The view of an app. Raises HTTPException for an app that is not known."""
    params = request.query_params
    if not name or len(name) > MAX_NAME:
        raise HTTPException(status_code=404, detail="an app has a name of 1 to 300 characters")
    about = await site.insight.status()
    metrics = known_metrics(site, name, [metric["name"] for metric in about["metrics"]])
    chosen = params.get("metric", "").strip()[:MAX_NAME]
    firing = [alert for alert in site.engine.alerts() if alert.app in (name, ALL) and alert.state == "firing"]
    metrics, large = ranked(site, name, metrics, [metric["name"] for metric in about["metrics"]])
    usual = metrics[0] if metrics else ""
    metrics = list(dict.fromkeys([chosen, *metrics] if chosen else metrics))
    asked = AppRequest(
        app=name, range=time_range(params, site.clock()), metric=chosen or usual, by=dimension(params.get("by", ""))
    )
    charts, more = await asyncio.gather(
        metric_views(site, asked, metrics[:MAX_CHARTS], large), details(site, asked, traffic, heat)
    )
    if all(chart.complete and chart.group is None for chart in charts) and not await is_known(site, name, metrics):
        raise HTTPException(status_code=404, detail="no app of this name has scores")
    watches = Watches(site.engine.streams(), site.engine.is_watched)
    return site.render(
        request,
        "app.html",
        title=name,
        time_range=asked.range,
        asked=asked,
        charts=charts,
        large=large,
        health=health_of([watches.of(name, metric).state for metric in metrics]),
        changes=changes_of(site, name, site.clock()),
        meanings=SIGNALS,
        signals=SIGNALS,
        more_charts=max(0, len(metrics) - MAX_CHARTS),
        metrics=sorted(metrics, key=lambda metric: (metric in SIGNALS, metric)),
        alerts=firing,
        dimensions=dimensions(site, name, asked.by),
        height=HEIGHT,
        rows=MAX_TABLE_ROWS,
        previous=asked.range.previous(),
        watches=watches,
        **more,
        **tiers_of(site, name, about["metrics"]),
    )


async def details(site: Site, asked: AppRequest, traffic: TrafficReader, heat: HeatMapReader) -> Mapping[str, Any]:
    """The parts of the view that are about the chosen metric."""
    found = asked.range
    query, total = await site.series.read_fitted(asked.query(asked.metric), READING_S)
    since = max(found.since, query.since)
    scores, (by_part, parts), exchanges = await asyncio.gather(
        heat.read(asked.app, asked.metric, since, found.until, READING_S),
        site.series.read_fitted(asked.query(asked.metric, asked.by), READING_S),
        traffic.read(asked.app, asked.metric, found.since, found.until, READING_S),
    )
    title = f"Scores of {asked.metric}: share of each tenth of the scale over time"
    read_from = max(since, next((column.at for column in scores.columns), since))
    onset, late = await since_onset(site, asked, by_part)
    return {
        "onset": onset,
        "late": late,
        "heat": scores,
        "heat_drawing": drawn(scores, title=title, since=since if scores.complete else read_from, until=found.until),
        "volume": volume(query, total.groups[0] if total.groups else None, found.seconds),
        "volume_complete": total.complete,
        "traffic": exchanges,
        "slices": parts.groups,
        "more_slices": parts.more_groups,
        "slices_complete": parts.complete,
        "slices_url": asked.series_url(asked.metric, by=asked.by),
    }


async def since_onset(site: Site, asked: AppRequest, query: SeriesQuery) -> tuple[float, Mapping[str, SeriesPoint]]:
    """The first whole step since the metric's alert fires, and the mean of each part from then on, if all is read."""
    of = (asked.app, asked.metric)
    firing = [alert for alert in site.engine.alerts() if alert.state == "firing" and not alert.slice]
    onset = min((alert.finding.onset for alert in firing if (alert.app, alert.metric) == of), default=0.0)
    start = math.ceil(onset / query.step_s) * query.step_s
    if not query.since < start < query.until:
        return start, {}
    found = await site.series.read(replace_struct(query, since=start), 0.0)
    return start, {group.slice: group.total for group in found.groups if found.complete}


def dimension(text: str) -> str:
    """What to break down by: "model", "prompt" or "tag:NAME"; the model for anything else.

    >>> dimension("tag:release"), dimension("x")
    ('tag:release', 'model')
    """
    chosen = text.strip()[:MAX_NAME]
    return chosen if chosen == "prompt" or (chosen.startswith("tag:") and chosen != "tag:") else "model"


def dimensions(site: Site, app: str, chosen: str) -> list[str]:
    """The choices of the breakdown: model, prompt and the tags of the app's versions and of the configuration."""
    return list(dict.fromkeys(["model", "prompt", *sorted(site.tags(app))[:MAX_TAGS], chosen]))
