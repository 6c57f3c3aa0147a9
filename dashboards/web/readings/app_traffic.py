"""Latency, tokens and cost of an app: read from some of its exchanges of a range, in the background."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from dashboards.web.readings.spread_sample import spread_sample
from gaugeway.records import Sample
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import Query, Store
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An estimate from `n` exchanges with its 95 % interval; None with fewer than `LEAST`."""

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
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
        n=n,
        value=ordered[min(n - 1, int(n * q))],
        low=ordered[max(0, low)],
        high=ordered[high] if high < n else None,
    )
