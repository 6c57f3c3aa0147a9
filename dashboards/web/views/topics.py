"""Topics: the questions without a good answer, by topic, with examples."""

from __future__ import annotations

from typing import Any

from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import bars
from dashboards.web.format import by_part
from dashboards.web.site import Page, Site
from dashboards.web.views.app_reports import report_view
from monitors.analysis.retrieval.coverage_gaps import OTHERS, TopicGaps

GAP_WORDS = {"declined": "declined", "no_passages": "no passages", "low": "low score"}


def chart_of(topic: TopicGaps) -> Markup:
    """Questions of a topic without a good answer, by twelfth of the period."""
    if not topic.gaps:
        return Markup("")
    counts = [part.gaps for part in topic.trend]
    about = "in no topic" if topic.topic == OTHERS else f"about {topic.topic}"
    return bars(counts, title=f"Questions without a good answer {about}", desc=f"{by_part(counts, 'question')}.")


def topic_handlers(site: Site) -> list[Any]:
    """The handler of `/topics`."""

    @get("/topics")
    async def topics(request: Page) -> Template:
        return await report_view(
            request, site, "topics.html", "Topics", read=site.sources.gaps, chart_of=chart_of, gaps=GAP_WORDS
        )

    return [topics]
