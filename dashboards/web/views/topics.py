"""Topics: the questions without a good answer, by topic, with examples."""

from __future__ import annotations

from typing import Any

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import bars
from dashboards.web.format import by_part
from dashboards.web.site import Page, Site
from dashboards.web.views.explore import SPANS
from dashboards.web.views.sources import BUDGET_S, span_of, usual_app, wanted_of
from monitors.analysis.coverage_gaps import OTHERS, TopicGaps
from monitors.analysis.metric_names import UnknownMetricError
from monitors.analysis.source_reading import DEFAULT_METRICS

GAP_WORDS = {"declined": "declined", "no_passages": "no passages", "low": "low score"}


def chart_of(one: TopicGaps) -> Markup:
    """Questions of a topic without a good answer, by twelfth of the period."""
    if not one.gaps:
        return Markup("")
    counts = [part.gaps for part in one.trend]
    about = "in no topic" if one.topic == OTHERS else f"about {one.topic}"
    return bars(counts, title=f"Unanswered questions {about}", desc=f"{by_part(counts, 'question')}.")


def topic_handlers(site: Site) -> list[Any]:
    """The handler of `/topics`."""

    @get("/topics")
    async def topics(request: Page) -> Template:
        scored = site.insight.quality()
        wanted = wanted_of(request, usual_app(site))
        span_s, problem = span_of(wanted, site.clock())
        report = None
        if wanted.app and not problem:
            try:
                report = await site.sources.gaps(wanted.app, wanted.metric or None, since_s=span_s, budget_s=BUDGET_S)
            except UnknownMetricError as error:
                problem = f"metric: {error}"
        return site.render(
            request,
            "topics.html",
            title="Topics",
            status=400 if problem else 200,
            wanted=wanted,
            report=report,
            rows=[(one, chart_of(one)) for one in report.topics] if report is not None else [],
            problem=problem,
            apps=sorted({one.app for one in scored}),
            metrics=sorted({one.metric for one in scored} | {*DEFAULT_METRICS}),
            gaps=GAP_WORDS,
            spans=SPANS,
        )

    return [topics]
