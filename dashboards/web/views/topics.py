"""Topics: an app's failing answers, declines and questions in clusters, with what differs and what is new."""

from __future__ import annotations

import time
from typing import Any

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import bars
from dashboards.web.format import by_part
from dashboards.web.site import Page, Site
from dashboards.web.views.sources import BUDGET_S, Selection, read_period, report_view
from monitors.analysis.answer_clusters import KINDS, AnswerCluster


def trend_chart(cluster: AnswerCluster) -> Markup:
    """Answers of a cluster by twelfth of the period."""
    counts = [step.n for step in cluster.trend]
    return bars(counts, title=f"Over the period: {cluster.name or 'no name'}", desc=f"{by_part(counts, 'answer')}.")


def topic_handlers(site: Site) -> list[Any]:
    """The handler of `/topics`."""

    async def read(wanted: Selection) -> dict[str, Any]:
        reports = {}
        period, deadline = read_period(wanted), time.monotonic() + BUDGET_S
        for kind in KINDS:
            period["budget_s"] = max(0.0, deadline - time.monotonic())
            reports[kind] = await site.sources.clusters(kind=kind, **period)
        return {"report": reports["failures"], "reports": reports}

    @get("/topics")
    async def topics(request: Page) -> Template:
        return await report_view(request, site, "topics.html", "Topics", read=read, chart_of=trend_chart)

    return [topics]
