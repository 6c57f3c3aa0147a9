"""A sample of a selection's evaluations that is spread over its time, read in short queries.

The period is read in equal parts, the newest evaluations of each. A part that holds more than was read is split, where
the most is missing first, until every part has its share of the sample. At the end all parts are thinned to the same
share, so that the sample needs no weights: what is in it stands for the whole period.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

from msgspec import Struct

from gaugeway.storage.stores import Point, Query, Store

PARTS, FIRST, NEXT = 24, 110, 150
"""Equal parts of the period, and evaluations read from a part at first, and once it was split."""
AT_ONCE = 4
"""Parts that are read at once: on a busy machine each look at the store waits for its turn."""
_SPARE = 1.25
"""So many times its share of the sample is read of a part: how many it holds is estimated from these."""
MAX_QUERIES = 100
"""Queries of a sample."""
_LEAST_PARTS = 20
"""The sample is of at least so many times: a part of which not all is read adds at most this fraction of it."""
_HEAD_START = 0.4
"""Share of the time after which reading the parts is given up, if it is too slow to end in time."""
_LEAST_S = 0.01
"""Parts are not split further."""


class SpreadSample(Struct, frozen=True, kw_only=True):
    """Evaluations, the newest first, of about `total` in all; `exact`: `total` was counted, not estimated."""

    points: Sequence[Point] = ()
    total: float = 0.0
    exact: bool = True

    @property
    def complete(self) -> bool:
        """Whether these are all."""
        return self.exact and len(self.points) >= self.total

    @property
    def share(self) -> float:
        """Share of the evaluations that the sample has, in [0, 1]."""
        return 1.0 if self.complete else min(1.0, len(self.points) / max(1.0, self.total))


class _Part(Struct, frozen=True, kw_only=True):
    """A part of the period; its evaluations from `read_since` on were read, the newest first."""

    since: float
    until: float
    read_since: float
    points: Sequence[Point]

    @property
    def whole(self) -> bool:
        return self.read_since <= self.since

    @property
    def total(self) -> float:
        """Its evaluations, estimated from the time that the read ones are from."""
        if self.whole:
            return float(len(self.points))
        length = self.until - self.since
        return len(self.points) * length / max(self.until - self.read_since, length / 1000.0)


async def spread_sample(
    store: Store, query: Query, *, wanted: int, budget_s: float, clock: Callable[[], float]
) -> SpreadSample | None:
    """Read about `wanted` of the evaluations of a query, the same share of each part of its time.

    All of them if there are no more. None if not every part could be read within `budget_s`; `clock` is monotonic.
    """
    began = clock()
    deadline = began + budget_s
    length = (query.until - query.since) / PARTS
    parts: list[_Part] = []
    edges = [*(query.since + index * length for index in range(PARTS)), query.until]
    for index in range(0, PARTS, AT_ONCE):
        if clock() - began > budget_s * (_HEAD_START + (1.0 - _HEAD_START) * index / PARTS):
            return None
        some = pairwise(edges[index : index + AT_ONCE + 1])
        parts += await asyncio.gather(*(_read(store, query, since, until, FIRST) for since, until in some))
    for _ in range(MAX_QUERIES - PARTS):
        place = _most_missing(parts, wanted)
        if place is None or clock() > deadline:
            break
        parts[place : place + 1] = await _split(store, query, parts[place])
    return _thinned(parts, wanted)


def _most_missing(parts: Sequence[_Part], wanted: int) -> int | None:
    """The place of the part that lacks the most of its share, or is too large a part of the sample; None for none."""
    share, largest = _share(parts, wanted), wanted / _LEAST_PARTS
    missing = [
        (max(_SPARE * share * part.total - len(part.points), share * part.total - largest), place)
        for place, part in enumerate(parts)
        if not part.whole and part.until - part.since >= _LEAST_S
    ]
    most, place = max(missing, default=(0.0, 0))
    return place if most > 0.0 else None


def _share(parts: Sequence[_Part], wanted: int) -> float:
    return min(1.0, wanted / max(1.0, sum(part.total for part in parts)))


async def _read(store: Store, query: Query, since: float, until: float, most: int) -> _Part:
    found = await store.series(replace(query, since=since, until=until, order="newest", limit=most + 1))
    if len(found) <= most:
        return _Part(since=since, until=until, read_since=since, points=found)
    edge = found[-1].started_at
    kept = [point for point in found if point.started_at > edge]  # all of an exchange, and of equal times, or none
    return _Part(since=since, until=until, read_since=edge, points=kept or found)


async def _split(store: Store, query: Query, part: _Part) -> list[_Part]:
    middle = (part.since + part.until) / 2.0
    older = await _read(store, query, part.since, middle, NEXT)
    if part.read_since > middle:
        return [older, await _read(store, query, middle, part.until, NEXT)]
    points = [point for point in part.points if point.started_at >= middle]
    return [older, _Part(since=middle, until=part.until, read_since=middle, points=points)]


def _thinned(parts: Sequence[_Part], wanted: int) -> SpreadSample:
    share = _share(parts, wanted)
    kept: list[Point] = []
    for part in parts:
        kept += part.points if share >= 1.0 else sampled_exchanges(part.points, round(share * part.total))
    kept.sort(key=lambda point: -point.started_at)
    return SpreadSample(points=kept, total=sum(part.total for part in parts), exact=all(part.whole for part in parts))


def sampled_exchanges(points: Sequence[Point], most: int) -> Sequence[Point]:
    """About `most` of the evaluations, whole exchanges, in their order; drawn by a hash of the exchange's id."""
    if len(points) <= most:
        return points
    by_id = Counter(point.sample_id for point in points)
    chosen: set[str] = set()
    left = most
    for name in sorted(by_id, key=lambda name: (crc32(name.encode()), name)):
        if left <= 0:
            break
        chosen.add(name)
        left -= by_id[name]
    return [point for point in points if point.sample_id in chosen]
