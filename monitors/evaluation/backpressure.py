"""Back-pressure from a slow judge: lowers the rates of judged metrics so that the queue's age stays bounded."""

from __future__ import annotations

import math

from monitors.statistics.weighted_mean import ExponentialDecay

TARGET_S = 60.0
FLOOR = 0.02
MOST_UNJUDGED = 64
"""Samples in work that need no judge, or not yet: they are read, scored and written together, and a
larger batch costs less per sample."""
_MEMORY_S = 30.0


class JudgePace:
    """Computes the factor for the rates of judged metrics with which the queue's age stays near `target_s`.

    A worker has `places` for samples that are judged; a sample holds one for `factor * j` seconds, where j is what
    judging takes at factor 1. It is measured on the latest samples (`memory_s`), so a change of the judge's speed or
    capacity shows, whatever its cause. The wanted throughput is the arrival rate, plus what waits divided by
    `target_s`; the factor is the largest that allows it::

        factor = places / (wanted * j)          within [floor, 1]

    The backlog then shrinks by 1/e in `target_s`; a relative error e of the measurements leaves an age of
    e * `target_s`. The age does not oscillate, since the factor acts where the queue is emptied and only the averages
    lag. It depends on the past alone and is recorded with each evaluation, so weighting by 1/rate stays unbiased. With
    an infinite `target_s` everything is judged, however late.

    `judging` is how many samples are judged at this moment; whoever judges one counts it.

    Several workers on one queue see the same depth; each takes the share of it that it holds of all leases.

    Pure: `now` is a monotonic clock in seconds.

    >>> JudgePace(8).factor
    1.0
    """

    def __init__(
        self, places: int, *, target_s: float = TARGET_S, floor: float = FLOOR, memory_s: float = _MEMORY_S
    ) -> None:
        if not (places > 0 and target_s > 0.0 and 0.0 < floor <= 1.0):
            raise ValueError("places and target_s are positive and floor lies in (0, 1]")
        self.factor = 1.0
        self._places = places
        self._target_s = target_s
        self._floor = floor
        self._memory_s = memory_s
        self.judging = 0
        self._judged_s, self._judged = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._done, self._tried = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._arrived, self._watched_s = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._leased = 0
        self._last_depth: tuple[float, int] | None = None

    def leased(self, count: int) -> None:
        """Count samples leased from the queue."""
        self._leased += count

    def finished(self, seconds: float, factor: float, *, judged: bool, now: float) -> None:
        """Count a sample; one that was judged held a place for `seconds` while the factor was `factor`."""
        if judged:
            self._judged_s.add(seconds, now)
            self._judged.add(1.0, now)
        self._tried.add(factor, now)
        self._done.add(1.0, now)

    def room(self, in_work: int, places: int, now: float) -> int:
        """How many more samples a worker may take that has `in_work` and judges `places` at a time.

        Whether a sample will be judged is known once it has its scores without a judge. So as many are let in as will
        fill the places at the share that was judged lately, and at most MOST_UNJUDGED that are not judged yet.
        """
        unjudged = in_work - self.judging
        share = (self._judged.total(now) + 1.0) / (self._done.total(now) + 1.0)
        return max(0, min(max(places, MOST_UNJUDGED), int((places - self.judging) / share)) - unjudged)

    def observe_queue(self, *, ready: int, leased: int, held: int, now: float) -> float:
        """Update the factor from the queue's depth, of which this worker holds `held` leases; return it."""
        share = min(1.0, max(held, 1) / max(leased, held, 1))
        if self._last_depth is not None and now > self._last_depth[0]:
            before_s, before = self._last_depth
            # The same share for both depths: a worker that starts or stops must not look like arrivals.
            self._arrived.add(max(0.0, self._leased + share * (ready - before)), now)
            self._watched_s.add(now - before_s, now)
            self._leased = 0
        self._last_depth = now, ready
        self.factor = self._next(ready * share, now)
        return self.factor

    def arrivals_per_s(self, now: float) -> float:
        """Return the samples a second that arrive at this worker."""
        watched = self._watched_s.total(now)
        return self._arrived.total(now) / watched if watched > 0.0 else 0.0

    def _next(self, waiting: float, now: float) -> float:
        if math.isinf(self._target_s):
            return 1.0
        judged_s, tried = self._judged_s.total(now), self._tried.total(now)
        if min(judged_s, tried, (wanted := self.arrivals_per_s(now) + waiting / self._target_s)) <= _NOTHING:
            return self.factor if waiting > self._places else 1.0
        return min(1.0, max(self._floor, self._places / wanted * tried / judged_s))


_NOTHING = 1e-9
