"""One exchange: answer beside passages, verdicts, times, conversation, similar failures, and a feedback form."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote

from litestar import get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, Template

from dashboards.web.addresses import address_with, explore
from dashboards.web.format import shortened
from dashboards.web.incident.exchange_summary import badge_of, candidate_answers, line_of, spans_of, summary_of
from dashboards.web.incident.exchange_text import MOST, SHOWN, SIGNS, prompt_of, read
from dashboards.web.incident.neighbours import list_fields, place_of, similar_failures
from dashboards.web.site import Page, Site, done, operator_of
from dashboards.web.views.alerts import found_alert
from dashboards.web.views.explore import selection
from dashboards.web.views.sources import source_links
from gaugeway.records import Evaluation, Sample, Score, Supplement
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Store
from monitors.analysis.datasets import MAX_ADDED, WORST
from monitors.analysis.prompt_text import HASHED
from monitors.api.documents import add_rows

MAX_LABEL, MAX_COMMENT, MAX_REFERENCE = 200, 2000, 40_000
RATINGS = {"1": 1.0, "0.5": 0.5, "0": 0.0}
LENGTHS = {"label": MAX_LABEL, "comment": MAX_COMMENT, "reference": MAX_REFERENCE}
MAX_SUPPLEMENTS = 50
MAX_ANSWERS = 10  # internal bound: a list for people
"""Answers of trials' candidates that are shown."""
MAX_STEPS = 50
"""Exchanges of a conversation that are listed, the latest."""


def supplement_of(sample_id: str, given: Mapping[str, str], now: float) -> Supplement:
    """Supplement from the feedback form. Raises ValueError for an empty form or a field that is too long."""
    rating = given.get("rating", "")
    if rating and rating not in RATINGS:
        raise ValueError("choose one of the ratings")
    texts: dict[str, str | None] = {}
    for name, most in LENGTHS.items():
        text = given.get(name, "").strip().replace("\r\n", "\n")
        if len(text) > most:
            raise ValueError(f"the {name} has {len(text)} characters; at most {most} are allowed")
        texts[name] = text or None
    if not rating and not any(texts.values()):
        raise ValueError("choose a rating or enter a label, a comment or a reference")
    return Supplement(
        id=uuid.uuid4().hex,
        received_at=now,
        source="feedback",
        exchange_id=sample_id,
        rating=RATINGS.get(rating),
        label=texts["label"],
        comment=texts["comment"],
        reference=texts["reference"],
    )


def tokens_of(sample: Sample) -> str:
    """The tokens of an exchange by kind, in words."""
    counts = asdict(sample.usage) if sample.usage else {}
    return ", ".join(f"{n} {name.removesuffix('_tokens')}" for name, n in counts.items() if n is not None)


def scores_of(site: Site, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The evaluations by metrics as badges and as lines; and the signals: name, what the mean of it is, and value."""
    metrics = [evaluation for evaluation in evaluations if evaluation.metric not in SIGNALS]
    badges = [badge_of(evaluation, site.passing, site.error_of) for evaluation in metrics]
    return {
        "lines": [line_of(evaluation) for evaluation in metrics],
        "badges": sorted(badges, key=lambda badge: ("bad", "warn", "good", "").index(badge.kind)),
        "wrong": {badge.metric for badge in badges if badge.kind == "bad"},
        "signals": [
            (evaluation.metric, SIGNALS[evaluation.metric].meaning, evaluation.outcome.value)
            for evaluation in evaluations
            if evaluation.metric in SIGNALS and isinstance(evaluation.outcome, Score)
        ],
    }


def standalone_of(sample: Sample, evaluations: Sequence[Evaluation]) -> str:
    """A follow-up's question as a judge read it after the conversation; "" where it says the same as the question."""
    for evaluation in evaluations:
        for item in evaluation.outcome.evidence if isinstance(evaluation.outcome, Score) else ():
            if isinstance(found := item.get("standalone_question"), str):
                return "" if found == (sample.question or "").strip() else found
    return ""


def steps_of(sample: Sample, stored: Sequence[Sample]) -> list[Sample]:
    """The exchanges of a sample's conversation in the order of time; none if there is no other."""
    others = {other.id: other for other in stored if other.app == sample.app and not other.transcript}
    others[sample.id] = sample
    return sorted(others.values(), key=lambda step: step.started_at) if len(others) > 1 else []


def is_hashed(sample: Sample) -> bool:
    """Whether the store keeps only hashes of the texts."""
    texts: Sequence[str | None] = (sample.question, sample.response)
    given = [text for text in texts if text]
    return bool(given) and all(text.startswith(HASHED) for text in given)


async def _stored(store: Store, exchange_id: str) -> tuple[Sample, Sequence[Evaluation]]:
    """Raises NotFoundException."""
    found = await store.sample(exchange_id)
    if found is None:
        raise NotFoundException(f"No exchange with the id {exchange_id[:100]}. It may have expired.")
    return found


async def _around(site: Site, request: Page, sample: Sample, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """What stands around an exchange: the list one comes from, times, and similar failures."""
    store = site.insight.store
    fields = list_fields(request.query_params.get("list", ""))
    place = None
    if fields:
        chosen = selection(fields, site.clock())
        fixed = bool(chosen.problems or chosen.given["topic"] or chosen.hashed_source)
        place = await place_of(store, chosen.fields, None if fixed else chosen.query, sample, evaluations)
    return {
        "place": place,
        "list_text": request.query_params.get("list", "") if fields else "",
        "spans": spans_of(sample, evaluations),
        "similar": await similar_failures(
            store, sample, evaluations, site.sources.passing, metric=fields.get("metric", "")
        ),
    }


def exchange_handlers(site: Site) -> list[Any]:
    """The handlers of `/exchanges/{id}`."""
    store = site.insight.store

    @get("/exchanges/{exchange_id:str}")
    async def exchange(request: Page, exchange_id: FromPath[str]) -> Template | Redirect:
        sample, evaluations = await _stored(store, exchange_id)
        if sample.transcript:  # alerts and search results link to exchanges
            return Redirect(f"/conversations/{quote(sample.id, safe='')}")
        said, everything = await store.supplements_of(sample), request.query_params.get("all") == "1"
        answers, own = candidate_answers(evaluations)
        reading = await asyncio.to_thread(
            read,
            sample.response,
            sample.reference or "",
            sample.contexts,
            own,
            by=request.query_params.get("claims", ""),
            everything=everything,
        )
        here = f"/exchanges/{quote(sample.id, safe='')}"
        return site.render(
            request,
            "exchange.html",
            title=shortened(sample.question) or f"Exchange {sample.id[:8]}",
            sample=sample,
            question=(sample.question or "")[: MOST if everything else SHOWN],
            standalone=standalone_of(sample, evaluations),
            steps=steps_of(sample, await store.conversation(sample.conversation, MAX_STEPS))
            if sample.conversation
            else [],
            **await _around(site, request, sample, evaluations),
            reading=reading,
            answers=answers[:MAX_ANSWERS],
            prompt=prompt_of(sample, everything=everything),
            **scores_of(site, evaluations),
            tokens=tokens_of(sample),
            said=said[-MAX_SUPPLEMENTS:],
            earlier=max(0, len(said) - MAX_SUPPLEMENTS),
            signs=SIGNS,
            hashed=is_hashed(sample),
            source_links=source_links(site.sources, sample),
            here=here,
            lengths=LENGTHS,
        )

    @get("/exchanges/{exchange_id:str}/preview")
    async def preview(exchange_id: FromPath[str]) -> Template:
        sample, evaluations = await _stored(store, exchange_id)
        names = site.sources.names(sample)
        badge = partial(badge_of, passing=site.passing, error_of=site.error_of)
        summary = await asyncio.to_thread(summary_of, sample, evaluations, names, badge)
        return Template("preview.html", context=summary, media_type="text/html")

    return [exchange, preview, _feedback_handler(site), _dataset_handler(site)]


def _feedback_handler(site: Site) -> Any:
    store = site.insight.store

    @post("/exchanges/{exchange_id:str}/feedback", status_code=303)
    async def feedback(request: Page, exchange_id: FromPath[str]) -> Redirect:
        given = await site.form(request)
        sample, _ = await _stored(store, exchange_id)
        try:
            made = supplement_of(sample.id, given, site.clock())
        except ValueError as error:
            raise HTTPException(status_code=400, detail=str(error)) from error
        await site.supply([made])
        return done(f"/exchanges/{quote(sample.id, safe='')}", "saved")

    return feedback


def _dataset_handler(site: Site) -> Any:
    @post("/datasets", status_code=303)
    async def keep(request: Page) -> Redirect:
        given = await site.form(request)
        alert, fields, ids = given.get("alert"), given.get("list"), given.get("exchanges", "").split()[:MAX_ADDED]
        wanted = {"exchanges": ids, "by": operator_of(request), "limit": len(ids) or WORST}
        wanted["alert"] = None if alert is None else found_alert(site, alert)
        added = await add_rows(site.datasets, site.insight.store, request, given.get("name", ""), wanted)
        place, of = ("trials", given["trial"]) if "trial" in given else ("exchanges", "".join(ids[:1]))
        here = f"/{place}/{quote(of, safe='')}" if alert is None else f"/alerts/{alert}"
        shown = {"done": "kept" if added.added or added.replaced else "kept_already"}
        address = address_with(here, shown)
        return Redirect(address if fields is None else explore(dict(parse_qsl(fields)) | shown), status_code=303)

    return keep
