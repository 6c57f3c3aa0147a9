"""What the view of an app reads in the background: latency, tokens and cost, and the heat map of its scores."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from cachetools import LRUCache, TTLCache
from markupsafe import Markup
from msgspec import Struct

from dashboards.web import charts
from dashboards.web.charts import Frame
from dashboards.web.spread_sample import spread_sample
from gaugeway.records import Sample
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import Point, Query, ScoreHistogram, Store
from gaugeway.storage.stores.rollup_windows import hundredths
from monitors.analysis.series import HELD_S, lifetime
from monitors.statistics.confidence_sequence import student

EXCHANGES, AT_ONCE = 600, 100
"""Exchanges that are read, spread over the range, and those read at once."""
BUDGET_S = 30.0
"""How long looking for them may take."""
ROUNDED, MAX_READING = 12, 12
"""A range is rounded to its twelfths; ranges read at once."""
MAX_REMEMBERED = 64
FRESH_S = 120.0
LEAST = 20
"""Exchanges below which there is no estimate."""
_ALPHA, _Z = 0.05, 1.96


class Measured(Struct, frozen=True, kw_only=True):
    """An estimate from `n` exchanges with its 95 % interval; None with fewer than `LEAST`."""

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Traffic(Struct, frozen=True, kw_only=True):
    """Of the exchanges read: medians and 95th percentiles of seconds, means of tokens and cost in USD.

    `total` is about how many there are, `exact` says that it was counted.
    """

    exchanges: int
    total: int
    exact: bool
    median_s: Measured
    p95_s: Measured
    input_tokens: Measured
    output_tokens: Measured
    cost_usd: Measured


class TrafficReader:
    """Reads the traffic of apps. What was read is kept for two minutes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: TTLCache[tuple[str, str, float, float], Traffic] = TTLCache(MAX_REMEMBERED, FRESH_S)
        self._tasks: dict[tuple[str, str, float, float], asyncio.Task[None]] = {}

    async def read(self, app: str, metric: str, since: float, until: float, within_s: float) -> Traffic | None:
        """What the exchanges with an evaluation of `metric` show; None if they could not be read in time."""
        length = max(60.0, (until - since) / ROUNDED)  # so that who reloads finds what was read
        key = (app, metric, math.floor(since / length) * length, math.ceil(until / length) * length)
        if key not in self._known:
            if key not in self._tasks and len(self._tasks) < MAX_READING:
                task = self._tasks[key] = spawn(self._load(key), name="reading the traffic of an app")
                task.add_done_callback(lambda _: self._tasks.pop(key, None))
            if (task := self._tasks.get(key)) is not None:  # type: ignore[assignment]  # or none
                await asyncio.wait([task], timeout=within_s)
        return self._known.get(key)

    async def _load(self, key: tuple[str, str, float, float]) -> None:
        app, metric, since, until = key
        query = Query(since=since, until=until, app=app, metric=metric)
        found = await spread_sample(self._store, query, wanted=EXCHANGES, budget_s=BUDGET_S, clock=time.monotonic)
        if found is None:
            return
        ids = list(dict.fromkeys(point.sample_id for point in found.points))
        samples: list[Sample] = []
        for start in range(0, len(ids), AT_ONCE):
            samples += (await self._store.samples(ids[start : start + AT_ONCE])).values()
        total = len(samples) if found.complete else max(len(samples), round(found.total))
        self._known[key] = traffic_of(samples, total, exact=found.exact)


def traffic_of(samples: Sequence[Sample], total: int, *, exact: bool = True) -> Traffic:
    """Estimate from exchanges, of `total` in all; those without the field in question do not count."""
    seconds = sorted(sample.duration_s for sample in samples if sample.duration_s is not None)
    used = [sample.usage for sample in samples if sample.usage is not None]
    return Traffic(
        exchanges=len(samples),
        total=total,
        exact=exact,
        median_s=percentile(seconds, 0.5),
        p95_s=percentile(seconds, 0.95),
        input_tokens=mean([float(usage.input_tokens) for usage in used if usage.input_tokens is not None]),
        output_tokens=mean([float(usage.output_tokens) for usage in used if usage.output_tokens is not None]),
        cost_usd=mean([sample.cost_usd for sample in samples if sample.cost_usd is not None]),
    )


def mean(values: Sequence[float]) -> Measured:
    """The mean with Student's interval.

    >>> found = mean([1.0, 3.0] * 10)
    >>> found.value, round(found.low, 2), round(found.high, 2)
    (2.0, 1.52, 2.48)
    """
    n = len(values)
    if n < LEAST:
        return Measured(n=n)
    middle = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (n - 1) / n)
    half = student(_ALPHA, n - 1) * spread
    return Measured(n=n, value=middle, low=max(0.0, middle - half), high=middle + half)


def percentile(ordered: Sequence[float], q: float) -> Measured:
    """A quantile of ordered values; its interval goes from one order statistic to another, whatever the distribution.

    The number of values below the quantile is binomial; its interval is the normal one. `high` is None where it would
    lie beyond the largest value.

    >>> found = percentile([float(n) for n in range(100)], 0.5)
    >>> found.value, found.low, found.high
    (50.0, 39.0, 60.0)
    """
    n = len(ordered)
    if n < LEAST:
        return Measured(n=n)
    half = _Z * math.sqrt(n * q * (1.0 - q))
    low, high = math.floor(n * q - half) - 1, math.ceil(n * q + half)
    return Measured(
        n=n, value=ordered[min(n - 1, int(n * q))], low=ordered[max(0, low)], high=ordered[high] if high < n else None
    )


TENTHS = 10
MAX_COLUMNS = 5_000
"""Columns that are kept."""
PER_COLUMN = 200
"""Latest scores of a column that are read where the store makes no histograms."""
COLUMNS_AT_ONCE = 4
"""Columns that are read at once."""
HOUR_S, DAY_S = 3600.0, 86_400.0
FINE_RANGE_S, FINE_S, FINE_COLUMNS = 6 * HOUR_S, (60.0, 300.0, 900.0), 72
"""Ranges of up to six hours have short columns, of these lengths, and up to about 72 of them."""


_Key: TypeAlias = tuple[str, str, float, int]
"""App, metric, and length and place of a column."""


class Column(Struct, frozen=True, kw_only=True):
    """The weighted shares of the scores of a time by tenth, the lowest first; `n` scores from `at` on."""

    at: float
    seconds: float
    n: int
    shares: Sequence[float]


class HeatMap(Struct, frozen=True, kw_only=True):
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
    """Reads heat maps; columns are kept as long as the steps of a series. Who asks again does not begin again."""

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.time, running: set[asyncio.Task[None]] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._running = set() if running is None else running
        self._known: LRUCache[_Key, tuple[float, Column, bool]] = LRUCache(MAX_COLUMNS)
        self._tasks: dict[_Key, asyncio.Task[None]] = {}

    async def read(self, app: str, metric: str, since: float, until: float, within_s: float) -> HeatMap:
        """Return the columns read by now, the latest ones, after at most about `within_s` seconds. Reading goes on."""
        length = column_seconds(until - since)
        places = range(math.ceil(until / length) - 1, math.floor(since / length) - 1, -1)
        keys = [(app, metric, length, index) for index in places]
        if any(self._held(key, 0.0) is None for key in keys):
            if (task := self._tasks.get(keys[-1])) is None and len(self._tasks) < MAX_READING:
                task = self._tasks[keys[-1]] = spawn(self._load_all(keys), name="reading a heat map")
                self._running.add(task)
                task.add_done_callback(lambda _: self._tasks.pop(keys[-1], None))
                task.add_done_callback(self._running.discard)
            if task is not None and (await asyncio.wait([task], timeout=within_s))[0]:
                task.result()
        columns: list[tuple[Column, bool]] = []
        for key in keys:
            if (held := self._held(key, HELD_S)) is None:
                break
            columns.append(held)
        return HeatMap(
            columns=[column for column, _ in columns[::-1]],
            complete=len(columns) == len(keys),
            sampled=any(sampled for _, sampled in columns),
        )

    def _held(self, key: _Key, more_s: float) -> tuple[Column, bool] | None:
        if (known := self._known.get(key)) is None:
            return None
        read_at, column, sampled = known
        held = lifetime(read_at - column.at - column.seconds) + more_s
        return (column, sampled) if self._clock() - read_at < held else None

    async def _load_all(self, keys: Sequence[_Key]) -> None:
        for start in range(0, len(keys), COLUMNS_AT_ONCE):
            some = keys[start : start + COLUMNS_AT_ONCE]
            await asyncio.gather(*(self._load(key) for key in some if self._held(key, 0.0) is None))

    async def _load(self, key: _Key) -> None:
        app, metric, length, index = key
        now, start = self._clock(), index * length
        query = Query(since=start, until=start + length, app=app, metric=metric)
        try:
            found = await self._store.spread(query, "model")  # counted by model beforehand, without a question
        except Unsupported:
            latest = replace(query, outcome="score", order="newest", limit=PER_COLUMN)
            column, sampled = _of_points(start, length, await self._store.series(latest)), True
        else:
            column, sampled = _of_histograms(start, length, found.parts), False
        self._known[key] = now, column, sampled


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
