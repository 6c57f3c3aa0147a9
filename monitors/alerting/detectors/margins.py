"""The margin below a learned baseline: how far the hourly means of the last week fell below their average."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from monitors.statistics.betting_bounds import packed, unpacked
from monitors.statistics.eprocess import Array

NARROWEST, WIDEST = 0.02, 0.05
"""The margin without any variation, and with much of it, or before there are enough hours."""
HOURS_KEPT, HOURS_NEEDED = 168, 24
LAG_HOURS = 6
"""The latest hours do not count: a drop must not widen the margin that it is judged by."""
LEAST_SCORES = 30
"""Independent scores an hour needs to count."""
_SPREAD, _SIGMAS = 2.0, 2.5
_HOUR_S = 3600.0
_SUMS = 4


class HourlyMargin:
    """The margin of a stream, from the means m of its hours and their standard errors s.

    The true means vary by tau^2 = var(m) - mean(s^2), and the lowest is max(mean(m) - m - 2.5 s) below the average.
    The margin is the larger of 2 tau and that, within [.02, .05]; .05 until 24 hours with 30 scores are 6 hours old.
    It is fixed before the scores it is applied to are seen.

    >>> margin = HourlyMargin()
    >>> scores, weights = np.tile([0.8, 1.0], 50), np.ones(100)
    >>> for hour in range(40):
    ...     margin.update(3600.0 * hour, scores, weights)
    >>> margin.value
    0.02
    >>> for hour in range(40, 90):
    ...     margin.update(3600.0 * hour, scores - (0.1 if hour % 24 < 8 else 0.0), weights)
    >>> margin.value
    0.05
    """

    def __init__(self) -> None:
        self._hour: int | None = None
        self._sums = np.zeros(_SUMS)  # of w, w^2, w x, w x^2; the squared weights serve the standard error
        self._past: list[tuple[float, float, float]] = []  # hour, mean, squared standard error
        self._value = WIDEST

    @property
    def value(self) -> float:
        """The margin for the scores that come next."""
        return self._value

    def update(self, start: float, scores: Array, weights: Array) -> None:
        """Take in the scores of a bucket that began at Unix time `start`."""
        if not scores.size:
            return
        hour = math.floor(start / _HOUR_S)
        if self._hour is not None and hour > self._hour:
            self._close(hour)
        self._hour = hour if self._hour is None else max(hour, self._hour)
        self._sums += (weights.sum(), (weights**2).sum(), weights @ scores, weights @ scores**2)

    def _close(self, now: int) -> None:
        w, w2, wx, wxx = self._sums
        self._sums = np.zeros(_SUMS)
        if w2 > 0.0 and w * w / w2 >= LEAST_SCORES:
            mean = wx / w
            variance = max(wxx / w - mean * mean, 0.25 / (w * w / w2))
            self._past.append((float(self._hour or 0), float(mean), float(variance * w2 / (w * w))))
            del self._past[:-HOURS_KEPT]
        self._value = margin_of((mean, error2) for hour, mean, error2 in self._past if hour <= now - LAG_HOURS)

    def dumps(self) -> str:
        """Return the state, under 6 kB."""
        hour = math.nan if self._hour is None else float(self._hour)
        past = [value for reading in self._past for value in reading]
        return packed(np.array([hour, self._value, *self._sums, *past]))

    def loads(self, state: str) -> None:
        """Restore a state. Raises ValueError."""
        hour, value, *rest = unpacked(state, (-1,)).tolist()
        self._hour = None if math.isnan(hour) else int(hour)
        self._sums, self._value = np.array(rest[:_SUMS]), value
        past = iter(rest[_SUMS:])
        self._past = list(zip(past, past, past, strict=True))


def margin_of(hours: Iterable[tuple[float, float]]) -> float:
    """Return the margin from the means of hours and their squared standard errors.

    >>> margin_of([(0.9, 1e-4)] * 23), margin_of([(0.9, 1e-4)] * 24)
    (0.05, 0.02)
    """
    known = np.array(list(hours), dtype=np.float64).reshape(-1, 2)
    if len(known) < HOURS_NEEDED:
        return WIDEST
    means, errors2 = known.T
    between = math.sqrt(max(0.0, float(means.var(ddof=1) - errors2.mean())))
    lowest = float((means.mean() - means - _SIGMAS * np.sqrt(errors2)).max())
    return min(WIDEST, max(NARROWEST, _SPREAD * between, lowest))
