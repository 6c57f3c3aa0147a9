"""One app: every metric over time, its scores, traffic, and the parts of its traffic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

from litestar import get
from litestar.exceptions import HTTPException
from litestar.params import FromPath, FromQuery
from litestar.response import Redirect, Template
from markupsafe import Markup
from msgspec import Struct

from dashboards.web.addresses import APPS, app_page, fits_in_path
from dashboards.web.app_readings import HeatMapReader, TrafficReader, drawn
from dashboards.web.charts import Dot, Line, Mark, bars, timeline
from dashboards.web.format import duration, iso, number
from dashboards.web.quality_matrix import Watches
from dashboards.web.site import Page, Site
from dashboards.web.toolbar import TimeRange, address, time_range
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query
from monitors.alerting.rule_watch import ALL
from monitors.analysis.quality import Quality, two_tiers
from monitors.analysis.series import SeriesGroup, SeriesQuery, chosen_step, marks_of, reference_lines
from monitors.metrics import ANCHOR, DISAGREEMENT

MAX_NAME = 300
MAX_CHARTS = 24
"""Metrics and signals with a chart: metrics first."""
MAX_TAGS = 12
"""Tags offered to break down by."""
MAX_TABLE_ROWS = 48
"""Latest steps in the table behind a chart; the API has all."""
READING_S = 0.09
"""How long a view waits for the store; the browser asks again for what is incomplete."""
HEIGHT = 190
DAY_S = 86_400.0
MANY_DAYS_S = 4 * DAY_S


class MetricChart(Struct, frozen=True, kw_only=True):
    """One metric over time, as it is shown without JavaScript."""

    metric: str
    group: SeriesGroup | None
    drawing: Markup
    complete: bool


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
        """The series of a metric over the range."""
        found = self.range
        return SeriesQuery(
            app=self.app,
            metric=metric,
            by=by,
            since=found.since,
            until=found.until,
            step_s=chosen_step(found.seconds),
        )

    def series_url(self, metric: str, **fields: str) -> str:
        """The address of a metric's data."""
        return f"/api/series?{urlencode({'app': self.app, 'metric': metric, **self.range.params, **fields})}"


def known_metrics(site: Site, app: str, enabled: Sequence[str]) -> list[str]:
    """The metrics and signals with recent scores of an app, metrics first; the enabled ones if there are none."""
    found = {quality.metric for quality in site.insight.quality() if quality.app == app and not quality.slice}
    found |= {stream.metric for stream in site.engine.streams() if stream.app == app}
    return sorted(found or set(enabled), key=lambda name: (name in SIGNALS, name))


def usual_metric(site: Site, app: str, metrics: Sequence[str], enabled: Sequence[str]) -> str:
    """The metric that an app's view shows unless one is chosen, whatever its time range.

    One whose alert fires; else one with an objective, one with a recent alert, one with a rule, one that is no signal,
    the one with the most scores, and the first enabled one.
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

    return min(metrics, key=rank, default="")


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
    watches, window_s = Watches(site.engine.streams(), site.engine.is_watched), site.config.monitors.window_s
    return {"tiers": tiers, "judges": judges, "watches": watches, "window_s": window_s}


def drawing(asked: AppRequest, metric: str, group: SeriesGroup | None, site: Site) -> Markup:
    """The chart of a metric that is shown without JavaScript; empty without means."""
    query = asked.query(metric)
    step, since, until = query.step_s, query.steps.start * query.step_s, query.steps.stop * query.step_s
    dots = [
        Dot(at=point.at + step / 2, mean=point.mean, low=point.ci_low, high=point.ci_high, n=point.n)
        for point in (group.points if group is not None else ())
        if point.mean is not None
    ]
    if group is None or not dots:
        return Markup("")
    changes, alerts = site.engine.versions.changes(), site.engine.alerts()
    marks, _ = marks_of(changes, alerts, app=asked.app, metric=metric, since=since, until=until)
    rules = site.config.alerts.rules or ()
    lower = site.is_best_at_0(metric)
    lines = reference_lines(site.engine.streams(), rules, app=asked.app, metric=metric, lower_is_better=lower)
    return timeline(
        [Line(dots=dots, gap_s=2.5 * step)],
        title=f"{metric} of {asked.app}",
        desc=f"Mean of the whole range {number(group.total.mean)}",
        since=since,
        until=until,
        baseline=lines[0].value if lines else None,
        marks=[
            Mark(at=max(since, mark.at), label=f"{mark.kind.removeprefix('tag:')} {mark.value}"[:24])
            for mark in marks[-4:]
        ],
    )


async def metric_charts(site: Site, asked: AppRequest, metrics: Sequence[str]) -> list[MetricChart]:
    """The charts of the metrics, with what can be read in time."""
    deadline = time.monotonic() + READING_S
    charts = []
    for metric in metrics:
        found = await site.series.read(asked.query(metric), max(0.0, deadline - time.monotonic()))
        group = found.groups[0] if found.groups else None
        shown = drawing(asked, metric, group, site)
        charts.append(MetricChart(metric=metric, group=group, drawing=shown, complete=found.complete))
    return charts


def volume(asked: AppRequest, group: SeriesGroup | None) -> Markup:
    """Bars of the number of scores by step."""
    if group is None:
        return Markup("")
    query = asked.query(asked.metric)
    counts = {round(point.at / query.step_s): point.n for point in group.points}
    bounds = [iso(index * query.step_s) for index in (*query.steps, query.steps.stop)]
    words = [bound[5:10] if asked.range.seconds > MANY_DAYS_S else bound[11:16] for bound in bounds]
    return bars(
        [counts.get(index, 0) for index in query.steps],
        title=f"Scores of {asked.metric} by {duration(query.step_s)}",
        desc=f"{group.n} in all, at most {max(counts.values(), default=0)}",
        edges=words,
        times=bounds,
    )


def app_handlers(site: Site) -> list[Any]:
    """The handlers of `/apps` and `/apps/{app}`."""
    traffic = TrafficReader(site.insight.store)
    heat = HeatMapReader(site.insight.store, site.clock)

    @get(APPS)
    async def apps(request: Page, app: FromQuery[str] = "") -> Template | Redirect:
        if app and not fits_in_path(app):
            return await view(request, app)
        name = app.strip()[:MAX_NAME]
        kept = [(field, value) for field, value in request.query_params.multi_items() if field != "app"]
        return Redirect(address(app_page(name) if name else "/", kept))

    @get(f"{APPS}/{{app:path}}")
    async def app_view(request: Page, app: FromPath[str]) -> Template:
        return await view(request, app.removeprefix("/"))

    async def view(request: Page, name: str) -> Template:
        params = request.query_params
        if not name or len(name) > MAX_NAME:
            raise HTTPException(status_code=404, detail="an app has a name of 1 to 300 characters")
        about = await site.insight.status()
        metrics = known_metrics(site, name, [metric["name"] for metric in about["metrics"]])
        chosen = params.get("metric", "").strip()[:MAX_NAME]
        firing = [alert for alert in site.engine.alerts() if alert.app in (name, ALL) and alert.state == "firing"]
        usual = usual_metric(site, name, metrics, [metric["name"] for metric in about["metrics"]])
        metrics = list(dict.fromkeys([*metrics, chosen] if chosen else metrics))
        asked = AppRequest(
            app=name,
            range=time_range(params, site.clock()),
            metric=chosen or usual,
            by=dimension(params.get("by", "")),
        )
        charts, more = await asyncio.gather(
            metric_charts(site, asked, metrics[:MAX_CHARTS]), details(site, asked, traffic, heat)
        )
        if all(chart.complete and chart.group is None for chart in charts) and not await is_known(site, name, metrics):
            raise HTTPException(status_code=404, detail="no app of this name has scores")
        return site.render(
            request,
            "app.html",
            title=name,
            time_range=asked.range,
            asked=asked,
            charts=charts,
            signals=SIGNALS,
            more_charts=max(0, len(metrics) - MAX_CHARTS),
            metrics=metrics,
            alerts=firing,
            dimensions=dimensions(site, name, asked.by),
            height=HEIGHT,
            rows=MAX_TABLE_ROWS,
            previous=asked.range.previous(),
            **more,
            **tiers_of(site, name, about["metrics"]),
        )

    return [apps, app_view]


async def details(site: Site, asked: AppRequest, traffic: TrafficReader, heat: HeatMapReader) -> Mapping[str, Any]:
    """The parts of the view that are about the chosen metric."""
    found = asked.range
    total, scores, parts, exchanges = await asyncio.gather(
        site.series.read(asked.query(asked.metric), READING_S),
        heat.read(asked.app, asked.metric, found.since, found.until, READING_S),
        site.series.read(asked.query(asked.metric, asked.by), READING_S),
        traffic.read(asked.app, asked.metric, found.since, found.until, READING_S),
    )
    title = f"Scores of {asked.metric}: share of each tenth of the scale over time"
    return {
        "heat": scores,
        "heat_drawing": drawn(scores, title=title, since=found.since, until=found.until),
        "volume": volume(asked, total.groups[0] if total.groups else None),
        "volume_complete": total.complete,
        "traffic": exchanges,
        "slices": parts.groups,
        "more_slices": parts.more_groups,
        "slices_complete": parts.complete,
        "slices_url": asked.series_url(asked.metric, by=asked.by),
    }


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
