"""Review: people label randomly drawn answers without seeing their scores; the judge's mean is corrected by them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from cachetools import TTLCache
from litestar import get, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.response import Redirect, Template
from msgspec import Struct

from dashboards.web.addresses import address_with
from dashboards.web.incident.exchange_text import MOST, SHOWN
from dashboards.web.site import Page, Site
from dashboards.web.views.exchange import is_hashed
from gaugeway.records import Sample, Score
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import LABELS, WITHDRAWN, LabelledScore, Query, ScoreSums
from monitors.analysis.human_labels import (
    HALF_WIDTH,
    WINDOW_S,
    Draw,
    Labelled,
    Passing,
    ReviewDraws,
    label,
    label_of,
    labelled,
)
from monitors.analysis.judge_check import judge_checks
from monitors.metrics.registry import declared

NAME_COOKIE = "gaugeway_reviewer"
NAME_S = 365 * 86_400
MAX_NAME = 100
MAX_RECENT = 5_000
"""Labels that are remembered until the worker has stored them."""
RECENT_S = 900.0
MAX_SUMS, SUMS_S = 64, 60.0
"""Apps and metrics whose sums of scores are kept, and for how long: reading those of a month may take a second."""
MAX_CHOICES = 200
"""Apps and metrics to choose from."""
MOST_TRIED = 50
"""Drawn answers that are looked up for one that is still stored."""
WITHIN_S = 0.2
_LATEST = 200
_DAY_S = 86_400.0


class Choice(Struct, frozen=True, kw_only=True):
    """What is reviewed: the answers of an app that have a score of a metric, to an interval of +- `half_width`."""

    app: str
    metric: str
    half_width: float = HALF_WIDTH

    def url(self, **more: str) -> str:
        """The address of the view."""
        width = {} if self.half_width == HALF_WIDTH else {"half_width": f"{self.half_width:g}"}
        return address_with("/review", {"app": self.app, "metric": self.metric} | width | more)


class Verdict(Struct, frozen=True, kw_only=True):
    """The last answer that this person labelled, with the score that was hidden until then."""

    sample_id: str
    label: str
    score: float | None = None
    judged: str = ""

    @property
    def agrees(self) -> bool:
        """Whether judge and person agree."""
        return self.label == self.judged


def name_of(request: Page) -> str:
    """The remembered name of the person; "" without one."""
    return " ".join(unquote(request.cookies.get(NAME_COOKIE, "")).split())[:MAX_NAME]


class Reviews:
    """The labels of this process that the worker may not have stored yet, by app and metric, and the draws."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.draws = ReviewDraws(site.insight.store, site.clock, site.stopping)
        self._recent: TTLCache[tuple[str, str, str, str], str] = TTLCache(MAX_RECENT, RECENT_S)
        self._sums: TTLCache[tuple[str, str], Sequence[ScoreSums]] = TTLCache(MAX_SUMS, SUMS_S)

    def note(self, choice: Choice, sample_id: str, by: str, word: str) -> None:
        """Remember a label; "" for a withdrawn one."""
        self._recent[choice.app, choice.metric, sample_id, by] = word

    def recent(self, choice: Choice) -> Mapping[tuple[str, str], str]:
        """The remembered labels by exchange and name."""
        return {
            (sample_id, by): word
            for (app, metric, sample_id, by), word in list(self._recent.items())
            if (app, metric) == (choice.app, choice.metric)
        }

    async def estimate(self, choice: Choice, rated: Sequence[LabelledScore], passing: Passing) -> Labelled | None:
        """The judge's mean and its correction; sums of all scores are read once in `SUMS_S`, labels each time."""
        key, query = (choice.app, choice.metric), _query(self.site, choice)
        sums = self._sums.get(key)
        if sums is None:
            with suppress(Unsupported):
                sums = self._sums[key] = await self.site.insight.store.scored(query)
        if sums is None:
            found = await labelled(
                self.site.insight.store, query, passing=lambda _: passing, half_width=choice.half_width
            )
        else:
            found = label(rated, sums, passing=lambda _: passing, half_width=choice.half_width)
        return next((agreement for agreement in found if agreement.source == "rating"), None)

    async def next(self, draw: Draw, after: str, labelled_ids: set[str]) -> Sample | None:
        """The next drawn answer that is still stored and has no label."""
        for tried, name in enumerate(draw.following(after, labelled_ids)):
            if tried >= MOST_TRIED:
                return None
            if (found := await self.site.insight.store.sample(name)) is not None:
                return found[0]
        return None

    async def verdict(self, choice: Choice, sample_id: str, label: str, passing: Passing) -> Verdict | None:
        """The last label beside the judge's score."""
        if not label or (found := await self.site.insight.store.sample(sample_id)) is None:
            return None
        scores = [
            evaluation.outcome.value
            for evaluation in found[1]
            if evaluation.metric == choice.metric and isinstance(evaluation.outcome, Score)
        ]
        if not scores:
            return Verdict(sample_id=sample_id, label=label)
        judged = "pass" if passing.passes(scores[-1]) else "fail"
        return Verdict(sample_id=sample_id, label=label, score=scores[-1], judged=judged)


async def choices_of(site: Site) -> list[tuple[str, str]]:
    """Apps and metrics with scores; those that a judge scored lately first, then the others by number of scores."""
    now = site.clock()
    query = Query(
        since=max(0.0, now - WINDOW_S),
        until=now + _DAY_S,
        without=tuple(SIGNALS),
        outcome="score",
        order="newest",
        limit=_LATEST,
    )
    latest = await site.insight.store.series(query)
    judged = Counter((point.app, point.metric) for point in latest if point.judge is not None)
    others = Counter((point.app, point.metric) for point in latest)
    for quality in site.insight.quality():
        if not quality.slice and quality.metric not in SIGNALS:
            others[quality.app, quality.metric] += quality.n
    return list(dict.fromkeys([*(key for key, _ in judged.most_common()), *(key for key, _ in others.most_common())]))[
        :MAX_CHOICES
    ]


def choice_of(fields: Mapping[str, str], known: Sequence[tuple[str, str]]) -> Choice | None:
    """The app and metric of the address, else the first known; None without any. Raises HTTPException (400)."""
    app, metric = fields.get("app", ""), fields.get("metric", "")
    if not (app and metric):
        fitting = [stream for stream in known if app in ("", stream[0]) and metric in ("", stream[1])]
        if not fitting:
            return None
        app, metric = fitting[0]
    try:
        width = float(fields.get("half_width") or HALF_WIDTH)
    except ValueError:
        width = math.nan
    if not 0.0 < width <= 0.5:  # noqa: PLR2004 - half of the scale
        raise HTTPException(status_code=400, detail="half_width: a number above 0, up to 0.5")
    return Choice(app=app, metric=metric, half_width=width)


def review_handlers(site: Site) -> list[Any]:
    """The handlers of `/review`."""
    reviews = Reviews(site)
    return [_view(site, reviews), *_forms(site, reviews)]


def _view(site: Site, reviews: Reviews) -> Any:
    @get("/review")
    async def review(request: Page) -> Template:
        fields, by = request.query_params, name_of(request)
        known = await choices_of(site)
        choice = choice_of(fields, known)
        if choice is None:
            return site.render(request, "review.html", title="Review", choice=None, by=by)
        passing = site.passing(choice.metric)
        rated = await _rated(site, choice)
        found = await reviews.estimate(choice, rated, passing)
        recent = reviews.recent(choice)
        draw = await reviews.draws.draw(choice.app, choice.metric, WITHIN_S)
        done = {*_ids(rated), *(name for (name, _), word in recent.items() if word)}
        sample = await _shown(reviews, draw, fields, done, choice.app)
        last = fields.get("last", "")
        word = recent.get((last, by), "") or _own(rated, last, by)
        everything = fields.get("all") == "1"
        return site.render(
            request,
            "review.html",
            title="Review",
            choice=choice,
            known=list(dict.fromkeys([*known, (choice.app, choice.metric)])),
            by=by,
            sample=sample,
            hashed=sample is not None and is_hashed(sample),
            most=MOST if everything else SHOWN,
            everything_url=choice.url(at=sample.id, all="1") if sample is not None else "",
            ask=declared(choice.metric, "review_question") or f"Is the answer good in the sense of {choice.metric}?",
            draw=draw,
            last=last,
            verdict=await reviews.verdict(choice, last, word, passing) if last else None,
            found=found,
            passing=passing,
            waiting=sum(1 for (name, _), word in recent.items() if word and name not in _ids(rated)),
            checks=await judge_checks(site.insight.store, _query(site, choice), passing=site.passing)
            if fields.get("check")
            else None,
            people=Counter(rating.by or "(no name)" for rating in rated).most_common(20),
        )

    return review


async def _shown(
    reviews: Reviews, draw: Draw, fields: Mapping[str, str], labelled_ids: set[str], app: str
) -> Sample | None:
    """The answer that the address asks for, else the next one."""
    if at := fields.get("at", ""):
        found = await reviews.site.insight.store.sample(at)
        if found is None or found[0].app != app:
            raise NotFoundException(f"No exchange with the id {at[:100]}. It may have expired.")
        return found[0]
    if not draw.complete:  # what was read so far are the latest answers only: no random sample
        return None
    return await reviews.next(draw, fields.get("after", ""), labelled_ids)


def _query(site: Site, choice: Choice) -> Query:
    now = site.clock()
    return Query(since=max(0.0, now - WINDOW_S), until=now + 1.0, app=choice.app, metric=choice.metric)


async def _rated(site: Site, choice: Choice) -> list[LabelledScore]:
    """The labels that people gave, in the order received."""
    return [rating for rating in await site.insight.store.ratings(_query(site, choice)) if rating.source == "rating"]


def _ids(rated: Sequence[LabelledScore]) -> set[str]:
    return {rating.sample_id for rating in rated}


def _own(rated: Sequence[LabelledScore], sample_id: str, by: str) -> str:
    words = {value: word for word, value in LABELS.items()}
    own = [words.get(rating.rating, "") for rating in rated if rating.sample_id == sample_id and rating.by == by]
    return own[-1] if own else ""


async def _given(site: Site, request: Page) -> tuple[dict[str, str], Choice, Sample, str]:
    """The fields of a form, what is reviewed, the answer, and who labels it. Raises HTTPException."""
    fields, by = await site.form(request), name_of(request)
    choice = choice_of(fields, ())
    if choice is None or not by:
        detail = "app and metric are required" if choice is None else "enter your name first"
        raise HTTPException(status_code=400, detail=detail)
    stored = await site.insight.store.sample(fields.get("id", ""))
    if stored is None:
        raise NotFoundException("This exchange is no longer stored. It may have expired.")
    sample, evaluations = stored
    if sample.app != choice.app or choice.metric not in {evaluation.metric for evaluation in evaluations}:
        raise HTTPException(status_code=400, detail="this exchange has no score of that app and metric")
    return fields, choice, sample, by


def _forms(site: Site, reviews: Reviews) -> list[Any]:
    @post("/review/label", status_code=303)
    async def add(request: Page) -> Redirect:
        fields, choice, sample, by = await _given(site, request)
        word = fields.get("label", "")
        if word in LABELS:
            await site.supply([label_of(sample, choice.metric, word, by, site.clock())])
            reviews.note(choice, sample.id, by, word)
        elif word != "skip":
            raise HTTPException(status_code=400, detail="label: pass, fail or skip")
        return Redirect(choice.url(after=sample.id, last=sample.id), status_code=303)

    @post("/review/undo", status_code=303)
    async def undo(request: Page) -> Redirect:
        _, choice, sample, by = await _given(site, request)
        if not reviews.recent(choice).get((sample.id, by)) and not _own(await _rated(site, choice), sample.id, by):
            return Redirect(choice.url(at=sample.id), status_code=303)  # it was skipped
        await site.supply([label_of(sample, choice.metric, WITHDRAWN, by, site.clock())])
        reviews.note(choice, sample.id, by, "")
        return Redirect(choice.url(at=sample.id, done="undone"), status_code=303)

    return [add, undo, _name_form(site)]


def _name_form(site: Site) -> Any:
    @post("/review/name", status_code=303)
    async def name(request: Page) -> Redirect:
        fields = await site.form(request)
        by = " ".join(fields.get("by", "").split())
        if not by or len(by) > MAX_NAME:
            raise HTTPException(status_code=400, detail=f"by: a name is required (up to {MAX_NAME} characters)")
        choice = choice_of(fields, ())
        kept = site.cookie(request, NAME_COOKIE, quote(by), NAME_S, path="/review")
        return Redirect(choice.url(done="named") if choice else "/review", status_code=303, cookies=[kept])

    return name
