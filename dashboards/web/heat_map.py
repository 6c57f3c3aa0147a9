"""The score heat map: time by tenth of the scale; read within a time budget and drawn as SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cachetools import LRUCache
from markupsafe import Markup

from dashboards.web import charts
from dashboards.web.charts import Frame
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import Point, Query, ScoreHistogram, Store
from gaugeway.storage.stores.rollup_windows import hundredths
from monitors.analysis.series import lifetime

TENTHS = 10
MAX_COLUMNS = 5_000
"""Columns that are kept."""
PER_COLUMN = 200
"""Latest scores of a column that are read where the store makes no histograms."""
HOUR_S, DAY_S = 3600.0, 86_400.0
FINE_RANGE_S, FINE_S, FINE_COLUMNS = 6 * HOUR_S, (60.0, 300.0, 900.0), 72
"""Ranges of up to six hours have short columns, of these lengths, and up to about 72 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The weighted shares of the scores of a time by tenth, the lowest first; `n` scores from `at` on."""

    at: float
    seconds: float
    n: int
    shares: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Columns, the oldest first. Without `complete` the older ones were not read in time.

    With `sampled` each column has its `PER_COLUMN` latest scores only.
    """

    columns: Sequence[Column]
    complete: bool
    sampled: bool = False


def column_seconds(seconds: float) -> float:
    """How long a column is: up to six hours at least a minute and about a sixtieth of the range; then an hour or days.

    The stores keep histograms of hours and days.

    >>> [column_seconds(days * 86_400.0) for days in (0.01, 0.2, 1.0, 30.0)]
    [60.0, 300.0, 3600.0, 86400.0]
    """
    if seconds <= FINE_RANGE_S:
        return next((width for width in FINE_S if seconds / width <= FINE_COLUMNS), FINE_S[-1])
    return HOUR_S if seconds <= 2 * DAY_S else math.ceil(seconds / DAY_S / 60) * DAY_S


class HeatMapReader:
    """Reads heat maps; columns are kept as long as the steps of a series."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._known: LRUCache[tuple[str, str, float, int], tuple[float, Column, bool]] = LRUCache(MAX_COLUMNS)

    async def read(self, app: str, metric: str, since: float, until: float, within_s: float) -> HeatMap:
        """Read the heat map of a metric, the latest column first, for about `within_s` seconds."""
        length = column_seconds(until - since)
        deadline = time.monotonic() + within_s
        columns: list[Column] = []
        complete, sampled = True, False
        for index in range(math.ceil(until / length) - 1, math.floor(since / length) - 1, -1):
            found = self._fresh((app, metric, length, index))
            if found is None:
                left = deadline - time.monotonic()
                found = await self._load((app, metric, length, index), left) if left > 0.0 else None
            if found is None:
                complete = False
                break
            columns.append(found[0])
            sampled = sampled or found[1]
        return HeatMap(columns=columns[::-1], complete=complete, sampled=sampled)

    def _fresh(self, key: tuple[str, str, float, int]) -> tuple[Column, bool] | None:
        if (known := self._known.get(key)) is None:
            return None
        read_at, column, sampled = known
        held = lifetime(read_at - column.at - column.seconds)
        return (column, sampled) if self._clock() - read_at < held else None

    async def _load(self, key: tuple[str, str, float, int], left: float) -> tuple[Column, bool] | None:
        app, metric, length, index = key
        now, start = self._clock(), index * length
        query = Query(since=start, until=start + length, app=app, metric=metric)
        try:
            found = await self._store.spread(query, "model", left)  # counted by model beforehand, without a question
        except Unsupported:
            latest = replace(query, outcome="score", order="newest", limit=PER_COLUMN)
            column, sampled = _of_points(start, length, await self._store.series(latest)), True
        else:
            if not found.complete:
                return None
            column, sampled = _of_histograms(start, length, found.parts), False
        self._known[key] = now, column, sampled
        return column, sampled


def _of_histograms(at: float, seconds: float, parts: Sequence[ScoreHistogram]) -> Column:
    weights = [0.0] * TENTHS
    for histogram in parts:
        for k, n, _ in hundredths([histogram.bins]).tolist():
            weights[min(TENTHS - 1, int(k) // TENTHS)] += n / histogram.rate
    return _column(at, seconds, sum(histogram.n for histogram in parts), weights)


def _of_points(at: float, seconds: float, points: Sequence[Point]) -> Column:
    weights = [0.0] * TENTHS
    for point in points:
        if point.value is not None and 0.0 < point.rate <= 1.0:
            weights[min(TENTHS - 1, int(point.value * TENTHS))] += 1.0 / point.rate
    return _column(at, seconds, len(points), weights)


def _column(at: float, seconds: float, n: int, weights: Sequence[float]) -> Column:
    total = sum(weights)
    return Column(at=at, seconds=seconds, n=n, shares=[weight / total if total else 0.0 for weight in weights])


def drawn(found: HeatMap, *, title: str, since: float, until: float) -> Markup:
    """Draw a heat map from `since` to `until`."""
    if not any(column.n for column in found.columns):
        return Markup("")
    frame = Frame(since=since, until=until, left=44, top=4, width=950, height=180)
    return charts.drawn("heat_map", columns=found.columns, frame=frame, title=title)
