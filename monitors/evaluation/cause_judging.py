"""Extra judging to find the cause of an alert: runs metrics on stored exchanges that were not sampled for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from msgspec.structs import replace

from gaugeway.records import Evaluation, Score, Skipped
from gaugeway.storage.stores import Point, Store
from monitors.alerting.causes import is_retrieval
from monitors.alerting.stored_exchanges import shuffled
from monitors.alerting.stream import usable
from monitors.evaluation.evaluator import evaluate
from monitors.metrics import Metric

AT_ONCE = 8
MAX_LOOK_S, LOOK_PERIOD_S = 60.0, 600.0
"""Seconds of extra judging in any ten minutes; bounded because the other alerts of the tick wait for it."""
MAX_LOOKS, LOOKS_PERIOD_S = 20, 3600.0
NO_CONTEXTS = "no_contexts"
_log = logging.getLogger("gaugeway")


@dataclass(eq=False)
class CauseJudging:
    """Judges up to `samples` exchanges on each side of an onset, when an alert has too few scores to name its cause.

    At a rate of 0.1 there are six retrieval scores beside sixty of a metric that is computed for every exchange. The
    exchanges are chosen by a hash of their ids among all that any metric was computed for, those already scored first
    (they are a random part, too), so each is weighted by the rate of its most frequent metric. The scores go to
    `explain` and are not stored: an alarm selects these exchanges, so they would bias estimates and detectors.

    `metrics` are judged ones; `allowed` says whether the judge may be called now (available, with budget left).
    """

    store: Store
    metrics: Sequence[Metric]
    _: KW_ONLY
    samples: int
    allowed: Callable[[], bool] = lambda: True
    on_judged: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _looks: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_LOOKS), init=False)

    async def complete(
        self, metric: str, before: Sequence[Point], since: Sequence[Point]
    ) -> tuple[Sequence[Point], Sequence[Point]] | None:
        """Return both sides with more scores of `metric` and of retrieval metrics; None when there are none to add."""
        wanted = [candidate for candidate in self.metrics if candidate.name == metric or is_retrieval(candidate.name)]
        began = self.clock()
        if not wanted or (left_s := self._left_s(began)) <= 0.0 or not self.allowed():
            return None
        try:
            async with asyncio.timeout(left_s):
                gate = asyncio.Semaphore(AT_ONCE)
                sides = [await self._side(side, wanted, gate) for side in (before, since)]
        except TimeoutError:
            _log.warning("judge calls for the cause of a drop of %s timed out after %.0f s", metric, left_s)
            return None
        finally:
            self._looks.append((began, self.clock() - began))
        return (sides[0] or before, sides[1] or since) if any(sides) else None

    def _left_s(self, now: float) -> float:
        if len(self._looks) == MAX_LOOKS and now - self._looks[0][0] < LOOKS_PERIOD_S:
            return 0.0
        return MAX_LOOK_S - sum(seconds for at, seconds in self._looks if now - at - seconds < LOOK_PERIOD_S)

    async def _side(
        self, points: Sequence[Point], metrics: Sequence[Metric], gate: asyncio.Semaphore
    ) -> list[Point] | None:
        """Return the points of one side with more scores; None when none was added."""
        known = _judgeable(points)
        order = shuffled(known)
        chosen: dict[str, list[str]] = {}
        have: dict[str, dict[str, Point]] = {}
        for metric in metrics:
            mine = {
                point.sample_id: point
                for point in points
                if point.metric == metric.name and point.version == str(metric.version) and _counts(point)
            }
            if len(mine) < self.samples and len(mine) < len(known):
                have[metric.name] = mine
                chosen[metric.name] = sorted(order, key=lambda sample_id: sample_id not in mine)[: self.samples]
        missing: dict[str, list[Metric]] = {}
        for metric in metrics:
            for sample_id in chosen.get(metric.name, ()):
                if sample_id not in have[metric.name]:
                    missing.setdefault(sample_id, []).append(metric)
        if not missing:
            return None
        new = await asyncio.gather(*(self._judge(known[sample_id], some, gate) for sample_id, some in missing.items()))
        judged = {(point.metric, point.sample_id): point for some in new for point in some}
        found = [point for point in points if point.metric not in chosen]
        for name, ids in chosen.items():
            scored = (have[name].get(sample_id) or judged.get((name, sample_id)) for sample_id in ids)
            found += [replace(point, rate=known[point.sample_id].rate) for point in scored if point is not None]
        return found

    async def _judge(self, known: Point, metrics: Sequence[Metric], gate: asyncio.Semaphore) -> list[Point]:
        """Judge one stored exchange; a failed evaluation gives no point."""
        async with gate:
            if (stored := await self.store.sample(known.sample_id)) is None:
                return []
            outcomes = await asyncio.gather(
                *(
                    evaluate(metric, stored[0], rate=known.rate, clock=time.perf_counter, timeout_s=MAX_LOOK_S)
                    for metric in metrics
                )
            )
        for evaluation in outcomes:
            self.on_judged(evaluation.metric)
        return [point for evaluation in outcomes if (point := _point(known, evaluation)) is not None]


def _judgeable(points: Iterable[Point]) -> Mapping[str, Point]:
    """Return the exchanges that can be judged, each with its point of the highest rate."""
    found: dict[str, Point] = {}
    unfit = set()
    for point in points:
        if point.outcome == "skipped" and point.reason != NO_CONTEXTS:
            unfit.add(point.sample_id)
        elif point.sample_id not in found or found[point.sample_id].rate < point.rate:
            found[point.sample_id] = point
    return {key: point for key, point in found.items() if key not in unfit}


def _counts(point: Point) -> bool:
    return usable(point) or (point.outcome == "skipped" and point.reason == NO_CONTEXTS)


def _point(known: Point, evaluation: Evaluation) -> Point | None:
    outcome = evaluation.outcome
    made = replace(
        known, metric=evaluation.metric, version=evaluation.version, judge=evaluation.judge, value=None, reason=""
    )
    if isinstance(outcome, Score):
        return replace(made, outcome="score", value=outcome.value)
    return replace(made, outcome="skipped", reason=outcome.reason) if isinstance(outcome, Skipped) else None
