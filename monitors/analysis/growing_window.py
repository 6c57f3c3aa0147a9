"""Streams with few scores: the shortest longer window in which they have a basis for an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gaugeway.storage.stores import Query
from gaugeway.storage.stores.rollup_windows import add_summaries
from monitors.analysis.quality import MAX_STREAMS, Quality, estimate, largest
from monitors.analysis.recent_sums import RecentSums, Summaries

WINDOWS_S = (6 * 3600.0, 24 * 3600.0, 7 * 86_400.0)
"""Windows that are tried after the configured one, the shortest first."""
_REREAD = 60.0
"""A window is read again after a sixtieth of its length: 6 minutes, 24 minutes, 2.8 hours."""
_FIRST_S = 60.0
"""A stream that has no basis in any window read is looked for again after this time."""


@dataclass(slots=True)
class _Read:
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
        self,
        window_s: float,
        now: float,
        effects: Mapping[tuple[str, str, str], float],
        oldest_waiting: float | None,
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
