"""The lowest and highest scores over many metrics: the index orders one metric, so each is queried separately."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from gaugeway.storage.stores import Point, Query

ORDERS = ("lowest", "highest")
_SHORT_S = 6 * 3600.0


def indexed(query: Query) -> bool:
    """Whether the index finds the first places of a query sooner than its time does."""
    narrowed = query.model, query.prompt, query.tag, query.text, query.source, query.session
    long = query.until - query.since > _SHORT_S
    return query.order in ORDERS and long and query.limit is not None and narrowed == (None,) * len(narrowed)


async def first(
    query: Query,
    metrics: Callable[[Query], Awaitable[Iterable[str]]],
    top: Callable[[Query], Awaitable[float | None]],
    points: Callable[[Query, float | None], Awaitable[Sequence[Point]]],
) -> Sequence[Point]:
    """The first places of an indexed query.

    `metrics` names those that the store has, `top` gives the value at the last place of a metric, and `points` what a
    query asks for, of one value if there is one.
    """
    names = await metrics(query) if query.metric is None else (query.metric,)
    found: list[Point] = []
    for name in names:
        narrowed = replace(query, metric=name)
        found += await (points(narrowed, None) if query.order == "lowest" else _highest(narrowed, top, points))
    sign = 1.0 if query.order == "lowest" else -1.0
    return sorted(found, key=lambda point: (sign * (point.value or 0.0), point.started_at))[: query.limit]


async def _highest(
    query: Query,
    top: Callable[[Query], Awaitable[float | None]],
    points: Callable[[Query, float | None], Awaitable[Sequence[Point]]],
) -> Sequence[Point]:
    """The highest of a metric. Equal ones go by time as with the lowest, the index has them the other way round.

    Of a score that all of many have, the first are read only: first what is above the last place, then that place.
    """
    value = await top(query)
    if value is None:
        return await points(query, None)
    found = await points(replace(query, least=math.nextafter(value, math.inf)), None)
    return [*found, *await points(replace(query, limit=(query.limit or 0) - len(found)), value)]
