"""Explore: search exchanges by app, model, tags, text and score; download the selection as a data set."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import msgspec
from litestar import get
from litestar.exceptions import HTTPException
from litestar.response import Stream, Template
from markupsafe import Markup

from dashboards.web.charts import bars
from dashboards.web.site import Page, Site
from dashboards.web.views.explore_search import BY_VALUE, Cursor, Found, everything, search, together
from monitors.alerting.versions import Version
from monitors.analysis import captured
from monitors.signals import RISING, SIGNALS
from monitors.storage.stores import Point, Query, Store

FIELDS = ("app", "metric", "model", "prompt", "tag", "outcome", "least", "most", "text", "since", "until", "order")
OUTCOMES = ("score", "skipped", "failed")
ORDERS = {"newest": "newest first", "lowest": "lowest score first", "highest": "highest score first"}
SPANS = (("1h", "1 hour"), ("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
SINCE, MAX_FIELD = "24h", 300
ROWS, POINTS = 50, 150
"""Exchanges per page if a metric is selected; otherwise evaluations per page."""
BINS, COUNTED, CHARTS = 20, 2000, 6
BUDGET_S, SPREAD_S = 0.14, 0.06
TEXT_S, THOROUGH_S = 0.08, 10.0
"""Time limits of a text search and of "Search longer"."""
_QUESTION = 160
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The submitted form: its fields as given, the resulting query, and validation errors."""

    given: Mapping[str, str]
    query: Query
    problems: Sequence[str] = ()

    def address(self, path: str = "/explore", **changes: str) -> str:
        """URL of this selection with some fields changed."""
        fields = {name: value for name, value in {**self.given, **changes}.items() if value}
        return f"{path}?{urlencode(fields)}" if fields else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Table row: one exchange with its selected evaluations."""

    id: str
    question: str
    points: Sequence[Point]

    @property
    def about(self) -> Point:
        """The first evaluation; all of them share the exchange's fields."""
        return self.points[0]


def selection(params: Mapping[str, str], now: float) -> Selection:
    """Parse the form. Invalid fields become problems and are left out of the query."""
    given = {name: params.get(name, "").strip()[:MAX_FIELD] for name in FIELDS}
    problems: list[str] = []

    def moment(name: str, otherwise: str) -> float:
        try:
            return min(max(0.0, captured.since(given[name] or otherwise, now)), now + _DAY_S)
        except (ValueError, OverflowError) as error:
            problems.append(f"{name}: {error}")
            return now

    def value(name: str) -> float | None:
        try:
            found = float(given[name]) if given[name] else None
        except ValueError:
            found = -1.0
        if found is not None and not 0.0 <= found <= 1.0:
            problems.append(f"a score must be between 0 and 1, not {given[name]!r}")
            return None
        return found

    name, equals, tag = given["tag"].partition("=")
    if given["tag"] and not (name and equals):
        problems.append(f"a tag must have the form name=value, not {given['tag']!r}")
    order = given["order"] if given["order"] in ORDERS else "newest"
    if order in BY_VALUE and not given["metric"]:
        problems.append("choose a metric to sort by score: scores of different metrics are not comparable")
        order = "newest"
    query = Query(
        since=moment("since", SINCE),
        until=moment("until", "0s"),
        app=given["app"] or None,
        metric=given["metric"] or None,
        without=() if given["metric"] else tuple(SIGNALS),
        model=given["model"] or None,
        prompt=given["prompt"] or None,
        text=given["text"] or None,
        tag=(name, tag) if name and equals else None,
        outcome=given["outcome"] if given["outcome"] in OUTCOMES else None,  # type: ignore[arg-type]  # one of them
        least=value("least"),
        most=value("most"),
        order=order,  # type: ignore[arg-type]  # one of them
    )
    return Selection(given=given, query=query, problems=problems)


def spread(points: Iterable[Point]) -> list[tuple[str, int, float, Markup]]:
    """(metric, number of scores, unweighted mean, histogram), the most frequent metric first."""
    values: dict[str, list[float]] = {}
    for one in points:
        if one.value is not None:
            values.setdefault(one.metric, []).append(one.value)
    found = []
    for metric, some in sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:CHARTS]:
        counts = [0] * BINS
        for value in some:
            counts[min(BINS - 1, int(value * BINS))] += 1
        tallest = max(range(BINS), key=counts.__getitem__)
        chart = bars(
            counts,
            title=f"Scores of {metric}",
            desc=f"{len(some)} scores, unweighted mean {sum(some) / len(some):.2f}; the largest bin, "
            f"{tallest / BINS:.2f} to {(tallest + 1) / BINS:.2f}, has {counts[tallest]}",
            edges=[f"{index / BINS:.2f}" for index in range(BINS + 1)],
        )
        found.append((metric, len(some), sum(some) / len(some), chart))
    return found


def choices(versions: Iterable[Version], apps: Iterable[str], metrics: Iterable[str]) -> dict[str, list[str]]:
    """Known values by form field, for the suggestions."""
    known: dict[str, set[str]] = {"app": set(apps), "metric": set(metrics), "model": set(), "prompt": set()}
    known["tag"] = set()
    for one in versions:
        known["app"].add(one.app)
        if one.kind.startswith("tag:"):
            known["tag"].add(f"{one.kind.removeprefix('tag:')}={one.value}")
        elif one.kind in known:
            known[one.kind].add(one.value)
    return {name: sorted(values)[:200] for name, values in known.items()}


def shortened(text: str | None, most: int = _QUESTION) -> str:
    """A text on one line, truncated with an ellipsis.

    >>> shortened("How   long? " * 3, 9)
    'How long…'
    """
    words = " ".join((text or "")[: 4 * most].split())
    return words if len(words) <= most else words[: most - 1] + "…"


async def rows_of(store: Store, points: Sequence[Point]) -> list[Row]:
    """Table rows of the points, with their questions."""
    questions = await store.questions(list({one.sample_id for one in points}))
    rows = []
    for some in together(points):
        name = some[0].sample_id
        rows.append(Row(id=name, question=shortened(questions.get(name)), points=some))
    return rows


async def lines(store: Store, query: Query) -> AsyncIterator[bytes]:
    """The selection as JSONL in the format of `gaugeway evaluate`, newest exchange first.

    Exchanges without an answer (errors, tool calls) are left out, as in `gaugeway export`.
    """
    written: set[str] = set()
    async for points in everything(store, query, clock=time.monotonic):
        for one in points:
            if one.sample_id in written:
                continue
            written.add(one.sample_id)
            stored = await store.sample(one.sample_id)
            if stored is not None and stored[0].skip_reason is None and not stored[0].transcript:
                record = captured.as_record(stored[0], {made.metric: made for made in stored[1]})
                yield msgspec.json.encode(record) + b"\n"


def _named(about: Mapping[str, Any]) -> set[str]:
    """The metrics and signals that are on."""
    return {one["name"] for one in (*about["metrics"], *about["signals"])}


def explore_handlers(site: Site) -> list[Any]:
    """The handlers of `/explore`."""
    store = site.insight.store

    @get("/explore")
    async def explore(request: Page) -> Template:
        params = request.query_params
        chosen = selection(params, site.clock())
        after = Cursor.read(params.get("after", ""))
        thorough = params.get("thorough") == "1"
        found = counted = Found()
        if not chosen.problems:
            wanted = ROWS if chosen.query.metric else POINTS
            budget_s = THOROUGH_S if thorough else TEXT_S if chosen.query.text else BUDGET_S
            found = await search(
                store, chosen.query, after=after, wanted=wanted, budget_s=budget_s, clock=time.monotonic
            )
            scores = replace(chosen.query, order="newest", outcome="score")
            if chosen.query.outcome in (None, "score"):
                counted = await search(
                    store, scores, after=None, wanted=COUNTED, budget_s=SPREAD_S, clock=time.monotonic
                )
        about = await site.insight.status()
        return site.render(
            request,
            "explore.html",
            title="Explore",
            status=400 if chosen.problems else 200,
            chosen=chosen,
            rows=await rows_of(store, found.points),
            found=found,
            thorough=thorough,
            paged=after is not None,
            charts=spread(counted.points),
            counted=len(counted.points),
            counted_all=counted.after is None and counted.since is None,
            choices=choices(
                site.engine.versions.all(),
                {one.app for one in site.insight.quality()},
                _named(about) | {one.metric for one in site.insight.quality()},
            ),
            lower=RISING | {one["name"] for one in about["metrics"] if one["lower_is_better"]},
            orders=ORDERS,
            spans=SPANS,
            outcomes=OUTCOMES,
        )

    @get("/explore/export")
    async def export(request: Page) -> Stream:
        chosen = selection(request.query_params, site.clock())
        if chosen.problems:
            raise HTTPException(status_code=400, detail="; ".join(chosen.problems))
        name = "gaugeway-exchanges.jsonl"
        return Stream(
            lines(store, chosen.query),
            media_type="application/x-ndjson",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    return [explore, export]
