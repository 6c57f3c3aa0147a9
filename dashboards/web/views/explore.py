"""Explore: search exchanges by app, model, tags, text and score; download the selection. The search box leads here."""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from litestar import get
from litestar.exceptions import HTTPException
from litestar.params import FromQuery
from litestar.response import Redirect, Stream, Template

from dashboards.web.addresses import BOUNDS, FILTERS, address_with, chips_of, fields_without
from dashboards.web.addresses import exchange as exchange_url
from dashboards.web.format import iso
from dashboards.web.incident.exchange_summary import badge_of
from dashboards.web.incident.explore_search import (
    BY_VALUE,
    Cursor,
    Narrowed,
    Narrowing,
    Walk,
    alike,
    everything,
    search,
    together,
    topic_query,
)
from dashboards.web.incident.groups import FIELDS as GROUPED_BY
from dashboards.web.incident.groups import Grouping, Groups, distributions, over_time
from dashboards.web.site import TEXTS, Page, Site
from dashboards.web.spread_sample import spread_sample
from dashboards.web.toolbar import TimeRange, time_range
from gaugeway.records import Sample
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Query, SampleField, Store
from gaugeway.text.passage_identity import id_or_source_of
from monitors.alerting.changes import Version
from monitors.analysis import captured
from monitors.analysis.incident.reading import TopicReports, read_samples

FIELDS = (*FILTERS, *BOUNDS, "since", "until", "order", "group", "columns")
_PLAIN = {"app", "metric", "outcome", "since", "until", "order", "group", "columns"}
"""Fields of a selection that the store has sums of by prompt and model."""
OUTCOMES = ("score", "skipped", "failed")
ORDERS = {"newest": "newest first", "lowest": "lowest score first", "highest": "highest score first"}
SINCE, MAX_FIELD = "24h", 300
SHORTER = {"6h": 21_600.0, "1h": 3600.0, "15m": 900.0}
"""Ranges that it opens on where the scores of `SINCE` cannot be read at once, the longest first."""
COLUMNS: Mapping[str, str] = TEXTS["columns"]
"""Columns of the list that can be chosen, beside the question."""
USUAL = ("scores", "app", "model", "started")
_OF_SAMPLE = {"session", "answer", "passages", "duration", "tokens", "cost"}
"""Columns that stand in no evaluation: for these the exchanges are read."""
ROWS, POINTS = 50, 150
"""Exchanges per page if a metric is selected; otherwise evaluations per page."""
COUNTED, CHARTS = 2000, 6
"""Scores of the charts and groups: a sample spread over the range, or the newest where that takes too long."""
MAX_SUGGESTED = 200
"""Known values suggested for a field of the form."""
BUDGET_S, SPREAD_S, NEWEST_S = 0.1, 0.08, 0.03
TEXT_S, THOROUGH_S, TOPICS_S = 0.08, 10.0, 0.12
"""Time limits of a search in texts, of "Search longer", and how long the page waits for topics."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The submitted form: its fields as given, the resulting query, its time range (None for none), and problems."""

    given: Mapping[str, str]
    query: Query
    period: TimeRange | None = None
    problems: Sequence[str] = ()

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are not empty."""
        return {name: value for name, value in self.given.items() if value}

    @property
    def live(self) -> bool:
        """Whether it ends now."""
        return not self.given["until"]

    @property
    def slow(self) -> bool:
        """Whether no index has what it searches for."""
        return bool({"text", "source", "session", "topic"} & self.fields.keys())

    @property
    def columns(self) -> list[str]:
        """The columns of the list: the chosen ones, else the usual ones but the app where only one is listed."""
        usual = [name for name in USUAL if not (name == "app" and self.given["app"])]
        return self.given["columns"].split(",") if self.given["columns"] else usual

    @property
    def hashed_source(self) -> str:
        """The source, if it is the hash of a passage's text, which no store can search for."""
        return self.given["source"] if self.query.source is None else ""

    def address(self, path: str = "/explore", **changes: str) -> str:
        """URL of this selection with some fields changed."""
        return address_with(path, {**self.given, **changes})

    def with_filter(self, params: Mapping[str, str], path: str = "/explore", **changes: str) -> str | None:
        """URL of this selection with the filter that the form for one `field` adds; None without one."""
        field, value = params.get("field", ""), params.get("value", "").strip()[:MAX_FIELD]
        return self.address(path, **changes, **{field: value}) if field in (*FILTERS, *BOUNDS) else None


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The scores behind charts and groups, the newest first: a `share` in [0, 1] of those of the selection.

    `newest_since`: the share is not known, these are only the scores from that time (Unix seconds) on. With `first`
    they are the first ones in another order.
    """

    points: Sequence[Point] = ()
    share: float = 1.0
    newest_since: float | None = None
    first: bool = False

    @property
    def complete(self) -> bool:
        """Whether these are all scores of the selection."""
        return self.share >= 1.0 and self.newest_since is None and not self.first


def selection(params: Mapping[str, str], now: float) -> Selection:
    """Parse the form. Invalid fields become problems and are left out of the query."""
    given = {name: params.get(name, "").strip()[:MAX_FIELD] for name in FIELDS}
    given["columns"] = ",".join(name for name in COLUMNS if name in given["columns"].split(","))
    problems: list[str] = []

    name, equals, tag = given["tag"].partition("=")
    if given["tag"] and not (name and equals):
        problems.append(f"a tag must have the form name=value, not {given['tag']!r}")
    order = given["order"] if given["order"] in ORDERS else "newest"
    if order in BY_VALUE and not given["metric"]:
        problems.append("choose a metric to sort by score: scores of different metrics are not comparable")
        order = "newest"
    try:
        period = time_range(params, now, SINCE)
    except HTTPException as error:
        period = None
        problems.append(error.detail)
    least, most = _scores_between(given, problems)
    query = Query(
        since=period.since if period is not None else now,
        until=period.until if period is not None else now,
        app=given["app"] or None,
        metric=given["metric"] or None,
        without=() if given["metric"] else tuple(SIGNALS),
        model=given["model"] or None,
        prompt=given["prompt"] or None,
        text=given["text"] or None,
        source=id_or_source_of(given["source"]) if given["source"] else None,
        session=given["session"] or None,
        tag=(name, tag) if name and equals else None,
        outcome=given["outcome"] if given["outcome"] in OUTCOMES else None,  # type: ignore[arg-type]  # one of them
        least=least,
        most=most,
        order=order,  # type: ignore[arg-type]  # one of them
    )
    return Selection(given=given, query=query, period=period, problems=problems)


def _scores_between(given: Mapping[str, str], problems: list[str]) -> tuple[float | None, float | None]:
    """Parse the bounds of the score, both inclusive; `above` and `below` are strict."""

    def value(name: str, towards: float | None = None) -> list[float]:
        if not given[name]:
            return []
        try:
            found = float(given[name])
        except ValueError:
            found = -1.0
        if not 0.0 <= found <= 1.0:
            problems.append(f"a score must be between 0 and 1, not {given[name]!r}")
            return []
        return [found if towards is None else math.nextafter(found, towards)]

    least = max([*value("least"), *value("above", math.inf)], default=None)
    return least, min([*value("most"), *value("below", -math.inf)], default=None)


def shorter_range(query: Query, newest_since: float) -> str:
    """The longest range whose scores were read, as text; the shortest one where even of that some are missing.

    >>> shorter_range(Query(since=0.0, until=86_400.0), 80_000.0)
    '1h'
    """
    read_s = query.until - newest_since
    return next((text for text, seconds in SHORTER.items() if seconds <= read_s), [*SHORTER][-1])


def choices(versions: Iterable[Version], apps: Iterable[str], metrics: Iterable[str]) -> dict[str, list[str]]:
    """Known values by form field, for the suggestions."""
    known: dict[str, set[str]] = {"app": set(apps), "metric": set(metrics), "model": set(), "prompt": set()}
    known |= {"tag": set(), "outcome": set(OUTCOMES)}
    for version in versions:
        known["app"].add(version.app)
        if version.kind.startswith("tag:"):
            known["tag"].add(f"{version.kind.removeprefix('tag:')}={version.value}")
        elif version.kind in known:
            known[version.kind].add(version.value)
    return {name: sorted(values) for name, values in known.items()}


async def lines(
    store: Store, query: Query, keep: Callable[[Sequence[Point]], Awaitable[Sequence[Point]]] | None = None
) -> AsyncIterator[bytes]:
    """The selection as JSONL in the format of `gaugeway evaluate`, newest exchange first; `keep` filters its points.

    Exchanges without an answer (errors, tool calls) are left out, as in `gaugeway export`.
    """
    written: set[str] = set()
    async for points in everything(store, query, clock=time.monotonic):
        for point in points if keep is None else await keep(points):
            if point.sample_id in written:
                continue
            written.add(point.sample_id)
            stored = await store.sample(point.sample_id)
            if stored is not None and stored[0].skip_reason is None and not stored[0].transcript:
                record = captured.as_record(stored[0], {made.metric: made for made in stored[1]})
                yield msgspec.json.encode(record) + b"\n"


async def _known(site: Site) -> dict[str, list[str]]:
    """The known values by form field; metrics and signals are those that are on, or have scores."""
    about, scored = await site.insight.status(), site.insight.quality()
    names = {metric["name"] for metric in (*about["metrics"], *about["signals"])}
    return choices(
        site.engine.versions.all(), {quality.app for quality in scored}, names | {quality.metric for quality in scored}
    )


class Explorer:
    """Reads what the page of a selection shows."""

    def __init__(self, site: Site) -> None:
        self.store = site.insight.store
        self.names = site.sources.all_names
        self.passing = site.passing
        self.topics = TopicReports(self.store, clock=site.clock)
        self.grouping = Grouping(self.store, self.topics, self.names, self.passing)

    def narrowing(self, chosen: Selection) -> Narrowing | None:
        """The filters of a selection that no store can apply; None without one."""
        topic, source = chosen.given["topic"], chosen.hashed_source
        if not topic and not source:
            return None
        return Narrowing(
            self.store, self.topics, self.names, chosen.query, topic=topic, source=source, live=chosen.live
        )

    async def read(self, chosen: Selection, after: Cursor | None, *, thorough: bool) -> tuple[Narrowed, Counted]:
        """A page of the selection, and the scores for its charts."""
        query, slow = chosen.query, chosen.slow
        budget_s = THOROUGH_S if thorough else TEXT_S if slow else BUDGET_S
        if (narrowing := self.narrowing(chosen)) is not None:
            within_s = THOROUGH_S if thorough else TOPICS_S
            found = await narrowing.page(after=after, rows=ROWS, budget_s=budget_s, within_s=within_s)
            partial = found.cut or found.found.since is not None
            return found, counted_of(found.every, partial=partial, newest=query.order == "newest")
        wanted = ROWS if query.metric else POINTS
        page = await search(self.store, query, after=after, wanted=wanted, budget_s=budget_s, clock=time.monotonic)
        if query.outcome not in (None, "score"):
            return Narrowed(found=page), Counted()
        if not page.points and after is None:
            return Narrowed(found=page), Counted(newest_since=page.since)
        return Narrowed(found=page), await self.counted(replace(query, order="newest", outcome="score"), slow=slow)

    async def counted(self, query: Query, *, slow: bool) -> Counted:
        """Up to about `COUNTED` scores of a selection; only the newest where parts of it cannot be read in time."""
        if not slow:
            found = await spread_sample(self.store, query, wanted=COUNTED, budget_s=SPREAD_S, clock=time.monotonic)
            if found is not None:
                return Counted(points=found.points, share=found.share)
        newest = await search(self.store, query, after=None, wanted=COUNTED, budget_s=NEWEST_S, clock=time.monotonic)
        if newest.since is not None:
            return Counted(points=newest.points, newest_since=newest.since)
        return counted_of(newest.points, partial=newest.after is not None, newest=True)

    async def groups(self, chosen: Selection, counted: Counted) -> Groups | None:
        """The groups of a selection; None where none are wanted."""
        field, query = chosen.given["group"], chosen.query
        if field not in GROUPED_BY:
            return None
        plain = chosen.fields.keys() <= _PLAIN
        if field in ("prompt", "model") and plain and query.metric and query.outcome in (None, "score"):
            return await self.grouping.of_versions(query, field, chosen.fields)
        return await self.grouping.of_points(
            counted.points,
            field,
            chosen.fields,
            base=topic_query(query, live=chosen.live),
            complete=counted.complete,
            within_s=TOPICS_S,
        )

    def charts(self, chosen: Selection, counted: Counted) -> dict[str, Any]:
        """The charts whose bars narrow the selection, and what they cover."""
        kept = fields_without(chosen.fields, "group")
        query, newest = chosen.query, counted.newest_since
        oldest = min((point.started_at for point in counted.points), default=query.since)
        narrow = counted.first or kept.keys() & {"source", "topic", "session"}
        since = newest if newest is not None else oldest if narrow else query.since
        return {
            "charts": distributions(counted.points, kept, self.passing, CHARTS),
            "timed": over_time(counted.points, max(since, query.since), query.until, kept, self.passing),
            "counted": counted,
            "covered": covered_part(query, newest),
            "covered_url": "" if newest is None else chosen.address(since=iso(newest), until=iso(query.until)),
        }


def counted_of(points: Sequence[Point], *, partial: bool, newest: bool) -> Counted:
    """The scores that a search found, the first ones in its order if they are `partial`."""
    if not partial:
        return Counted(points=points)
    if not newest:
        return Counted(points=points, first=True)
    return Counted(
        points=points, newest_since=min((point.started_at for point in points), default=None), first=not points
    )


def covered_part(query: Query, newest_since: float | None) -> float:
    """The share of a selection's time that the newest scores are from, in [0, 1].

    >>> covered_part(Query(since=0.0, until=100.0), 75.0)
    0.25
    """
    if newest_since is None:
        return 1.0
    return min(1.0, max(0.0, (query.until - newest_since) / max(1e-9, query.until - query.since)))


def explore_handlers(site: Site) -> list[Any]:
    """The handlers of `/explore`."""
    store, explorer = site.insight.store, Explorer(site)
    badge = partial(badge_of, passing=site.passing, error_of=site.error_of)

    @get("/explore")
    async def explore(request: Page) -> Template | Redirect:
        params = {**request.query_params, "columns": ",".join(request.query_params.getall("columns", []))}
        chosen = selection(params, site.clock())
        if (added := chosen.with_filter(params)) is not None:
            return Redirect(added)
        after = Cursor.read(params.get("after", ""))
        thorough, shorter = params.get("thorough") == "1", False
        narrowed, counted = Narrowed(), Counted()
        if not chosen.problems:
            narrowed, counted = await explorer.read(chosen, after, thorough=thorough)
            chose = after is not None or chosen.slow or bool(chosen.given["since"] or chosen.given["until"])
            if counted.points and counted.newest_since is not None and not chose:
                shorter = True
                chosen = selection(params | {"since": shorter_range(chosen.query, counted.newest_since)}, site.clock())
                narrowed, counted = await explorer.read(chosen, after, thorough=thorough)
        points = narrowed.found.points
        questions = await store.questions(list({point.sample_id for point in points}))
        rows = alike(together(points), questions, lambda point: badge(point).kind == "bad")
        shown = [about[0].sample_id for about, *_ in rows] if _OF_SAMPLE & {*chosen.columns} else []
        return site.render(
            request,
            "explore.html",
            title="Explore",
            status=400 if chosen.problems else 200,
            time_range=chosen.period,
            chosen=chosen,
            shorter=shorter,
            usual_range=SINCE,
            chips=chips_of(chosen.fields),
            rows=rows,
            samples=await read_samples(store, shown),
            columns=COLUMNS,
            questions=questions,
            found=narrowed.found,
            narrowed=narrowed,
            thorough=thorough,
            paged=after is not None,
            **explorer.charts(chosen, counted),
            groups=None if chosen.problems else await explorer.groups(chosen, counted),
            grouped_by=GROUPED_BY,
            passing=site.passing,
            badges=lambda points: [badge(point) for point in points],
            listed=fields_without(chosen.fields, "group"),
            exchange_url=exchange_url,
            choices=await _known(site),
            most_suggested=MAX_SUGGESTED,
            orders=ORDERS,
        )

    return [explore, _export_handler(site, explorer)]


def _export_handler(site: Site, explorer: Explorer) -> Any:
    @get("/explore/export")
    async def export(request: Page) -> Stream:
        chosen = selection(request.query_params, site.clock())
        if chosen.problems:
            raise HTTPException(status_code=400, detail="; ".join(chosen.problems))
        name = "gaugeway-exchanges.jsonl"
        narrowing = explorer.narrowing(chosen)
        return Stream(
            lines(site.insight.store, chosen.query, None if narrowing is None else narrowing.keep),
            media_type="application/x-ndjson",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    return export


MAX_TEXT = 300
FIND_S = 0.12
"""How long the latest samples are searched for a session or response id, which no index has."""
LOOK_BACK_S = 30 * 86_400.0
_DAY_S = 86_400.0
_ID = re.compile(r"[^\s\x00-\x1f]+")
"""What may be an id: no spaces."""
_INDEXED: tuple[SampleField, ...] = ("trace_id", "context_key")
_SEARCHED: tuple[SampleField, ...] = ("session", "response_id")


async def found_sample(store: Store, text: str, now: float) -> Sample | None:
    """The latest sample that this id names: its own, a trace, key, conversation, session or response id."""
    stored = await store.sample(text)
    if stored is not None:
        return stored[0]
    for field in _INDEXED:
        if some := await store.addressed(field, text, 0.0, now + _DAY_S):
            return some[0]
    if some := await store.conversation(text, 1):
        return some[-1]
    walk, begin = Walk(now - LOOK_BACK_S, now + _DAY_S), time.monotonic()
    while not walk.over and (started := time.monotonic()) - begin < FIND_S:
        for field in _SEARCHED:
            if some := await store.addressed(field, text, walk.next, walk.at):
                return some[0]
        walk.took(time.monotonic() - started)
    return None


def find_handlers(site: Site) -> list[Any]:
    """The handler of `/find`."""

    @get("/find")
    async def find(q: FromQuery[str] = "") -> Redirect:
        text = q.strip()[:MAX_TEXT]
        sample = await found_sample(site.insight.store, text, site.clock()) if _ID.fullmatch(text) else None
        if sample is not None:
            return Redirect(f"/{'conversations' if sample.transcript else 'exchanges'}/{quote(sample.id, safe='')}")
        return Redirect(f"/explore?{urlencode({'text': text})}" if text else "/explore")

    return [find]
