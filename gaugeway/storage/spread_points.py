"""Reads a bounded number of points from the whole time of a query, instead of its newest points only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gaugeway.storage.stores import Point, Query, Store

PARTS = 12
_LEAST_S = 1.0
"""Parts become no shorter than this."""


async def spread_points(store: Store, query: Query, most: int) -> tuple[list[Point], bool]:
    """Return at most `most` points of a query, newest first, and whether these are all of them.

    The time from the first point on is divided into 12 equal parts. Each has the same share of `most`, its newest
    points; what a part does not use goes to the others. Of a query without a metric, an exchange has all its points or
    none.
    """
    if (whole := await _from_first(store, query)) is None:
        return [], True
    found, complete = await _read_shares(store, _parts(whole), most)
    return [point for points in reversed(found) for point in points], complete


def _parts(query: Query) -> list[Query]:
    length = (query.until - query.since) / PARTS
    edges = [*(query.since + part * length for part in range(PARTS)), query.until]
    return [replace(query, since=since, until=until, order="newest") for since, until in pairwise(edges)]


async def _from_first(store: Store, query: Query) -> Query | None:
    """Return the query without the time before its first point, down to a few seconds; None if it has no point."""
    while True:
        for part in _parts(query):
            if await store.series(replace(part, limit=1)):
                break
        else:
            return None
        if part.since == query.since or query.until - part.since < PARTS * _LEAST_S:
            return query
        query = replace(query, since=part.since)


async def _read_shares(store: Store, times: Sequence[Query], most: int) -> tuple[list[Sequence[Point]], bool]:
    """Return the points of each time, `most` in all, and whether these are all of them."""
    shares = [most // len(times)] * len(times)
    found: list[Sequence[Point]] = [()] * len(times)
    busy, spare = list(range(len(times))), most
    while busy and spare:
        for at in busy:
            found[at] = ()  # before the next are read
            found[at] = await store.series(replace(times[at], limit=shares[at] + 1))
        busy = [at for at in busy if len(found[at]) > shares[at]]
        spare = most - sum(map(min, map(len, found), shares))
        for place, at in enumerate(reversed(busy)):
            shares[at] += spare // len(busy) + (place < spare % len(busy))
    return [_first(points, share, times[0]) for points, share in zip(found, shares, strict=True)], not busy


def _first(points: Sequence[Point], share: int, query: Query) -> Sequence[Point]:
    """Return the first points; if an exchange has further ones, without those of that exchange."""
    chosen = points[:share]
    if query.metric is not None or len(points) <= share:
        return chosen
    whole = [point for point in chosen if point.started_at != points[share].started_at]
    return whole or chosen
