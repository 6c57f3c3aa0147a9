"""Sources: what each source did for an app's answers; and the frame of a report, which Topics has too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from litestar import get
from litestar.exceptions import HTTPException
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.addresses import address_with
from dashboards.web.charts import Dot, sparkline
from dashboards.web.format import by_part, number
from dashboards.web.site import TEXTS, Page, Site
from dashboards.web.toolbar import TimeRange, time_range
from gaugeway.records import Sample
from monitors.analysis.captured import UnknownMetricError
from monitors.analysis.retrieval.source_reading import DAY_S, DEFAULT_METRICS, SourceReports
from monitors.analysis.retrieval.sources import Source, SourceReport
from monitors.api.reports import MAX_PERIOD_S, ORDERS, Order, ordered

BUDGET_S = 1.5
_LONGEST_FIELD = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The form: app, metric ("" for the usual one), order, one source ("" for all), and the period of the frame."""

    app: str
    metric: str
    order: Order
    source: str
    period: TimeRange

    def address(self, source: str = "") -> str:
        """The address of the same selection with another source."""
        fields = {"app": self.app, "metric": self.metric, **self.period.params, "source": source}
        return address_with("/sources", fields)


def usual_app(site: Site) -> str:
    """The app with the most scores; "" without any."""
    scored = site.insight.quality()
    return max(scored, key=lambda quality: quality.n).app if scored else ""


def selection_of(params: Mapping[str, str], site: Site) -> Selection:
    """The selection of an address. Raises HTTPException (400) for an invalid period."""
    period = time_range(params, site.clock())
    if period.seconds > MAX_PERIOD_S:
        raise HTTPException(status_code=400, detail=f"since: at most {MAX_PERIOD_S / DAY_S:g} days before until")
    given = {name: params.get(name, "").strip()[:_LONGEST_FIELD] for name in ("app", "metric", "order", "source")}
    return Selection(
        app=given["app"] or usual_app(site),
        metric=given["metric"],
        order=next((order for order in ORDERS if order == given["order"]), "named"),
        source=given["source"],
        period=period,
    )


def read_period(wanted: Selection) -> dict[str, Any]:
    """The app, metric and period of a selection, as the reports take them."""
    return {
        "app": wanted.app,
        "metric": wanted.metric or None,
        "since_s": float(round(wanted.period.seconds)),
        "until": None if wanted.period.live else wanted.period.until,
        "budget_s": BUDGET_S,
    }


async def report_view(
    request: Page,
    site: Site,
    template: str,
    title: str,
    *,
    read: Callable[[Selection], Awaitable[Mapping[str, Any]]],
    **context: Any,
) -> Template:
    """Render the view of what was `read`, a `report` at least, or what is wrong with the selection (status 400)."""
    wanted, problem = None, ""
    shown: Mapping[str, Any] = {"report": None}
    try:
        wanted = selection_of(request.query_params, site)
        if wanted.app:
            shown = await read(wanted)
    except UnknownMetricError as error:
        problem = f"metric: {error}"
    except HTTPException as error:
        problem = error.detail
    scored = site.insight.quality()
    wanted = wanted or selection_of({}, site)
    return site.render(
        request,
        template,
        title=title,
        status=400 if problem else 200,
        time_range=wanted.period,
        wanted=wanted,
        problem=problem,
        apps=sorted({quality.app for quality in scored}),
        metrics=sorted({quality.metric for quality in scored} | {*DEFAULT_METRICS}),
        **shown,
        **context,
    )


ROWS = 100
"""Rows of the table; the API returns all sources."""


def source_link(app: str, name: str) -> str:
    """The address of a source's page; "" for a passage without a name."""
    return f"/sources?{urlencode({'app': app, 'source': name})}" if name else ""


def source_links(reports: SourceReports, sample: Sample) -> list[str]:
    """The addresses of the sources of a sample's passages, one each."""
    return [source_link(sample.app, name) for name in reports.names(sample)]


def rows_of(report: SourceReport, wanted: Selection) -> Sequence[Source]:
    """Return the sources in the order wanted; only the one that was asked for, if one was."""
    return [source for source in ordered(report, wanted.order) if wanted.source in ("", source.name)][:ROWS]


def worst_of(report: SourceReport, name: str) -> list[str]:
    """The ids of the worst answers with a source."""
    return [worst for source in report.sources if name and source.name == name for worst in source.worst_exchanges]


def chart_of(source: Source, report: SourceReport) -> Markup:
    """Mean score of the exchanges with a source, by twelfth of the window."""
    length = (report.until - report.since) / max(len(source.trend), 1)
    dots = [
        Dot(at=part.since + length / 2, mean=part.mean, n=part.uses) for part in source.trend if part.mean is not None
    ]
    if not dots:
        return Markup("")
    uses = by_part([part.uses for part in source.trend], "use")
    mean = f"From {number(dots[0].mean, 2)} to {number(dots[-1].mean, 2)}" if dots[1:] else number(dots[0].mean, 2)
    title, desc = f"Mean {report.metric} of exchanges with {source.name}", f"{mean}; {uses}."
    return sparkline(dots, title=title, desc=desc, since=report.since, until=report.until, gap_s=2.5 * length)


def source_view_handlers(site: Site) -> list[Any]:
    """The handler of `/sources`."""

    async def read(wanted: Selection) -> dict[str, Any]:
        reports = await site.sources.read(**read_period(wanted))
        costs = reports.costs if site.trials is None else await site.trials.advised(reports.costs)
        questions = await site.insight.store.questions(worst_of(reports.sources, wanted.source))
        return {"report": reports.sources, "costs": costs, "questions": questions}

    @get("/sources")
    async def sources(request: Page) -> Template:
        return await report_view(
            request,
            site,
            "sources.html",
            "Sources",
            read=read,
            trials_have_a_page=site.trials is not None,
            rows_of=rows_of,
            chart_of=chart_of,
            orders=TEXTS["orders"],
        )

    return [sources]
