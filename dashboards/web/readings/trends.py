"""Hourly means of the last 24 hours, read from the store in the background and cached."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from dashboards.web.charts import Dot
from dashboards.web.format import MIN_N
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import Query, Store, Summary
from gaugeway.storage.weighted_sums import WeightedSums
from monitors.analysis.quality import largest
from monitors.statistics.confidence_sequence import confidence_sequence
from monitors.statistics.weighted_mean import hajek_from_sums

HOUR_S = 3600.0
HOURS = 24
FRESH_S, SETTLED_S, OLD_S = 10.0, 2 * HOUR_S, 900.0
"""Cache lifetimes: 10 s for an hour that may still get scores, 15 minutes for one that ended over two hours ago."""
MAX_PER_HOUR = 1000
"""App-metric pairs kept for each hour: those with the most scores."""
WIDTHS = (2, 3, 6, 12)
"""Hours of a chart's dot: the fewest with which most dots have a basis for an interval."""
RECENT_HOURS = 6
Key = tuple[str, str]


class Trends:
    """Hourly score sums by app and metric, refreshed from the store in the background."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._hours: dict[int, tuple[float, Sequence[Summary]]] = {}
        self._task: asyncio.Task[None] | None = None
        self.version = 0

    async def latest(self, timeout_s: float = 0.03) -> tuple[dict[Key, list[tuple[float, Summary]]], bool]:
        """(app, metric) -> (start of the hour, sums), oldest first, and whether every hour is loaded.

        Waits up to `timeout_s` for a refresh.
        """
        if self._stale() and (self._task is None or self._task.done()):
            self._task = spawn(self._read(), name="page: trends")
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        found: dict[Key, list[tuple[float, Summary]]] = {}
        indexes = self._indexes()
        for index in reversed(indexes):
            for summary in self._hours.get(index, (0.0, ()))[1]:
                found.setdefault((summary.app, summary.metric), []).append((index * HOUR_S, summary))
        return found, all(index in self._hours for index in indexes)

    async def _read(self) -> None:
        for index in self._stale():
            start = index * HOUR_S
            now = self._clock()
            summaries = await self._store.summary(Query(since=start, until=start + HOUR_S))
            self._hours[index] = now, largest(summaries, MAX_PER_HOUR)
            self.version += 1
        oldest = self._indexes()[-1]
        self._hours = {index: hour for index, hour in self._hours.items() if index >= oldest}

    def _stale(self) -> list[int]:
        return [index for index in self._indexes() if not self._is_fresh(index)]

    def _is_fresh(self, index: int) -> bool:
        if index not in self._hours:
            return False
        now, read_at = self._clock(), self._hours[index][0]
        settled = (index + 1) * HOUR_S < now - SETTLED_S
        return now - read_at < (OLD_S if settled else FRESH_S)

    def _indexes(self) -> list[int]:
        """Indexes of the hours shown, latest first."""
        last = math.floor(self._clock() / HOUR_S)
        return list(range(last, last - HOURS, -1))


def dots_of(hours: Sequence[tuple[float, Summary]], now: float) -> tuple[list[Dot], int]:
    """Chart dots of a stream, oldest first, and the hours of each; the last one holds the current hour."""
    last = math.floor(now / HOUR_S)
    dots: list[Dot] = []
    for width in WIDTHS:
        groups: dict[int, list[Summary]] = {}
        for start, summary in hours:
            groups.setdefault((last - math.floor(start / HOUR_S)) // width, []).append(summary)
        dots = []
        for index, some in sorted(groups.items(), reverse=True):
            begin = (last + 1 - (index + 1) * width) * HOUR_S
            made = dot(begin, sum(some, WeightedSums()), width * HOUR_S)
            dots += [made] if made is not None else []
        if 2 * len(dots) > len(groups):
            return dots, width
    return dots, WIDTHS[-1]


def dot(start: float, sums: WeightedSums, seconds: float = HOUR_S) -> Dot | None:
    """Chart dot of a period starting at `start`, without an interval; None below `MIN_N` effective scores."""
    found = hajek_from_sums(sums)
    if found is None or found.n_eff < MIN_N:
        return None
    return Dot(at=start + seconds / 2, mean=min(1.0, max(0.0, found.mean)), n=found.n)


def movement(hours: Sequence[tuple[float, Summary]], now: float, *, lower_is_better: bool) -> str:
    """Compare the last six hours with those before, in words.

    A change is reported only if the confidence sequences do not overlap: they stay valid however often the page is
    loaded.
    """
    edge = now - RECENT_HOURS * HOUR_S
    sums = {False: WeightedSums(), True: WeightedSums()}
    for start, summary in hours:
        sums[start >= edge] += summary
    old, new = (hajek_from_sums(side) for side in sums.values())
    if old is None or new is None or min(old.n_eff, new.n_eff) < MIN_N:
        return "too few scores to compare"
    (old_low, old_high), (new_low, new_high) = confidence_sequence(old), confidence_sequence(new)
    if new_low <= old_high and old_low <= new_high:
        return "no clear change"
    better = (new.mean > old.mean) != lower_is_better
    return f"{'better' if better else 'worse'} over {RECENT_HOURS} h: {old.mean:.2f} to {new.mean:.2f}"
