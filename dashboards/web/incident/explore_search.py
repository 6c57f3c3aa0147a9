"""Time-limited search for a page of evaluations, backwards in time in short queries.

The store runs one query at a time, so a single query over weeks would block every other reader. Each query is sized to
take about `BITE_S`; `Found.since` reports how far back the search got.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec
from msgspec import Struct

from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.incident.reading import Namer, TopicReports, Topics, read_samples

BITE_S = 0.025
"""Target duration of one store query."""
_FIRST, _SMALLEST, _GROWTH = 64, 512, 4.0
"""Divisors of the period for the first and the smallest query range; largest growth from one range to the next."""
_FIRST_S, _SMALLEST_S = 900.0, 300.0
"""Upper bounds of the first and the smallest range (seconds): in a busy store an hour is thousands of rows."""
_HELPED = 0.75
"""A shorter range must take at most this share of the previous query's time; otherwise shrinking does not help."""
_AT_ONCE = 500
_WORD, _COMPARED = re.compile(r"\w+"), 2_000
"""Words of questions, and the characters of them that are compared."""
_MOST_SKIPPED = 1_000_000
BY_VALUE = ("lowest", "highest")


class Cursor(Struct, frozen=True, kw_only=True):
    """End of a page: after `skip` points with this time (and value, when sorted by value)."""

    at: float
    skip: int = 0
    value: float | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else repr(self.value)
        return f"{self.at!r}~{self.skip}~{value}"

    @classmethod
    def read(cls, text: str) -> Cursor | None:
        """Parse a cursor from a URL; None if invalid.

        >>> Cursor.read(str(Cursor(at=12.5, skip=2, value=0.5)))
        Cursor(at=12.5, skip=2, value=0.5)
        >>> Cursor.read("nan~1~")
        """
        try:
            at, skip, value = text.split("~")
            found = cls(at=float(at), skip=int(skip), value=float(value) if value else None)
        except ValueError:
            return None
        sane = math.isfinite(found.at) and 0 <= found.skip <= _MOST_SKIPPED and math.isfinite(found.value or 0.0)
        return found if sane else None


class Found(Struct, frozen=True, kw_only=True):
    """A page of points. `after` starts the next page, if there may be one.

    Exchanges that started before `since` were not searched; None means that the whole period was.
    """

    points: Sequence[Point] = ()
    after: Cursor | None = None
    since: float | None = None


class Walk:
    """Walks backwards through a period; the length of the next range depends on how long the last query took.

    Queries have a fixed cost: if a shorter range takes no less time, ranges stay long. With `whole` the first range is
    the whole period.
    """

    def __init__(self, since: float, until: float, *, whole: bool = False) -> None:
        self.since = since
        self.at = max(since, until)
        self._first = max((until - since) / _FIRST, 1e-3)
        self._length = max(until - since, 1e-3) if whole else min(self._first, _FIRST_S)
        self._least = min(max((until - since) / _SMALLEST, 1e-3), _SMALLEST_S)
        self._last = (0.0, 0.0)

    @property
    def over(self) -> bool:
        """Whether the whole period was searched."""
        return self.at <= self.since

    @property
    def next(self) -> float:
        """Start of the next range; it ends at `at`."""
        return max(self.since, self.at - self._length)

    def took(self, seconds: float) -> None:
        """Advance after a query that took `seconds`."""
        self.at = self.next
        length, before = self._last
        self._last = self._length, seconds
        if self._length < length and seconds > _HELPED * before:
            self._least = min(length, self._first)
        wanted = min(_GROWTH, max(1.0 / _GROWTH, BITE_S / max(seconds, 1e-6)))
        self._length = max(self._least, self._length * wanted)


async def search(
    store: Store, query: Query, *, after: Cursor | None, wanted: int, budget_s: float, clock: Callable[[], float]
) -> Found:
    """Find about `wanted` points after a cursor; `clock` is monotonic, in seconds.

    The points of an exchange stay on one page. Sorted by value, the page covers what could be searched within
    `budget_s`; a query by app, metric and score only uses the store's index and always covers the whole period.
    """
    by_value = query.order in BY_VALUE
    skip = after.skip if after is not None else 0
    enough = wanted + skip + 1
    narrowed = steps(query, after)
    narrow = (query.model, query.prompt, query.tag, query.text, query.source, query.session)
    indexed = by_value and not any(narrowing is not None for narrowing in narrow)
    walk = Walk(query.since, max(stretch.until for stretch in narrowed), whole=indexed)
    points: list[Point] = []
    began = clock()
    start = began
    while not walk.over and start - began < budget_s and (by_value or len(points) < enough):
        for stretch in narrowed:
            since, until = max(stretch.since, walk.next), min(stretch.until, walk.at)
            if since < until:
                limit = enough if by_value else enough - len(points)
                points += await store.series(replace(stretch, since=since, until=until, limit=limit))
        ended = clock()
        walk.took(ended - start)
        start = ended
    if by_value:
        sign = 1.0 if query.order == "lowest" else -1.0
        points.sort(key=lambda point: (sign * (point.value or 0.0), point.started_at))
    page, following = cut(points[skip:], wanted, query.order, after)
    if walk.over or (len(points) >= enough and not by_value):
        return Found(points=page, after=following)
    if following is None and not by_value:
        following = Cursor(at=math.nextafter(walk.at, -math.inf))
    return Found(points=page, after=following, since=walk.at)


async def everything(store: Store, query: Query, *, clock: Callable[[], float]) -> AsyncIterator[Sequence[Point]]:
    """All points of a query, newest first, in batches of a few hundred."""
    walk = Walk(query.since, query.until)
    newest = replace(query, order="newest")
    while not walk.over:
        after: Cursor | None = None
        spent, more = 0.0, True
        while more:
            start = clock()
            (stretch,) = steps(replace(newest, since=walk.next, until=walk.at), after)
            skip = after.skip if after is not None else 0
            points = (await store.series(replace(stretch, limit=_AT_ONCE + skip + 1)))[skip:]
            page, after = cut(points, _AT_ONCE, "newest", after)
            spent, more = spent + clock() - start, after is not None
            if page:
                yield page
        walk.took(spent)


def steps(query: Query, after: Cursor | None) -> list[Query]:
    """Queries that continue after a cursor, in order; `skip` points of the first have been shown already.

    >>> query = Query(since=0.0, until=9.0, order="lowest")
    >>> [(step.least, step.most, step.since) for step in steps(query, Cursor(at=5.0, value=0.5))]
    [(0.5, 0.5, 5.0), (0.5000000000000001, None, 0.0)]
    """
    if after is None:
        return [query]
    if query.order not in BY_VALUE or after.value is None:
        return [replace(query, until=min(query.until, math.nextafter(after.at, math.inf)))]
    same = replace(query, least=after.value, most=after.value, since=max(query.since, after.at))
    if query.order == "lowest":
        beyond = math.nextafter(after.value, math.inf)
        return [same, replace(query, least=beyond if query.least is None else max(query.least, beyond))]
    beyond = math.nextafter(after.value, -math.inf)
    return [same, replace(query, most=beyond if query.most is None else min(query.most, beyond))]


def cut(
    points: Sequence[Point], wanted: int, order: str, after: Cursor | None = None
) -> tuple[Sequence[Point], Cursor | None]:
    """The first `wanted` points without an incomplete last exchange, and the cursor of the next page."""
    if len(points) <= wanted:
        return points, None
    page = list(points[:wanted])
    beginning = next(index for index, point in enumerate(page) if point.sample_id == page[-1].sample_id)
    if order not in BY_VALUE and points[wanted].sample_id == page[-1].sample_id and beginning > 0:
        page = page[:beginning]
    last = page[-1]
    value = last.value if order in BY_VALUE else None
    alike = sum(point.started_at == last.started_at and (value is None or point.value == value) for point in page)
    if after is not None and after.at == last.started_at and after.value == value:
        alike += after.skip
    return page, Cursor(at=last.started_at, skip=alike, value=value)


def together(points: Sequence[Point]) -> list[list[Point]]:
    """Group neighbouring points by exchange."""
    return [list(some) for _, some in groupby(points, key=lambda point: point.sample_id)]


def alike(
    rows: Sequence[list[Point]], questions: Mapping[str, str], fails: Callable[[Point], bool]
) -> list[list[list[Point]]]:
    """Group the exchanges that fail the same metrics of the same question; every other one is alone.

    A group stands where its first exchange stood.
    """
    groups: dict[tuple[object, ...], list[list[Point]]] = {}
    for points in rows:
        name = points[0].sample_id
        words = same_words(questions.get(name, ""))
        failed = tuple(sorted(point.metric for point in points if fails(point)))
        groups.setdefault((points[0].app, words, failed) if words and failed else (name,), []).append(points)
    return list(groups.values())


def same_words(question: str) -> str:
    """A question without case, punctuation and white space between its words.

    >>> same_words("How  large is Ceres?") == same_words("how large is ceres")
    True
    """
    return " ".join(_WORD.findall(question[:_COMPARED].casefold()))


MAX_POINTS = 2_000
"""Evaluations of a selection that these filters look at, the first ones in its order."""
_MINUTE_S = 60.0


class Narrowed(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a selection. `waiting`: its topics are still being found. `unknown`: none of them is this one.

    `every` are all points that are left, `found` is a page of them. `cut`: the selection has more than was looked at.
    """

    found: Found = Found()
    every: Sequence[Point] = ()
    waiting: bool = False
    unknown: bool = False
    cut: bool = False


class Narrowing:
    """Applies the filters to points. `query` selects everything else, `live` says that it ends now."""

    def __init__(
        self, store: Store, reports: TopicReports, names: Namer, query: Query, *, topic: str, source: str, live: bool
    ) -> None:
        self._store = store
        self._reports = reports
        self._names = names
        self._query = query
        self._topic = topic
        self._source = source
        self._base = topic_query(query, live=live)

    async def page(self, *, after: Cursor | None, rows: int, budget_s: float, within_s: float) -> Narrowed:
        """A page of what is left."""
        topics = await self._topics(within_s) if self._topic else None
        if self._topic and topics is None:
            return Narrowed(waiting=True)
        looked = await search(
            self._store, self._query, after=None, wanted=MAX_POINTS, budget_s=budget_s, clock=time.monotonic
        )
        every = await self.keep(looked.points, topics)
        groups = together(every)
        start = after.skip if after is not None else 0
        page = [point for some in groups[start : start + rows] for point in some]
        following = Cursor(at=0.0, skip=start + rows) if len(groups) > start + rows else None
        return Narrowed(
            found=Found(points=page, after=following, since=looked.since),
            every=every,
            unknown=topics is not None and self._topic not in topics.topic.values() and not every,
            cut=looked.after is not None,
        )

    async def keep(self, points: Sequence[Point], topics: Topics | None = None) -> list[Point]:
        """The points of exchanges with the topic and the source."""
        if self._topic:
            topics = topics or await self._topics(math.inf)
            topic = await self._reports.of(topics, [point.sample_id for point in points]) if topics is not None else {}
            points = [point for point in points if topic.get(point.sample_id) == self._topic]
        if self._source:
            samples = await read_samples(self._store, [point.sample_id for point in points])
            got = {name for name, sample in samples.items() if self._source in self._names(sample)}
            points = [point for point in points if point.sample_id in got]
        return list(points)

    async def _topics(self, within_s: float) -> Topics | None:
        """The topics of the selection; those of the whole app where the topic is none of these."""
        deadline = time.monotonic() + within_s
        found = await self._reports.topics(self._base, within_s=within_s)
        if found is not None and self._topic not in found.topic.values():
            wider = replace(self._base, model=None, prompt=None, tag=None)
            if wider != self._base:
                found = await self._reports.topics(wider, within_s=max(0.0, deadline - time.monotonic()))
        return found


def topic_query(query: Query, *, live: bool) -> Query:
    """The query whose exchanges the topics of a selection are found in: by its app, metric, versions and time.

    The time of a selection that ends now is rounded to minutes, so that its topics can be kept for one.
    """
    since, until = query.since, query.until
    if live:
        since, until = math.floor(since / _MINUTE_S) * _MINUTE_S, math.ceil(until / _MINUTE_S) * _MINUTE_S
    return Query(
        since=since,
        until=until,
        metric=query.metric,
        without=query.without,
        app=query.app,
        model=query.model,
        prompt=query.prompt,
        tag=query.tag,
    )
