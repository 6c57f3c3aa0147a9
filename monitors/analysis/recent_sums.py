"""Sums over the last hour, kept by the minute: only the minutes that may still change are read again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gaugeway.storage.stores import Query, Summary
from gaugeway.storage.stores.rollup_windows import DAY_S, HOUR_S, add_summaries
from gaugeway.storage.stores.rollup_windows import SETTLED_S as HOUR_SETTLED_S

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


@dataclass(frozen=True, slots=True)
class _Part:
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
