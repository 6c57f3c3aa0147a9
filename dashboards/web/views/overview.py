"""Overview: alerts and capture problems, and below them a row per app with its traffic and the means of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cachetools import TTLCache
from litestar import get
from litestar.response import Redirect, Template
from msgspec import Struct

from dashboards.web.gateways import Series, TrafficReader, own
from dashboards.web.quality_matrix import (
    HOURS,
    YOUNG_S,
    YOUNG_STEP_S,
    AppRow,
    Cell,
    Read,
    Steps,
    Watches,
    cell,
    filtered,
    is_descending,
    is_young,
    metrics_of,
    ordered,
    rows_of,
)
from dashboards.web.site import Page, Site
from dashboards.web.toolbar import address
from dashboards.web.views.alerts import acknowledged_by
from dashboards.web.views.welcome import FirstScores
from gaugeway.records import Alert
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import MAX_STREAMS, Quality, estimate, largest
from monitors.analysis.series import HOUR_S, Stream

HOURS_WITHIN_S = 0.03
"""How long the page waits for the sums of the last hours."""
MAX_APPS = 50
"""Apps on one page of the table."""
MAX_METRICS, MAX_ALL_METRICS = 8, 40
"""Columns of metrics at first, and on request."""
MAX_SLICES = 200
MAX_BREAKDOWNS, BREAKDOWN_FRESH_S = 16, 15.0
ABSTENTIONS_FRESH_S = 30.0
"""Breakdowns that are remembered, for 15 seconds."""
MAX_FIELD = 200
"""Characters of a filter, a sort key or a dimension."""
MAX_CAPTURE_NOTES = 5
"""Apps listed in the note about incomplete capture, lowest share first."""
ALERTS, RESOLVED, RESOLVED_S = 5, 3, 86_400.0
"""Alerts listed above the table: firing ones, and those resolved in the last 24 hours."""
LOW_CAPTURE, LEAST_ANSWERS = 0.9, 3
"""An app gets a note if its capture share is below `LOW_CAPTURE` (upper interval end) with `LEAST_ANSWERS` or more."""
COLUMNS = (
    ("app", "App"),
    ("requests_per_min", "Req/min"),
    ("error_share", "Errors"),
    ("p95_latency", "p95"),
    ("cost_per_answer", "USD/answer"),
    ("capture_share", "Captured"),
)
_DAY_S = 86_400.0


class Wanted(Struct, frozen=True, kw_only=True):
    """The table's part of the URL: a filter, a column to sort by (a minus reverses it), apps to skip, all metrics."""

    text: str = ""
    sort: str = ""
    after: int = 0
    every_metric: bool = False
    by: str = ""


class Heading(Struct, frozen=True, kw_only=True):
    """A column's title, the address that sorts by it, and how it is sorted now (for `aria-sort`)."""

    name: str
    title: str
    url: str
    sorted: str = ""


def parse(params: Mapping[str, str]) -> Wanted:
    """Read the URL; what is invalid is left out.

    >>> parse({"q": " docs ", "after": "-3", "by": "colour"})
    Wanted(text='docs', sort='', after=0, every_metric=False, by='')
    """
    text, sort, after, by = (params.get(name, "").strip()[:MAX_FIELD] for name in ("q", "sort", "after", "by"))
    return Wanted(
        text=text,
        sort=sort,
        after=int(after) if after.isascii() and after.isdigit() and len(after) < len(str(10 * MAX_STREAMS)) else 0,
        every_metric=params.get("metrics") == "all",
        by=by if by in ("model", "prompt") or by.startswith("tag:") else "",
    )


def headings(
    metrics: Iterable[str], wanted: Wanted, params: Sequence[tuple[str, str]], lower_is_better: Collection[str]
) -> list[Heading]:
    """The headings of the table, those of the traffic first. The column it is sorted by links to the opposite order."""
    name, reverse = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
    found = []
    for key, title in (*COLUMNS, *((metric, metric) for metric in metrics)):
        now = key == name
        descending = is_descending(key, lower_is_better) != reverse
        found.append(
            Heading(
                name=key,
                title=title,
                url=address("/", params, sort=f"-{key}" if now and not reverse else key),
                sorted=("descending" if descending else "ascending") if now else "",
            )
        )
    return found


def low_captures(captured: Iterable[Captured]) -> list[Captured]:
    """Apps whose capture share is significantly low, lowest first."""
    low = [capture for capture in captured if capture.answers >= LEAST_ANSWERS and capture.ci_high < LOW_CAPTURE]
    return sorted(low, key=lambda capture: (capture.ratio, -capture.answers, capture.app))


def recently_resolved(alerts: Iterable[Alert], now: float) -> list[Alert]:
    """Alerts that were resolved in the last 24 hours, the latest first."""
    over = [alert for alert in alerts if alert.state == "resolved" and alert.ended_at is not None]
    return sorted(
        (alert for alert in over if now - (alert.ended_at or 0.0) < RESOLVED_S),
        key=lambda alert: -(alert.ended_at or 0),
    )


def leading(firing: Sequence[Alert]) -> list[Alert]:
    """Firing alerts but for those of slices whose app and metric fires as a whole: they are marks of that alert."""
    whole = {(alert.app, alert.metric) for alert in firing if not alert.slice}
    return [alert for alert in firing if not alert.slice or (alert.app, alert.metric) not in whole]


async def slices_of(store: Store, by: str, window_s: float, now: float) -> list[Quality]:
    """Estimates by value of `by`: of the configured window, or of 24 hours where that has no basis."""
    found: dict[tuple[str, str, str], Quality] = {}
    for seconds in sorted({window_s, max(window_s, _DAY_S)}):
        summaries = largest(await store.summary(Query(since=now - seconds, until=now + _DAY_S), by))
        for quality in estimate(summaries, window_s=seconds):
            known = found.get((quality.app, quality.metric, quality.slice))
            if quality.slice and (known is None or (known.mean is None and quality.mean is not None)):
                found[quality.app, quality.metric, quality.slice] = quality
        if all(quality.mean is not None for quality in found.values()) and found:
            break
    return sorted(found.values(), key=lambda quality: (quality.metric, quality.app, -quality.n))


async def read_recent(site: Site) -> tuple[Read, bool]:
    """Read the last hours of all metrics, and the last minutes of young ones, and whether all of them were read."""
    hours, complete = await site.series.recent(HOUR_S, HOURS, HOURS_WITHIN_S)
    young: Mapping[Stream, Steps] = {}
    if complete and any(is_young(steps, site.clock()) for steps in hours.values()):
        young, complete = await site.series.recent(YOUNG_STEP_S, round(YOUNG_S / YOUNG_STEP_S), HOURS_WITHIN_S)
    return Read(hours=hours, young=young, effects=site.series.effects()), complete


def signal_marks(row: AppRow, metrics: Iterable[str], cell_of: Callable[..., Cell | None], now: float) -> list[Cell]:
    """The signals of an app, those to look at first."""
    cells = [found for metric in metrics if (found := cell_of(row, metric, now)) is not None]
    return sorted(cells, key=lambda found: not found.is_notable)


def table(
    known: Sequence[AppRow], read: Read, wanted: Wanted, params: Sequence[tuple[str, str]], **sorting: Any
) -> dict[str, Any]:
    """One page of the table, as the template takes it; `sorting` is what `ordered` needs."""
    found = ordered(filtered(known, wanted.text), wanted.sort, **sorting)
    lower = sorting["lower_is_better"]
    after = wanted.after if wanted.after < len(found) else 0
    rows = found[after : after + MAX_APPS]
    metrics = [metric for metric in metrics_of(found) if metric not in SIGNALS]
    shown = metrics[: MAX_ALL_METRICS if wanted.every_metric else MAX_METRICS]
    before, following = max(0, after - MAX_APPS), after + MAX_APPS
    cell_of = partial(cell, read=read, lower_is_better=lower)
    signals = [metric for metric in metrics_of(rows) if metric in SIGNALS]
    return {
        "rows": rows,
        "shown": shown,
        "signals": signals,
        "marks": partial(signal_marks, metrics=signals, cell_of=cell_of),
        "cell": cell_of,
        "headings": headings(shown, wanted, params, lower),
        "first": after + 1,
        "total": len(found),
        "apps": len(known),
        "more_metrics": len(metrics) - len(shown),
        "every_metric_url": address("/", params, metrics="all"),
        "previous_url": address("/", params, after=str(before) if before else "") if after else None,
        "next_url": address("/", params, after=str(following)) if following < len(found) else None,
    }


def overview_handlers(site: Site) -> list[Any]:
    """The handlers of `/`."""
    reader = TrafficReader(site.gateways, site.config.gateway.get("admin_token"), stopping=site.stopping)
    first_scores = FirstScores(site)
    remembered: TTLCache[str, list[Quality]] = TTLCache(MAX_BREAKDOWNS, BREAKDOWN_FRESH_S)
    counted: TTLCache[str, Series] = TTLCache(1, ABSTENTIONS_FRESH_S)

    @get("/")
    async def overview(request: Page) -> Template | Redirect:
        if not request.url.query and await first_scores.missing():
            return Redirect("/welcome")
        now, window_s, wanted = site.clock(), site.config.monitors.window_s, parse(request.query_params)
        traffic = await reader.latest()
        read, complete = await read_recent(site)
        about = await site.insight.status()
        quality, alerts = site.insight.quality(), site.engine.alerts()
        captured = {capture.app: capture for capture in site.insight.captured()}
        firing = [alert for alert in alerts if alert.state == "firing"]
        found = rows_of(quality, Watches(site.engine.streams(), site.engine.is_watched), read.hours)
        lower = {metric for metric in metrics_of(found) if site.is_best_at_0(metric)}
        params = list(request.query_params.multi_items())
        parts = remembered.get(wanted.by, [])
        if wanted.by and wanted.by not in remembered:
            parts = remembered[wanted.by] = await slices_of(site.insight.store, wanted.by, window_s, now)
        if about["judge"] and "" not in counted:
            counted[""] = await own(site.registry)
        return site.render(
            request,
            "overview.html",
            title="Overview",
            wanted=wanted,
            operational=[key for key, _ in COLUMNS[1:]],
            **table(found, read, wanted, params, traffic=traffic.apps, captured=captured, lower_is_better=lower),
            alerts=firing,
            leading=leading(firing),
            pending=sum(alert.state == "pending" for alert in alerts),
            resolved=recently_resolved(alerts, now),
            low=low_captures(captured.values()),
            most={"alerts": ALERTS, "resolved": RESOLVED, "low": MAX_CAPTURE_NOTES},
            acknowledged_by=partial(acknowledged_by, site),
            silence_of=site.engine.acknowledgements.silence_of,
            traffic=traffic,
            captured=captured,
            capped=len(quality) >= MAX_STREAMS,
            meanings={name: signal.meaning for name, signal in SIGNALS.items()},
            abstentions=counted.get("", Series()),
            complete=complete,
            window_s=window_s,
            by=wanted.by,
            dimensions=list(dict.fromkeys(["model", "prompt", *sorted({*site.tags(), wanted.by} - {""})])),
            parts=parts[:MAX_SLICES],
            more_parts=max(0, len(parts) - MAX_SLICES),
            notes=about["notes"],
        )

    return [overview]
