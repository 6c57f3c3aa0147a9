"""Sums over the last hour, kept by the minute: only the minutes that may still change are read again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import Struct

from gaugeway.storage.stores import Query, Summary
from gaugeway.storage.stores.rollup_windows import DAY_S, HOUR_S, add_summaries
from gaugeway.storage.stores.rollup_windows import SETTLED_S as HOUR_SETTLED_S
from monitors.analysis.quality import MAX_STREAMS, Quality, estimate, largest

SETTLED_S = 300.0
"""A minute is kept when it is over for so long: an exchange is stored when its response has ended."""
REREAD_S = 600.0
"""Kept minutes are read again after this time, because scores may come even later."""
MOST_KEPT = 50_000
"""Sums that are kept, over all minutes: further minutes are read each time."""
_FEW = 1_000
"""Minutes from before the window that hold fewer scores are read each time: that is quick."""
_PART_S = 60.0


class Summaries(Protocol):
    """The part of the store that is read."""

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        """Return one summary per app and metric."""


class _Part(Struct, frozen=True):
    read_at: float
    summaries: Sequence[Summary]


class RecentSums:
    """Adds up the scores of the last `window_s` seconds, or since the whole hour before.

    A score that is stored more than `SETTLED_S` after its exchange began, and whose sample was not seen to wait in the
    queue, is counted with a delay of up to `REREAD_S`; so is the change or deletion of one. Minutes of `_FEW` scores or
    more from before the window are not read again.
    """

    def __init__(self, store: Summaries, window_s: float) -> None:
        self._store = store
        self._window_s = window_s
        self._parts: dict[int, _Part] = {}
        self._at = 0.0
        self._due = 0.0

    async def summary(self, now: float, oldest_waiting: float | None = None) -> Sequence[Summary]:
        """Return one summary per app and metric of the window up to Unix time `now`.

        `oldest_waiting` is when the first exchange began that waits in the queue, read before: nothing since then is
        settled. Raises EngineError.
        """
        return await self._since(now - self._window_s, now, oldest_waiting)

    async def since_whole_hour(self, now: float, oldest_waiting: float | None = None) -> Sequence[Summary]:
        """Return the same from `whole_hour(now)` on."""
        for part in self._before_window(now):
            if sum(summary.n for summary in self._parts[part].summaries) < _FEW:
                del self._parts[part]
        return await self._since(self.whole_hour(now), now, oldest_waiting)

    def whole_hour(self, now: float) -> float:
        """Return when the last whole hour ended that is settled and before the window; minutes are kept from then on.

        The store keeps the sums of the whole hours before.
        """
        return math.floor((now - max(self._window_s, HOUR_SETTLED_S)) / HOUR_S) * HOUR_S

    async def _since(self, since: float, now: float, oldest_waiting: float | None) -> Sequence[Summary]:
        until = now + DAY_S
        settled = min(now - SETTLED_S, math.inf if oldest_waiting is None else oldest_waiting)
        first, last = math.ceil(since / _PART_S), math.floor(settled / _PART_S)
        if first >= last:
            self._parts.clear()
            return await self._read(since, until)
        hours = _whole_hours(now - self._window_s, min(settled, now - HOUR_SETTLED_S))
        parts = [part for part in range(first, last) if not hours[0] <= part * _PART_S < hours[1]]
        self._drop(first, parts, now)
        found = [*await self._read(since, first * _PART_S)]
        if hours[0] < hours[1]:
            found += await self._read(*hours)
        for part in parts:
            found += await self._part(part, now)
        return add_summaries([*found, *await self._read(last * _PART_S, until)])

    async def _part(self, part: int, now: float) -> Sequence[Summary]:
        if (known := self._parts.get(part)) is not None:
            return known.summaries
        found = await self._read(part * _PART_S, (part + 1) * _PART_S)
        room = MOST_KEPT - len(found) - sum(len(held.summaries) for held in self._parts.values())
        for old in sorted(self._before_window(now)):
            if room >= 0:
                break
            room += len(self._parts.pop(old).summaries)
        if room >= 0:
            self._parts[part] = _Part(now, found)
        return found

    async def _read(self, since: float, until: float) -> Sequence[Summary]:
        return await self._store.summary(Query(since=since, until=until)) if since < until else ()

    def _before_window(self, now: float) -> Sequence[int]:
        return [part for part in self._parts if part * _PART_S < now - self._window_s]

    def _drop(self, first: int, wanted: Sequence[int], now: float) -> None:
        """Drop minutes that are not wanted or were read after `now`, by a clock that was set back since.

        Minutes before the `first` one that is asked for stay, back to the whole hour. Of the window's drop those that
        were read first, so many that all are read again within `REREAD_S`: a few at each time, because all at once
        would take long.
        """
        earlier = range(math.floor(self.whole_hour(now) / _PART_S), first)
        kept = {
            part: held
            for part in (*earlier, *wanted)
            if (held := self._parts.get(part)) is not None and held.read_at <= now
        }
        self._parts = kept
        again = sorted(kept.keys() - {*self._before_window(now)}, key=lambda part: kept[part].read_at)
        self._due = min(len(again), self._due + len(again) * max(0.0, now - self._at) / REREAD_S)
        for part in again[: int(self._due)]:
            del kept[part]
            self._due -= 1.0
        self._at = now


def _whole_hours(since: float, until: float) -> tuple[float, float]:
    """The whole hours of a time, whose sums the store keeps; the end is not after the start if there are none.

    >>> _whole_hours(3000.0, 11_000.0)
    (3600, 10800)
    """
    return math.ceil(since / HOUR_S) * HOUR_S, math.floor(until / HOUR_S) * HOUR_S


WINDOWS_S = (6 * 3600.0, 24 * 3600.0, 7 * 86_400.0)
"""Windows that are tried after the configured one, the shortest first."""
_REREAD = 60.0
"""A window is read again after a sixtieth of its length: 6 minutes, 24 minutes, 2.8 hours."""
_FIRST_S = 60.0
"""A stream that has no basis in any window read is looked for again after this time."""


class _Read(Struct):
    at: float
    quality: Mapping[tuple[str, str], Quality]


class GrowingWindow:
    """Replaces estimates without a basis by those of longer windows, which are read rarely.

    `window_s` is the configured window, whose sums `recent` keeps, back to a whole hour: the store keeps those of the
    hours before, so of a longer window only the rows from its begin to the next whole hour are read. Estimates of
    longer windows are Hajek's, without the covariate. At most `MAX_STREAMS` are kept for each window.
    """

    def __init__(self, store: Summaries, recent: RecentSums, window_s: float) -> None:
        self._store = store
        self._recent = recent
        self._windows = tuple(seconds for seconds in WINDOWS_S if seconds > window_s)
        self._read: dict[float, _Read] = {}

    async def grown(
        self,
        found: Sequence[Quality],
        now: float,
        effects: Mapping[tuple[str, str, str], float],
        oldest_waiting: float | None = None,
    ) -> Sequence[Quality]:
        """Return the estimates of the configured window, and of a longer one where it has fewer than 10 effective
        scores; sorted by app, metric and slice. `oldest_waiting` as in `RecentSums.summary`. Raises EngineError.
        """
        streams = {(stream.app, stream.metric): stream for stream in found if not stream.slice}
        for window_s in self._windows:
            if not self._is_due(window_s, now, streams):
                quality = self._read[window_s].quality
            else:
                quality = await self._quality(window_s, now, effects, oldest_waiting)
            for key, longer in quality.items():
                known = streams.get(key)
                if longer.mean is None or (known is not None and known.mean is not None):
                    continue
                if known is not None or len(streams) < MAX_STREAMS:
                    streams[key] = longer
        slices = [found_slice for found_slice in found if found_slice.slice]
        return sorted([*streams.values(), *slices], key=lambda stream: (stream.app, stream.metric, stream.slice))

    def _is_due(self, window_s: float, now: float, wanted: Mapping[tuple[str, str], Quality]) -> bool:
        known = self._read.get(window_s)
        if known is None:
            return True
        age_s = now - known.at
        lacking = len(known.quality) < MAX_STREAMS and any(
            wanted_quality.mean is None and key not in known.quality for key, wanted_quality in wanted.items()
        )
        return age_s >= window_s / _REREAD or (lacking and age_s >= _FIRST_S)

    async def _quality(
        self, window_s: float, now: float, effects: Mapping[tuple[str, str, str], float], oldest_waiting: float | None
    ) -> Mapping[tuple[str, str], Quality]:
        older = await self._store.summary(Query(since=now - window_s, until=self._recent.whole_hour(now)))
        summaries = add_summaries([*older, *await self._recent.since_whole_hour(now, oldest_waiting)])
        quality = {
            (longer_estimate.app, longer_estimate.metric): replace(longer_estimate, window_s=window_s)
            for longer_estimate in estimate(largest(summaries), effects=effects)
            if not longer_estimate.slice
        }
        self._read[window_s] = _Read(now, quality)
        return quality
