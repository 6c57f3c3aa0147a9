"""Time-limited search for a page of evaluations, backwards in time in short queries.

The store runs one query at a time, so a single query over weeks would block every other reader. Each query is sized to
take about `BITE_S`; `Found.since` reports how far back the search got.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gaugeway.storage.stores import Point, Query, Store

BITE_S = 0.025
"""Target duration of one store query."""
_FIRST, _SMALLEST, _GROWTH = 64, 512, 4.0
"""Divisors of the period for the first and the smallest query range; largest growth from one range to the next."""
_FIRST_S, _SMALLEST_S = 900.0, 300.0
"""Upper bounds of the first and the smallest range (seconds): in a busy store an hour is thousands of rows."""
_HELPED = 0.75
"""A shorter range must take at most this share of the previous query's time; otherwise shrinking does not help."""
_AT_ONCE = 500
_MOST_SKIPPED = 1_000_000
BY_VALUE = ("lowest", "highest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
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
