"""Back-pressure from a slow judge: lowers the rates of judged metrics so that the queue's age stays bounded."""

from __future__ import annotations

import math

from monitors.statistics.decay import ExponentialDecay

TARGET_S = 60.0
FLOOR = 0.02
_MEMORY_S = 30.0


class JudgePace:
    """Computes the factor for the rates of judged metrics with which the queue's age stays near `target_s`.

    A worker has `places`; a sample holds one for `b + factor * j` seconds, where b is the time without a judge and j
    what judging adds at factor 1. Both are measured on the latest samples (`memory_s`), so a change of the judge's
    speed or capacity shows, whatever its cause. The wanted throughput is the arrival rate, plus what waits divided by
    `target_s`; the factor is the largest that allows it::

        factor = (places / wanted - b) / j          within [floor, 1]

    The backlog then shrinks by 1/e in `target_s`; a relative error e of the measurements leaves an age of
    e * `target_s`. The age does not oscillate, since the factor acts where the queue is emptied and only the averages
    lag. It depends on the past alone and is recorded with each evaluation, so weighting by 1/rate stays unbiased. With
    an infinite `target_s` everything is judged, however late.

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
        self._judged_s, self._plain_s = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._done, self._tried = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._arrived, self._watched_s = ExponentialDecay(memory_s), ExponentialDecay(memory_s)
        self._leased = 0
        self._last_depth: tuple[float, int] | None = None

    def leased(self, count: int) -> None:
        """Count samples leased from the queue."""
        self._leased += count

    def finished(self, seconds: float, factor: float, *, judged: bool, now: float) -> None:
        """Count a sample that held a place for `seconds` while the factor was `factor`."""
        (self._judged_s if judged else self._plain_s).add(seconds, now)
        self._tried.add(factor, now)
        self._done.add(1.0, now)

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
        judged_s, tried, done = (one.total(now) for one in (self._judged_s, self._tried, self._done))
        wanted = self.arrivals_per_s(now) + waiting / self._target_s
        if min(judged_s, tried, wanted) <= _NOTHING:
            return self.factor if waiting > self._places else 1.0
        room_s = self._places / wanted - self._plain_s.total(now) / done
        return min(1.0, max(self._floor, room_s * tried / judged_s))


_NOTHING = 1e-9
