"""Random samples of judged answers, in the order in which people label them."""

from __future__ import annotations

import asyncio
import heapq
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import Query, Store
from gaugeway.storage.stores.rollup_windows import next_step
from monitors.analysis.human_labels import WINDOW_S, position

MAX_DRAWN = 5_000
"""Answers that are kept of one app and metric; more are not labelled within 30 days."""
MAX_DRAWS = 16
"""Apps and metrics whose draws are kept."""
FRESH_S = 600.0
"""After so long the answers that were judged meanwhile are drawn from, too."""
STEP_S, LEAST_STEP_S, QUICK_S = 3_600.0, 60.0, 0.05
"""Scores are read in steps that take about `QUICK_S`, so that other queries wait for a moment only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Judged answers of the last 30 days in random order, `answers` of which were read; all if `complete`."""

    ids: Sequence[str]
    answers: int
    complete: bool

    def following(self, after: str, without: Collection[str]) -> Iterator[str]:
        """Yield the ids after `after` and then those before it, except `without`; from the start for ""."""
        start = bisect_right(self.ids, position(after), key=position) if after else 0
        return (
            sample_id
            for sample_id in (*self.ids[start:], *self.ids[:start])
            if sample_id not in without and sample_id != after
        )


@dataclass(slots=True, kw_only=True)
class _Reading:
    """A draw in progress."""

    began: float
    places: list[tuple[bytes, str]] = field(default_factory=list)
    answers: int = 0
    complete: bool = False
    task: asyncio.Task[None] | None = None

    def add(self, ids: Collection[str]) -> None:
        self.answers += len(ids)
        found = {*self.places, *((position(sample_id), sample_id) for sample_id in ids)}
        self.places = heapq.nsmallest(MAX_DRAWN, found)

    def draw(self) -> Draw:
        return Draw(ids=[name for _, name in self.places], answers=self.answers, complete=self.complete)


class ReviewDraws:
    """Draws answers that have a score of a metric, each with the same probability, whatever its score.

    The order is that of `human_labels.drawn`: the answers labelled so far are at any time a simple random sample of the
    judged answers, as `corrected_mean` requires, and labels that `gaugeway labels --output` asked for fit in.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.time, stopping: asyncio.Event | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._stopping = stopping or asyncio.Event()
        self._done: LRUCache[tuple[str, str], _Reading] = LRUCache(MAX_DRAWS)
        self._running: dict[tuple[str, str], _Reading] = {}

    async def draw(self, app: str, metric: str, within_s: float) -> Draw:
        """Return the draw, as far as it was read within `within_s` seconds; reading goes on after that.

        A draw is read again after `FRESH_S`; until that is done the earlier one is returned.
        """
        key = (app, metric)
        known = self._done.get(key)
        if known is not None and self._clock() - known.began < FRESH_S:
            return known.draw()
        reading = self._running.get(key)
        if reading is None:
            if len(self._running) >= MAX_DRAWS:
                return known.draw() if known is not None else Draw(ids=(), answers=0, complete=False)
            reading = self._running[key] = _Reading(began=self._clock())
            reading.task = spawn(self._read(key, reading), name="drawing answers to label")
        assert reading.task is not None  # noqa: S101 - for the type checker
        await asyncio.wait({reading.task}, timeout=within_s)
        if reading.task.done() and (error := reading.task.exception()) is not None:
            raise error
        return known.draw() if known is not None and not reading.complete else reading.draw()

    async def _read(self, key: tuple[str, str], reading: _Reading) -> None:
        """Read the scores of the last 30 days, the latest first, until `stopping` is set."""
        app, metric = key
        until, step_s = reading.began + 1.0, STEP_S
        first = until - WINDOW_S
        try:
            while until > first:
                if self._stopping.is_set():
                    return
                since, began = max(first, until - step_s), time.monotonic()
                query = Query(since=since, until=until, app=app, metric=metric, outcome="score")
                reading.add({point.sample_id for point in await self._store.series(query)})
                until = since
                took = time.monotonic() - began
                step_s = next_step(step_s, took, quick_s=QUICK_S, least_s=LEAST_STEP_S, most_s=WINDOW_S / 4)
                await asyncio.sleep(took)  # others take turns
            reading.complete = True
            self._done[key] = reading
        finally:
            self._running.pop(key, None)
