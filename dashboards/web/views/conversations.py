"""Conversations: those that have ended with the scores of each, those that exchanges belong to, and one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, Template
from msgspec import Struct

from dashboards.web.addresses import chips_of
from dashboards.web.incident.exchange_summary import badge_of, line_of, question_of
from dashboards.web.incident.explore_search import Cursor, Found, search
from dashboards.web.site import Page, Site
from dashboards.web.toolbar import time_range
from dashboards.web.views.exchange import tokens_of
from dashboards.web.views.explore import MAX_FIELD, Selection, selection
from gaugeway.records import Evaluation, Message, Sample, grouped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from monitors.analysis.conversation_list import Thread, thread_of
from monitors.analysis.human_labels import Passings

MAX_POINTS = 400
"""Evaluations of a page of conversations."""
MAX_EXCHANGES = 50
"""Exchanges of a conversation that are shown, the latest."""
AT_ONCE = 100


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
        thread_of(some, [point for sample in some for point in points[sample.id]], passing) for some in by_key.values()
    ]
    kept = [thread for thread in rows if thread.session or thread.turns > 1 or thread.exchanges > 1]
    kept.sort(key=lambda thread: -thread.last_at)
    listed = sum(thread.exchanges for thread in kept)
    return Threads(rows=kept, found=found, exchanges=len(samples), single=len(samples) - listed)


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


ROWS = 50
BUDGET_S, THREADS_S = 0.14, 0.1
"""How long a page of conversations with scores is looked for, and one by exchanges."""


async def listed(
    store: Store, chosen: Selection, metrics: Sequence[str], after: Cursor | None
) -> tuple[list[tuple[Sample, Sequence[Evaluation]]], Found]:
    """A page of conversations with their evaluations, found by the first of the metrics."""
    metric = chosen.query.metric if chosen.query.metric in metrics else metrics[0]
    query = replace(chosen.query, metric=metric)
    found = await search(store, query, after=after, wanted=ROWS, budget_s=BUDGET_S, clock=time.monotonic)
    ids = list(dict.fromkeys(point.sample_id for point in found.points))
    stored = await asyncio.gather(*(store.sample(sample_id) for sample_id in ids))
    return [exchange for exchange in stored if exchange is not None and exchange[0].transcript], found


class Turn(Struct, frozen=True, kw_only=True):
    """A question with its answer, and the exchange that they are from; None where none was captured."""

    question: str
    answer: str
    sample: Sample | None = None
    evaluations: Sequence[Evaluation] = ()


def turns_of(transcript: Sequence[Message], exchanges: Sequence[tuple[Sample, Sequence[Evaluation]]]) -> list[Turn]:
    """The turns of a transcript, each with the exchange of the same question; without a transcript all exchanges."""
    own = [
        Turn(question=sample.question or "", answer=sample.response, sample=sample, evaluations=made)
        for sample, made in exchanges
    ]
    by_question = {turn.question.strip(): turn for turn in own}
    turns: list[Turn] = []
    for message in transcript:
        if message.role != "user" and turns:
            turns[-1] = msgspec.structs.replace(turns[-1], answer=f"{turns[-1].answer}\n{message.text}".strip())
            continue
        known = by_question.pop(message.text.strip(), Turn(question="", answer=""))
        question, answer = (message.text, "") if message.role == "user" else ("", message.text)
        turns.append(msgspec.structs.replace(known, question=question, answer=answer))
    return turns or own


def conversation_handlers(site: Site) -> list[Any]:
    """The handlers of `/conversations` and `/conversations/{id}`."""
    store = site.insight.store

    @get("/conversations")
    async def conversations(request: Page) -> Template | Redirect:
        params = request.query_params
        about = await site.insight.status()
        metrics = [metric["name"] for metric in about["metrics"] if metric["of_conversations"]]
        others = [metric["name"] for metric in about["metrics"] if not metric["of_conversations"]]
        period, chosen = time_range(params, site.clock()), selection(params, site.clock())
        after = Cursor.read(params.get("after", ""))
        scored = bool(metrics) and params.get("list") != "all"
        which = "all" if metrics and not scored else ""
        if (added := chosen.with_filter(params, "/conversations", list=which)) is not None:
            return Redirect(added)
        rows: list[tuple[Sample, Sequence[Evaluation]]] = []
        found, read = Found(), Threads()
        if scored and not chosen.problems:
            rows, found = await listed(store, chosen, metrics, after)
        elif not chosen.problems:
            read = await threads(store, replace(chosen.query, order="newest"), after, site.passing)
            found = read.found
        return site.render(
            request,
            "conversations.html",
            title="Conversations",
            status=400 if chosen.problems else 200,
            time_range=period,
            chosen=chosen,
            chips=chips_of(chosen.fields | {"list": which}, "/conversations"),
            choices={"app": sorted({name for name, _ in site.apps()}), "metric": metrics if scored else others},
            which=which,
            metrics=metrics,
            scored=scored,
            threads=read,
            badge=partial(badge_of, passing=site.passing, error_of=site.error_of),
            rows=rows,
            question_of=question_of,
            found=found,
            paged=after is not None,
            silence_s=site.config.monitors.conversation_silence_s,
        )

    return [conversations, _conversation_handler(site)]


def _conversation_handler(site: Site) -> Any:
    store = site.insight.store

    @get("/conversations/{conversation_id:str}")
    async def conversation(request: Page, conversation_id: FromPath[str]) -> Template:
        found = await store.sample(conversation_id)
        whole = found if found is not None and found[0].transcript else None
        named = request.query_params.get("app", "")[:MAX_FIELD]
        key, app = (conversation_id, named) if whole is None else (whole[0].conversation or "", whole[0].app)
        exchanges = await exchanges_of(store, key, app)
        if whole is None and not exchanges:
            raise NotFoundException(f"No conversation with the id {key[:100]}. It may have expired.")
        about, evaluations = whole or exchanges[-1]
        turns = turns_of(about.transcript, exchanges)
        shown = {turn.sample.id for turn in turns if turn.sample is not None}
        return site.render(
            request,
            "conversation.html",
            title=question_of(about if whole else exchanges[0][0]) or "Conversation",
            sample=about,
            whole=whole is not None,
            turns=turns,
            badge=partial(badge_of, passing=site.passing, error_of=site.error_of),
            signals=SIGNALS,
            lines=[line_of(evaluation) for evaluation in evaluations] if whole else [],
            steps=[sample for sample, _ in exchanges if sample.id not in shown],
            most=MAX_EXCHANGES,
            tokens=tokens_of(about),
        )

    return conversation
