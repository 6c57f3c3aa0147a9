"""Conversations: those that have ended with the scores of each, those that exchanges belong to, and one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Template
from msgspec import Struct

from dashboards.web.format import shortened
from dashboards.web.incident.exchange_summary import Line, line_of, question_of
from dashboards.web.incident.explore_search import Cursor, Found, search
from dashboards.web.site import Page, Site
from dashboards.web.toolbar import time_range
from dashboards.web.views.exchange import steps_of, tokens_of
from dashboards.web.views.explore import MAX_FIELD, Selection, selection
from gaugeway.records import Evaluation, Sample, grouped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.human_labels import Passings

MAX_POINTS = 400
"""Evaluations of a page of conversations."""
MAX_EXCHANGES = 50
"""Exchanges of a conversation that are shown, the latest."""
AT_ONCE = 100


class Thread(Struct, frozen=True, kw_only=True):
    """A conversation: its `key` for an address, "" where only the `session` is known; `last_at` in Unix seconds.

    `opening` is the first question that was read, `turns` the number of the latest turn, `worst` the worst score.
    """

    key: str
    session: str
    app: str
    opening: str
    turns: int
    exchanges: int
    last_at: float
    worst: Point | None = None


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """A page of conversations, those with the latest exchanges first, of `exchanges` exchanges that were read.

    `single` exchanges have no session, and nothing continued them.
    """

    rows: Sequence[Thread] = ()
    found: Found = Found()
    exchanges: int = 0
    single: int = 0


async def threads(store: Store, query: Query, after: Cursor | None, passing: Passings) -> Threads:
    """Read a page of conversations: those of the next `MAX_POINTS` evaluations of a query, newest first."""
    found = await search(store, query, after=after, wanted=MAX_POINTS, budget_s=THREADS_S, clock=time.monotonic)
    points = grouped((point.sample_id, point) for point in found.points)
    ids = list(points)
    samples: dict[str, Sample] = {}
    for start in range(0, len(ids), AT_ONCE):
        samples |= await store.samples(ids[start : start + AT_ONCE])
    by_key = grouped(
        ((sample.app, key), sample)
        for sample in samples.values()
        if not sample.transcript and (key := sample.conversation or sample.session)
    )
    rows = [
        _thread(some, [point for sample in some for point in points[sample.id]], passing) for some in by_key.values()
    ]
    kept = [thread for thread in rows if thread.session or thread.turns > 1 or thread.exchanges > 1]
    kept.sort(key=lambda thread: -thread.last_at)
    listed = sum(thread.exchanges for thread in kept)
    return Threads(rows=kept, found=found, exchanges=len(samples), single=len(samples) - listed)


def _thread(some: Sequence[Sample], points: Sequence[Point], passing: Passings) -> Thread:
    first, last = (pick(some, key=lambda sample: sample.started_at) for pick in (min, max))
    scored = [point for point in points if point.value is not None]
    return Thread(
        key=last.conversation or "",
        session=last.session or "",
        app=last.app,
        opening=first.question or "",
        turns=max([1, *(sample.turn or 0 for sample in some)]),
        exchanges=len(some),
        last_at=last.started_at,
        worst=min(scored, key=lambda point: _goodness(point, passing), default=None),
    )


def _goodness(point: Point, passing: Passings) -> tuple[bool, float]:
    """Failing scores first, the farthest from the metric's best value before others."""
    rule, value = passing(point.metric), point.value or 0.0
    return rule.passes(value), 1.0 - value if rule.flipped else value


async def exchanges_of(store: Store, key: str, app: str) -> list[tuple[Sample, Sequence[Evaluation]]]:
    """The latest `MAX_EXCHANGES` exchanges of a conversation with their evaluations, the oldest first.

    Without an `app` those of the app with the latest exchange: a conversation is one app's.
    """
    stored = [sample for sample in await store.conversation(key, MAX_EXCHANGES + 1) if not sample.transcript]
    if not stored:
        return []
    whose = app or stored[-1].app
    ids = [sample.id for sample in stored if sample.app == whose][-MAX_EXCHANGES:]
    return [
        exchange for exchange in await asyncio.gather(*(store.sample(name) for name in ids)) if exchange is not None
    ]


ROWS, MAX_STEPS = 50, 200
BUDGET_S, THREADS_S = 0.14, 0.1
"""How long a page of conversations with scores is looked for, and one by exchanges."""


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
