"""Overview: one row per app and metric, with alerts and capture problems above."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litestar import get
from litestar.params import FromQuery
from litestar.response import Redirect, Template
from markupsafe import Markup

from dashboards.web.charts import Dot, sparkline
from dashboards.web.format import interval, number
from dashboards.web.site import Page, Site
from dashboards.web.trends import HOUR_S, HOURS, Key, Trends, dot, movement
from dashboards.web.views.alerts import headline
from dashboards.web.views.welcome import FirstScores
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality, estimate, largest
from monitors.signals import RISING, SIGNALS
from monitors.storage.stores import Query, Summary

ORDER = ("firing", "pending", "learning", "waiting", "quiet", "unwatched")
MAX_SLICES = 200
MAX_ROWS = 500
"""Rows of the table; firing ones come first."""
MAX_CAPTURE_NOTES = 5
"""Apps listed in the note about incomplete capture, lowest share first."""
LOW_CAPTURE, LEAST_ANSWERS = 0.9, 3
"""An app gets a note if its capture share is below `LOW_CAPTURE` (upper interval end) with `LEAST_ANSWERS` or more."""
ABSTENTIONS_BESIDE = frozenset({"faithfulness", "hallucination", "answer_relevancy", "lexical_groundedness"})
"""Metrics of answers, whose means are shown with the share of answers that decline."""
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Worst rule state of an app's metric, with that rule's baseline and learning progress (in scores)."""

    state: str = "unwatched"
    baseline: float | None = None
    learned: int = 0
    needed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Table row: one app and metric."""

    quality: Quality
    watch: Watch
    trend: str
    chart: Markup
    lower_is_better: bool


def watch_of(app: str, metric: str, streams: Iterable[StreamStatus], *, covered: bool = False) -> Watch:
    """The worst state among the rules that watch an app's metric; slice streams are ignored.

    Without a stream it is "waiting" where a rule has `covered` it: the rule has taken in no score yet.
    """
    found = [
        Watch(
            state="learning" if one.state == "quiet" and one.m0 is None else one.state,
            baseline=one.m0,
            learned=one.learned,
            needed=one.needed,
        )
        for one in streams
        if one.metric == metric and one.app in (app, ALL) and not one.slice
    ]
    return min(
        found, key=lambda one: ORDER.index(one.state), default=Watch(state="waiting" if covered else "unwatched")
    )


def rows_of(
    quality: Iterable[Quality],
    streams: Sequence[StreamStatus],
    hours: Mapping[Key, Sequence[tuple[float, Summary]]],
    *,
    lower_is_better: Collection[str],
    now: float,
    is_watched: Callable[[str, str], bool] = lambda _metric, _app: False,
) -> list[Row]:
    """Table rows sorted by state, app and metric; at most `MAX_ROWS`, those with the most scores.

    `is_watched` says whether a rule covers a metric of an app, which may have no stream yet.
    """
    known = {(one.app, one.metric): one for one in quality if not one.slice}
    for app, metric in hours:  # no score in the window, but some in the last 24 hours
        known.setdefault((app, metric), Quality(app=app, metric=metric, n=0, n_eff=0.0, coverage_ratio=0.0))
    watched = [
        (watch_of(app, metric, streams, covered=is_watched(metric, app)), one) for (app, metric), one in known.items()
    ]
    if len(watched) > MAX_ROWS:
        watched = heapq.nsmallest(MAX_ROWS, watched, key=lambda pair: (ORDER.index(pair[0].state), -pair[1].n))
    rows = []
    for watch, one in watched:
        app, metric = one.app, one.metric
        some = hours.get((app, metric), ())
        dots = [made for start, sums in some if (made := dot(start, sums)) is not None]
        lower = metric in lower_is_better
        row = Row(
            quality=one,
            watch=watch,
            trend=movement(some, now, lower_is_better=lower),
            chart=_chart(one, watch, dots, now),
            lower_is_better=lower,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: (ORDER.index(row.watch.state), row.quality.app, row.quality.metric))


def _chart(quality: Quality, watch: Watch, dots: Sequence[Dot], now: float) -> Markup:
    if not dots:
        return Markup("")
    least, most = min(one.mean for one in dots), max(one.mean for one in dots)
    against = f" Baseline {number(watch.baseline)}." if watch.baseline is not None else ""
    return sparkline(
        dots,
        title=f"{quality.metric} of {quality.app}, hourly means of the last 24 hours",
        desc=f"From {number(dots[0].mean, 2)} to {number(dots[-1].mean, 2)}, "
        f"between {interval(least, most, 2)}.{against}",
        baseline=watch.baseline,
        since=now - HOURS * HOUR_S,
        until=now,
        gap_s=2.5 * HOUR_S,
    )


def low_captures(captured: Iterable[Captured]) -> list[Captured]:
    """Apps whose capture share is significantly low, lowest first."""
    low = [one for one in captured if one.answers >= LEAST_ANSWERS and one.ci_high < LOW_CAPTURE]
    return sorted(low, key=lambda one: (one.ratio, -one.answers, one.app))


def dimensions(tags: Iterable[str]) -> list[str]:
    """Dimensions to break down by: model, prompt and tags."""
    return list(dict.fromkeys(["model", "prompt", *sorted(tags)]))


def overview_handlers(site: Site) -> list[Any]:
    """The handlers of `/`."""
    trends = Trends(site.insight.store, site.clock)
    configured = [one for one in site.config.alerts.slices if one.startswith("tag:")]
    first_scores = FirstScores(site)

    @get("/")
    async def overview(request: Page, by: FromQuery[str] = "") -> Template | Redirect:
        if not request.url.query and await first_scores.missing():
            return Redirect("/welcome")
        now, window_s = site.clock(), site.config.monitors.window_s
        hours, complete = await trends.latest()
        about = await site.insight.status()
        lower = RISING | {one["name"] for one in about["metrics"] if one["lower_is_better"]}
        chosen = by if by in ("model", "prompt") or by.startswith("tag:") else ""
        rows = rows_of(
            site.insight.quality(),
            site.engine.streams(),
            hours,
            lower_is_better=lower,
            now=now,
            is_watched=site.engine.is_watched,
        )
        more = len({(one.app, one.metric) for one in site.insight.quality() if not one.slice} | hours.keys()) - len(
            rows
        )
        parts: list[Quality] = []
        captured = {one.app: one for one in site.insight.captured()}
        low = low_captures(captured.values())
        if chosen:
            window = Query(since=now - window_s, until=now + _DAY_S)
            parts = [one for one in estimate(largest(await site.insight.store.summary(window, chosen))) if one.slice]
        kinds = {one.kind for one in site.engine.versions.all() if one.kind.startswith("tag:")}
        return site.render(
            request,
            "overview.html",
            title="Overview",
            rows=[one for one in rows if one.quality.metric not in SIGNALS],
            signals=[one for one in rows if one.quality.metric in SIGNALS],
            meanings={name: one.meaning for name, one in SIGNALS.items()},
            abstained={one.quality.app: one.quality for one in rows if one.quality.metric == "abstained"},
            abstains=ABSTENTIONS_BESIDE,
            captured=captured,
            low=low[:MAX_CAPTURE_NOTES],
            more_low=len(low[MAX_CAPTURE_NOTES:]),
            more_rows=more,
            complete=complete,
            alerts=[(one, headline(one)) for one in site.engine.alerts() if one.state == "firing"],
            doubts=sum(one.state == "pending" for one in site.engine.alerts()),
            window_s=window_s,
            by=chosen,
            dimensions=dimensions({*configured, *kinds, *([chosen] if chosen else [])}),
            parts=sorted(parts, key=lambda one: (one.metric, one.app, -one.n))[:MAX_SLICES],
            more_parts=max(0, len(parts) - MAX_SLICES),
            notes=about["notes"],
            judge=about["judge"],
        )

    return [overview]
