"""Sources: what each source of an app's passages did for the answers, and the worst answers with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import Dot, sparkline
from dashboards.web.format import by_part, number
from dashboards.web.site import Page, Site
from dashboards.web.views.explore import SPANS
from monitors.analysis import captured
from monitors.analysis.metric_names import UnknownMetricError
from monitors.analysis.source_reading import DEFAULT_METRICS, SourceReports
from monitors.analysis.sources import Source, SourceReport
from monitors.api.sources import ORDERS, Order, ordered
from monitors.records import Sample

ROWS = 100
"""Rows of the table; the API returns all sources."""
BUDGET_S = 1.5
SINCE = "24h"
ORDER_WORDS: dict[Order, str] = {
    "named": "evidence that it lowers scores",
    "uses": "uses",
    "bad": "share of the bad answers",
    "contradicted": "contradictions",
    "unused": "retrieved but never used",
}
_LONGEST_FIELD = 300
_EARLIEST_S = 90 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Table row of a source, with the address of its own page and a chart of its mean score."""

    source: Source
    address: str
    chart: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The form: app, metric ("" for the usual one), span ("24h"), order, and one source ("" for all)."""

    app: str
    metric: str
    since: str
    order: Order
    source: str

    def address(self, source: str = "") -> str:
        """The address of the same selection with another source."""
        fields = {"app": self.app, "metric": self.metric, "since": self.since, "source": source}
        return f"/sources?{urlencode({name: value for name, value in fields.items() if value})}"


def source_link(app: str, name: str) -> str:
    """The address of a source's page; "" for a passage without a name."""
    return f"/sources?{urlencode({'app': app, 'source': name})}" if name else ""


def source_links(reports: SourceReports, sample: Sample) -> list[str]:
    """The addresses of the sources of a sample's passages, one each."""
    return [source_link(sample.app, name) for name in reports.names(sample)]


def rows_of(report: SourceReport, wanted: Wanted) -> list[Row]:
    """Table rows in the order wanted; of the one source that was asked for."""
    some: Sequence[Source] = ordered(report, wanted.order)
    if wanted.source:
        some = [one for one in some if one.name == wanted.source]
    return [Row(source=one, address=wanted.address(one.name), chart=chart_of(one, report)) for one in some[:ROWS]]


def chart_of(one: Source, report: SourceReport) -> Markup:
    """Mean score of the exchanges with a source, by twelfth of the window."""
    length = (report.until - report.since) / max(len(one.trend), 1)
    dots = [Dot(at=part.since + length / 2, mean=part.mean, n=part.uses) for part in one.trend if part.mean is not None]
    if not dots:
        return Markup("")
    uses = by_part([part.uses for part in one.trend], "use")
    mean = f"From {number(dots[0].mean, 2)} to {number(dots[-1].mean, 2)}" if dots[1:] else number(dots[0].mean, 2)
    desc = f"{mean}; {uses}."
    title = f"Mean {report.metric} of exchanges with {one.name}"
    return sparkline(dots, title=title, desc=desc, since=report.since, until=report.until, gap_s=2.5 * length)


def source_view_handlers(site: Site) -> list[Any]:
    """The handler of `/sources`."""

    @get("/sources")
    async def sources(request: Page) -> Template:
        scored = site.insight.quality()
        wanted = wanted_of(request, usual_app(site))
        span_s, problem = span_of(wanted, site.clock())
        report = None
        if wanted.app and not problem:
            try:
                report = await site.sources.report(wanted.app, wanted.metric or None, since_s=span_s, budget_s=BUDGET_S)
            except UnknownMetricError as error:
                problem = f"metric: {error}"
        return site.render(
            request,
            "sources.html",
            title="Sources",
            status=400 if problem else 200,
            wanted=wanted,
            report=report,
            rows=rows_of(report, wanted) if report is not None else [],
            problem=problem,
            apps=sorted({one.app for one in scored}),
            metrics=sorted({one.metric for one in scored} | {*DEFAULT_METRICS}),
            orders=ORDER_WORDS,
            spans=SPANS,
        )

    return [sources]


def usual_app(site: Site) -> str:
    """The app with the most scores; "" without any."""
    return max(site.insight.quality(), key=lambda one: one.n).app if site.insight.quality() else ""


def span_of(wanted: Wanted, now: float) -> tuple[float, str]:
    """How far back the selection goes, in seconds, or what is wrong with it."""
    try:
        span_s = now - captured.since(wanted.since, now)
    except (ValueError, OverflowError) as error:
        return 0.0, f"since: {error}"
    if not 0.0 < span_s <= _EARLIEST_S:
        return 0.0, "since: must be in the past, and at most 90 days ago"
    return float(round(span_s)), ""


def wanted_of(request: Page, app: str) -> Wanted:
    """The selection of a request; `app` is used without one."""
    given = {
        name: request.query_params.get(name, "").strip()[:_LONGEST_FIELD]
        for name in ("app", "metric", "since", "order", "source")
    }
    order: Order = next((one for one in ORDERS if one == given["order"]), "named")
    return Wanted(
        app=given["app"] or app,
        metric=given["metric"],
        since=given["since"] or SINCE,
        order=order,
        source=given["source"],
    )
