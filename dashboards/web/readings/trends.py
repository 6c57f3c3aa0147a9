"""Hourly means of the last 24 hours, read from the store in the background and cached."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dashboards.web.charts import Dot
from dashboards.web.format import MIN_N
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import Query, Store, Summary
from monitors.analysis.quality import largest
from monitors.statistics.confidence_sequence import closed_window, confidence_sequence
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

HOUR_S = 3600.0
HOURS = 24
FRESH_S, SETTLED_S, OLD_S = 10.0, 2 * HOUR_S, 900.0
"""Cache lifetimes: 10 s for an hour that may still get scores, 15 minutes for one that ended over two hours ago."""
MAX_PER_HOUR = 1000
"""App-metric pairs kept for each hour: those with the most scores."""
WIDTHS = (2, 3, 6, 12)
"""Hours of a chart's dot: the fewest with which most dots have a basis for an interval."""
RECENT_HOURS = 6
_SUMS = ("n", "failed", "w", "wx", "w2", "w2x", "w2x2")
Key = tuple[str, str]


class Trends:
    """Hourly score sums by app and metric, refreshed from the store in the background."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._hours: dict[int, tuple[float, Sequence[Summary]]] = {}
        self._task: asyncio.Task[None] | None = None

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
            found = estimated(together(some))
            if found is not None and found.n_eff >= MIN_N:
                middle = (last + 1 - (index + 0.5) * width) * HOUR_S
                dots.append(replace(dot_of(middle, found), low=None, high=None))  # there is no room for a band
        if 2 * len(dots) > len(groups):
            return dots, width
    return dots, WIDTHS[-1]


def dot_of(at: float, found: Estimate) -> Dot:
    """Chart dot of a mean; with an interval from `MIN_N` effective scores on."""
    low, high = closed_window(found) if found.n_eff >= MIN_N else (None, None)
    return Dot(at=at, mean=min(1.0, max(0.0, found.mean)), low=low, high=high, n=found.n)


def estimated(summary: Summary | None) -> Estimate | None:
    """Weighted mean from sums; None without a score."""
    if summary is None or not summary.n:
        return None
    sums = {name: getattr(summary, name) for name in ("n", "w", "wx", "w2", "w2x", "w2x2")}
    return hajek_from_sums(**sums)


def together(summaries: Iterable[Summary]) -> Summary | None:
    """Total of several summaries; None for none."""
    total: Summary | None = None
    for summary in summaries:
        if total is None:
            total = summary
        else:
            added = {name: getattr(total, name) + getattr(summary, name) for name in _SUMS}
            total = replace(total, **added)
    return total


def movement(hours: Sequence[tuple[float, Summary]], now: float, *, lower_is_better: bool) -> str:
    """Compare the last six hours with those before, in words.

    A change is reported only if the confidence sequences do not overlap: they stay valid however often the page is
    loaded.
    """
    edge = now - RECENT_HOURS * HOUR_S
    before = together(summary for start, summary in hours if start < edge)
    since = together(summary for start, summary in hours if start >= edge)
    old, new = estimated(before), estimated(since)
    if old is None or new is None or min(old.n_eff, new.n_eff) < MIN_N:
        return "too few scores to compare"
    (old_low, old_high), (new_low, new_high) = confidence_sequence(old), confidence_sequence(new)
    if new_low <= old_high and old_low <= new_high:
        return "no clear change"
    better = (new.mean > old.mean) != lower_is_better
    return f"{'better' if better else 'worse'} over {RECENT_HOURS} h: {old.mean:.2f} to {new.mean:.2f}"
