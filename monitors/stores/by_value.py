"""The lowest and highest scores of many metrics: an index knows those of one, so each is asked by itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from monitors.stores import Point, Query

ORDERS = ("lowest", "highest")
_SHORT_S = 6 * 3600.0


def indexed(query: Query) -> bool:
    """Whether the index finds the first places of a query sooner than its time does."""
    narrowed = query.model, query.prompt, query.tag, query.text
    long = query.until - query.since > _SHORT_S
    return query.order in ORDERS and long and query.limit is not None and narrowed == (None,) * len(narrowed)


async def highest(
    query: Query,
    top: Callable[[Query], Awaitable[float | None]],
    points: Callable[[Query, float | None], Awaitable[Sequence[Point]]],
) -> Sequence[Point]:
    """The highest of a metric. Equal ones go by time as with the lowest, the index has them the other way round.

    Of a score that all of many have, the first are read only: first what is above the last place, then that place.
    `top` gives the value at the last place, `points` what a query asks for, of one value if there is one.
    """
    value = await top(query)
    if value is None:
        return await points(query, None)
    found = await points(replace(query, least=math.nextafter(value, math.inf)), None)
    return [*found, *await points(replace(query, limit=(query.limit or 0) - len(found)), value)]


def merged(points: Iterable[Point], query: Query) -> list[Point]:
    """The first places among those of each metric, which are given one metric after the other."""
    sign = 1.0 if query.order == "lowest" else -1.0
    return sorted(points, key=lambda one: (sign * (one.value or 0.0), one.started_at))[: query.limit]
