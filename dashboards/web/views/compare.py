"""Compare: the version in use against a new one on the app's own traffic. Ship, roll back, or not enough data."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from litestar import get
from litestar.response import Template

from dashboards.web.site import Page, Site
from dashboards.web.views.comparing_view import SIGNS, Row, rows_of, start, verdict
from monitors.analysis import ab_compare as comparing
from monitors.analysis import captured
from monitors.analysis.ab_query import UnknownVersionError, Wanted, keys_of, read
from monitors.metrics import LOWER_IS_BETTER
from monitors.storage.stores import Store

SINCE, MAX_FIELD = "7d", 300
SPANS = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
MOST, READING_S = 10_000, 2.0
"""Scores of a version that one view reads where the store cannot count them, and for how long it does."""
MOST_QUESTIONS, WITHIN_S = 1000, 0.12
"""Up to how many scores of both are read one by one, with their questions; and for how long scores are counted."""
FRESH_S, PARTIAL_S, _KEPT = 60.0, 2.0, 20
MAX_APPS = 200
"""Apps to choose from; others may be typed."""
LONGEST_S = 366 * 86_400.0
"""How far back one view looks: the store is asked day by day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a visitor wants compared."""

    by: str
    a: str
    b: str
    app: str
    since: str
    margin: float
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of it; `capped` when there are more scores than could be read yet, `at` is when that was."""

    rows: Sequence[Row]
    decision: str
    verdict: Mapping[str, Any]
    capped: bool
    at: float


def asked(params: Mapping[str, str]) -> Asked:
    """Read the form.

    >>> asked({"by": "model", "delta": "2"}).problems
    ('what may be lost lies between 0 and 1',)
    """
    given = {name: params.get(name, "").strip()[:MAX_FIELD] for name in ("by", "a", "b", "app", "since", "delta")}
    problems = []
    if given["by"] and given["by"] not in ("model", "prompt") and not given["by"].startswith("tag:"):
        problems.append("versions are told apart by model, prompt or tag:NAME")
    try:
        margin = float(given["delta"] or comparing.MARGIN)
    except ValueError:
        margin = -1.0
    if not 0.0 <= margin < 1.0:
        problems.append("what may be lost lies between 0 and 1")
        margin = comparing.MARGIN
    try:
        captured.since(given["since"] or SINCE, 0.0)
    except (ValueError, OverflowError) as error:
        problems.append(f"since: {error}")
        given["since"] = SINCE
    return Asked(
        by=given["by"],
        a=given["a"],
        b=given["b"],
        app=given["app"],
        since=given["since"] or SINCE,
        margin=margin,
        problems=tuple(problems),
    )


class Comparisons:
    """Compares one pair after the other, and remembers what came out for a minute: many may look at the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Semaphore(1)
        self._known: OrderedDict[Asked, Answer] = OrderedDict()

    async def of(self, wanted: Asked, now: float, lower: frozenset[str]) -> Answer:
        """Compare. Raises ValueError for versions that cannot be, UnknownVersionError for one without a score."""
        async with self._turn:
            known = self._known.get(wanted)
            if known is None or now - known.at > (PARTIAL_S if known.capped else FRESH_S):
                known = self._known[wanted] = await self._compared(wanted, now, lower)
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return known

    async def _compared(self, wanted: Asked, now: float, lower: frozenset[str]) -> Answer:
        since = captured.since(wanted.since, now)
        everything, partial_ = await read(
            self._store,
            Wanted(
                by=wanted.by,
                a=wanted.a,
                b=wanted.b,
                since=since,
                until=now + 1.0,
                app=wanted.app or None,
                few=MOST_QUESTIONS,
                most=MOST,
                within_s=WITHIN_S,
                reading_s=READING_S,
            ),
        )
        keys = await keys_of(self._store, everything, "auto", most=MOST_QUESTIONS)
        work = partial(comparing.compare, margin=wanted.margin, keys=keys, lower_is_better=lower.__contains__)
        compared = await asyncio.to_thread(work, everything)
        decision = comparing.decision(compared) if compared else "not enough data"
        return Answer(
            rows=await asyncio.to_thread(rows_of, everything, compared, names=(wanted.a, wanted.b), lower=lower),
            decision=decision,
            verdict=verdict(compared, decision, wanted.a, wanted.b),
            capped=partial_,
            at=now,
        )


def compare_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/compare`."""
    comparisons = Comparisons(site.insight.store)
    configured = [one for one in site.config.alerts.slices if one.startswith("tag:")]

    @get("/compare")
    async def compare(request: Page) -> Template:
        wanted, now = asked(request.query_params), site.clock()
        versions = site.engine.versions.all()
        begin = start(versions, by=wanted.by, app=wanted.app, kinds=configured)
        a, b = wanted.a, wanted.b
        if not (a or b):
            a, b = begin.a, begin.b
        about = await site.insight.status()
        lower = LOWER_IS_BETTER | {one["name"] for one in about["metrics"] if one["lower_is_better"]}
        answer, problems, missing = None, list(wanted.problems), ""
        if captured.since(wanted.since, now) < now - LONGEST_S:
            problems.append("since: a year back at most")
        if a and b and not problems:
            chosen = Asked(by=begin.by, a=a, b=b, app=wanted.app, since=wanted.since, margin=wanted.margin)
            try:
                answer = await comparisons.of(chosen, now, lower)
            except UnknownVersionError as error:
                missing = str(error)
            except ValueError as error:
                problems.append(str(error))
        return site.render(
            request,
            "compare.html",
            title="Compare versions",
            status=400 if problems else 200,
            wanted=wanted,
            begin=begin,
            a=a,
            b=b,
            answer=answer,
            problems=problems,
            missing=missing,
            signs=SIGNS,
            spans=SPANS,
            apps=sorted({one.app for one in versions} | {one.app for one in site.insight.quality()})[:MAX_APPS],
            alpha=comparing.ALPHA,
        )

    return [compare]
