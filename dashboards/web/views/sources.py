"""Sources: what each source of an app's passages did for the answers, and the worst answers with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import Dot, sparkline
from dashboards.web.format import by_part, number
from dashboards.web.site import Page, Site
from dashboards.web.texts import TEXTS
from dashboards.web.views.app_reports import Selection, report_view
from gaugeway.records import Sample
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.retrieval.sources import Source, SourceReport
from monitors.api.sources import ordered

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
    some = [source for source in ordered(report, wanted.order) if wanted.source in ("", source.name)]
    return some[:ROWS]


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
    desc = f"{mean}; {uses}."
    title = f"Mean {report.metric} of exchanges with {source.name}"
    return sparkline(dots, title=title, desc=desc, since=report.since, until=report.until, gap_s=2.5 * length)


def source_view_handlers(site: Site) -> list[Any]:
    """The handler of `/sources`."""

    @get("/sources")
    async def sources(request: Page) -> Template:
        return await report_view(
            request,
            site,
            "sources.html",
            "Sources",
            read=site.sources.report,
            rows_of=rows_of,
            chart_of=chart_of,
            orders=TEXTS["orders"],
        )

    return [sources]
