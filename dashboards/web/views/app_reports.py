"""What the views of an app's sources and topics share: their form, their period, and reading the report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from litestar.exceptions import HTTPException
from litestar.response import Template

from dashboards.web.addresses import address_with
from dashboards.web.site import Page, Site
from dashboards.web.time_range import TimeRange, time_range
from monitors.analysis.metric_names import UnknownMetricError
from monitors.analysis.retrieval.source_reading import DEFAULT_METRICS
from monitors.api.sources import ORDERS, Order

BUDGET_S = 1.5
_LONGEST_FIELD = 300
_EARLIEST_S = 90 * 86_400.0


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
    if period.seconds > _EARLIEST_S:
        raise HTTPException(status_code=400, detail="since: at most 90 days before until")
    given = {name: params.get(name, "").strip()[:_LONGEST_FIELD] for name in ("app", "metric", "order", "source")}
    return Selection(
        app=given["app"] or usual_app(site),
        metric=given["metric"],
        order=next((order for order in ORDERS if order == given["order"]), "named"),
        source=given["source"],
        period=period,
    )


async def report_view(
    request: Page,
    site: Site,
    template: str,
    title: str,
    *,
    read: Callable[..., Awaitable[Any]],
    **context: Any,
) -> Template:
    """Render the view of a report, or what is wrong with the selection (status 400).

    `read` is `SourceReports.report` or `SourceReports.gaps`.
    """
    wanted, report, problem = None, None, ""
    try:
        wanted = selection_of(request.query_params, site)
        if wanted.app:
            report = await read(
                wanted.app,
                wanted.metric or None,
                since_s=float(round(wanted.period.seconds)),
                until=None if wanted.period.live else wanted.period.until,
                budget_s=BUDGET_S,
            )
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
        report=report,
        problem=problem,
        apps=sorted({quality.app for quality in scored}),
        metrics=sorted({quality.metric for quality in scored} | {*DEFAULT_METRICS}),
        **context,
    )
