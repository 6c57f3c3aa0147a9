"""Conversations: those that have ended with the scores of each, those that exchanges belong to, and one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Template

from dashboards.web.format import shortened
from dashboards.web.incident.evaluation_lines import Line, line_of
from dashboards.web.incident.examples import question_of
from dashboards.web.incident.explore_search import Cursor, Found, search
from dashboards.web.readings.conversations import MAX_EXCHANGES, Threads, exchanges_of, threads
from dashboards.web.site import Page, Site
from dashboards.web.time_range import time_range
from dashboards.web.views.exchange import steps_of, tokens_of
from dashboards.web.views.explore import MAX_FIELD, Selection, selection
from gaugeway.records import Sample
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Store

ROWS, MAX_STEPS = 50, 200
BUDGET_S = 0.14


async def listed(
    store: Store, chosen: Selection, metrics: Sequence[str], after: Cursor | None
) -> tuple[list[tuple[Sample, dict[str, Line]]], Found]:
    """A page of conversations with their evaluations by metric, found by the first of the metrics."""
    metric = chosen.query.metric if chosen.query.metric in metrics else metrics[0]
    query = replace(chosen.query, metric=metric)
    found = await search(store, query, after=after, wanted=ROWS, budget_s=BUDGET_S, clock=time.monotonic)
    ids = list(dict.fromkeys(point.sample_id for point in found.points))
    stored = await asyncio.gather(*(store.sample(sample_id) for sample_id in ids))
    rows = [
        (exchange[0], {evaluation.metric: line_of(evaluation) for evaluation in exchange[1]})
        for exchange in stored
        if exchange is not None and exchange[0].transcript
    ]
    return rows, found


async def from_exchanges(site: Site, request: Page, key: str) -> Template:
    """The page of a conversation that is known by its exchanges. Raises NotFoundException."""
    some = await exchanges_of(site.insight.store, key, request.query_params.get("app", "")[:MAX_FIELD])
    if not some:
        raise NotFoundException(f"No conversation with the id {key[:100]}. It may have expired.")
    return site.render(
        request,
        "conversation_exchanges.html",
        title=shortened(some[0][0].question) or "Conversation",
        app=some[-1][0].app,
        session=some[-1][0].session,
        some=[
            (sample, [line_of(evaluation) for evaluation in made if evaluation.metric not in SIGNALS])
            for sample, made in some
        ],
        most=MAX_EXCHANGES,
    )


def conversation_handlers(site: Site) -> list[Any]:
    """The handlers of `/conversations` and `/conversations/{id}`."""
    store, passing = site.insight.store, site.passing

    def passes(point: Point) -> bool:
        return passing(point.metric).passes(point.value or 0.0)

    @get("/conversations")
    async def conversations(request: Page) -> Template:
        params = request.query_params
        about = await site.insight.status()
        metrics = [metric["name"] for metric in about["metrics"] if metric["of_conversations"]]
        period, chosen = time_range(params, site.clock()), selection(params, site.clock())
        after = Cursor.read(params.get("after", ""))
        scored = bool(metrics) and params.get("list") != "all"
        rows: list[tuple[Sample, dict[str, Line]]] = []
        found, read = Found(), Threads()
        if scored and not chosen.problems:
            rows, found = await listed(store, chosen, metrics, after)
        elif not chosen.problems:
            read = await threads(store, replace(chosen.query, order="newest"), after, passing)
            found = read.found
        return site.render(
            request,
            "conversations.html",
            title="Conversations",
            status=400 if chosen.problems else 200,
            time_range=period,
            chosen=chosen,
            metrics=metrics,
            scored=scored,
            threads=read,
            passes=passes,
            known_metrics=[metric["name"] for metric in about["metrics"] if not metric["of_conversations"]],
            rows=rows,
            question_of=question_of,
            found=found,
            paged=after is not None,
            silence_s=site.config.monitors.conversation_silence_s,
        )

    @get("/conversations/{conversation_id:str}")
    async def conversation(request: Page, conversation_id: FromPath[str]) -> Template:
        found = await store.sample(conversation_id)
        if found is None or not found[0].transcript:
            return await from_exchanges(site, request, conversation_id)
        sample, evaluations = found
        exchanges = await store.conversation(sample.conversation or "", MAX_STEPS)
        return site.render(
            request,
            "conversation.html",
            title=question_of(sample) or "Conversation",
            sample=sample,
            lines=[line_of(evaluation) for evaluation in evaluations],
            steps=[step for step in steps_of(sample, exchanges) if step.id != sample.id],
            tokens=tokens_of(sample),
        )

    return [conversations, conversation]
