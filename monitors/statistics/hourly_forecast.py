"""A forecast of the mean of a stream's next hour, with its variance: level, time of day, day of the week, and what the
last hours differed by.

The mean of hour t is modelled as::

    mu_t = level + hour_{t mod 24} + weekday_{d(t)} + u_t
    u_t  = phi u_{t-1} + e_t,    var(u_t) = tau^2

with normal priors: the 24 hours are a sum of four harmonics of the day of sd s/j and of differences of their own, so
that an hour says something of its neighbours; sd for the seven weekdays and tau. So a stream of two days has a
forecast, which says how little it knows of the hours and weekdays that it has not seen. It is a Kalman filter over
hours (Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter", 1989, chapter 2); tau and phi are
learned from the errors of the forecasts, and where these are larger than assumed, hours and weekdays are learned
faster. What it cannot describe, a batch job each week, is expected as it was once it has come back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from monitors.statistics.eprocess import Array

HARMONICS, WEEKDAYS, DAY_HOURS = 4, 7, 24
WEEK_HOURS = WEEKDAYS * DAY_HOURS
_TWO_WEEKS = 2 * WEEK_HOURS
_STATES = 1 + DAY_HOURS + WEEKDAYS + 1
_LEVEL, _EFFECT = 0, -1
_HOURS, _DAYS, _OF_WEEK = slice(1, 1 + DAY_HOURS), slice(1 + DAY_HOURS, -1), slice(1, -1)
_OWN_HOUR = 0.25
"""Of the first harmonic's standard deviation: that of what an hour has of its own."""
_APART = 2.0 * np.pi / DAY_HOURS * np.subtract.outer(np.arange(DAY_HOURS), np.arange(DAY_HOURS))
_OF_HOURS = sum(np.cos(j * _APART) / j**2 for j in range(1, HARMONICS + 1)) + _OWN_HOUR**2 * np.eye(DAY_HOURS)
_UPPER = np.triu_indices(_STATES)
_LEVEL_SD = 0.5
_LEVEL_DRIFT = 1.5e-4
"""A level drifts by so many standard deviations of a score from hour to hour: it is forgotten in about three weeks."""
_PERSISTENCE, _ASSUMED_HOURS, _HOURS_KEPT = 0.6, 8.0, 1_000.0
"""The phi assumed; how many hours of precise means what is assumed of tau and phi is worth; when hours have faded."""
_TOO_SURPRISING, _ADAPT = 1.5, 0.05
"""From which mean square of the last day's surprises on hours and weekdays are less certain, and how fast."""
_MOST_PERSISTENT = 0.95  # internal bound: a number of the formula
_LEAST_SHARE = 0.1
"""Of the tau^2 assumed, which always remains."""
_MOST_SURPRISING = 2.0  # internal bound: a number of the formula
"""Standard errors of an hour's forecast that count at most: the forecast does not follow a drop at once."""
_MOST_EFFECT = 3.0  # internal bound: a number of the formula
"""Multiples of tau by which the last hours move the forecast at most."""
_RISE_ALLOWANCE, _RISE_STEP, _UNDER_WAY, _RISE = 1.0, 0.5, 6.0, 36.0
"""Of the CUSUM of a rise: at most half a point an hour, so that it takes three days, longer than a weekend. From twelve
hours on nothing is learned of tau, phi and how much hours vary: a rise is no variation."""
_ODD = 3.0
"""Standard errors from which on an hour is odd."""
_QUIET_HOURS = 4
"""Hours of the last day that were not odd in the same way, without which it is the day that is odd and not the hour."""

_NONE = -1.0
_NUMBERS = ("_drift2", "_assumed", "_hour", "_last", "_noted", "_rise", "_risen", "_surprise2")


class Variation(NamedTuple):
    """What is assumed of a stream's means, in standard deviations of a score: `season` of the first harmonic of the
    day, `weekday`, and `hour`, that of u_t.
    """

    season: float
    weekday: float
    hour: float


class Forecast(NamedTuple):
    """The mean of an hour and the variance of that mean."""

    mean: float
    variance: float


class HourlyForecast:
    """Forecasts the hourly means of a stream from those before.

    A mean that stays above the forecast for three days, not counting hours in which it is near, moves the level by what
    it was above on its last day: an improvement is what the next drop is judged by. A mean that stays below does not.

    >>> forecast = HourlyForecast(Variation(0.2, 0.1, 0.05), mean=0.5, sd=0.3)
    >>> for hour in range(24 * 14):
    ...     forecast.update(hour, 0.6 if hour % 24 < 12 else 0.4, error2=1e-5)
    >>> night, day = forecast.at(24 * 14 + 18), forecast.at(24 * 14 + 6)
    >>> round(night.mean, 1), round(day.mean, 1)
    (0.4, 0.6)
    """

    def __init__(self, variation: Variation, *, mean: float, sd: float) -> None:
        season2, weekday2, self._assumed = (float((part * sd) ** 2) for part in variation)
        self._x, self._p = np.zeros(_STATES), np.zeros((_STATES, _STATES))
        self._p[_HOURS, _HOURS], self._p[_DAYS, _DAYS] = season2 * _OF_HOURS, weekday2 * np.eye(WEEKDAYS)
        self._p[_LEVEL, _LEVEL], self._p[_EFFECT, _EFFECT] = _LEVEL_SD**2, self._assumed
        self._x[_LEVEL] = mean
        self._drift2 = (_LEVEL_DRIFT * sd) ** 2
        # of the hours so far: weights and weighted sums of what estimates tau^2, and phi tau^2
        self._spread, self._product = np.zeros(2), np.zeros(2)
        self._surprise2 = 1.0  # the mean square of the last day's surprises
        self._hour, self._last = _NONE, 0.0
        self._rise = self._risen = 0.0  # the CUSUM, and by how much the means of its last day were above
        self._odd = np.zeros(_TWO_WEEKS)  # by how much the odd hours of two weeks differed from their forecast, else 0
        self._noted = _NONE

    @property
    def tau2(self) -> float:
        """The variance of the hours' own effects."""
        weight, total = self._spread
        learned = (_ASSUMED_HOURS * self._assumed + total) / (_ASSUMED_HOURS + weight)
        return max(_LEAST_SHARE * self._assumed, learned)

    @property
    def phi(self) -> float:
        """The correlation of successive hours' own effects."""
        weight, total = self._product
        covariance = (_ASSUMED_HOURS * _PERSISTENCE * self._assumed + total) / (_ASSUMED_HOURS + weight)
        return min(_MOST_PERSISTENT, max(0.0, covariance / self.tau2))

    def at(self, hour: int) -> Forecast:
        """Return the forecast for an hour of Unix time from all hours before; a habit only lowers it."""
        x, p = self._ahead(hour)
        row = _row(hour)
        most = _MOST_EFFECT * math.sqrt(self.tau2)
        x[_EFFECT] = max(-most, min(most, x[_EFFECT]))
        return Forecast(float(row @ x) + min(0.0, self._habit(hour)), float(row @ p @ row))

    def note(self, hour: int, mean: float, error2: float | None = None) -> None:
        """Keep by how much an hour differs from its forecast if it is odd, and learn nothing else from it.

        Odd is what differs by more than three standard errors, or is nearer to the hour's habit; without `error2`, any.
        """
        x, p = self._ahead(hour)
        row = _row(hour)
        error, habit = mean - float(row @ x), self._habit(hour)
        odd = error2 is None or error**2 > _ODD**2 * (float(row @ p @ row) + error2) or abs(error - habit) < abs(error)
        for skipped in range(max(int(self._noted), hour - _TWO_WEEKS) + 1, hour):
            self._odd[skipped % _TWO_WEEKS] = 0.0
        self._odd[hour % _TWO_WEEKS] = error if odd else 0.0
        self._noted = hour

    def _habit(self, hour: int) -> float:
        """Return the smaller difference of an hour that was odd in the same way on the last two days, or of two weeks.

        If the day between was odd in the same way, too, that is a shift and no habit of the hour.
        """
        found = 0.0
        for step in (WEEK_HOURS, DAY_HOURS):
            last, before = (float(self._odd[(hour - times * step) % _TWO_WEEKS]) for times in (1, 2))
            if last * before <= 0.0 or self._noted < hour - step:
                continue
            day = self._odd[(hour - step - np.arange(1, DAY_HOURS)) % _TWO_WEEKS] / last
            if step == WEEK_HOURS or np.count_nonzero(day < 1.0 / _ODD) >= _QUIET_HOURS:
                found = min(last, before, key=abs)
        return found

    def update(self, hour: int, mean: float, error2: float, *, improves: bool = True) -> None:
        """Take in the mean of an hour with its squared standard error; `improves`: a rise may move the level."""
        habit = self._habit(hour)
        self.note(hour, mean, error2)
        self._x, self._p = self._ahead(hour)
        row = _row(hour)
        gain = self._p @ row
        variance = float(row @ gain) + error2
        if abs((error := mean - float(row @ self._x)) - habit) < abs(error):
            mean, error = mean - habit, error - habit
        surprise = error / math.sqrt(variance)
        self._surprise2 += (min(surprise**2, 9.0) - self._surprise2) / DAY_HOURS
        weight = (self.tau2 / variance) ** 2 if self._rise < _UNDER_WAY else 0.0
        if weight:
            square = self.tau2 - variance + min(error * error, 9.0 * variance)
            self._spread = (1.0 - 1.0 / _HOURS_KEPT) * self._spread + (weight, weight * square)
        counted = max(-_MOST_SURPRISING, min(_MOST_SURPRISING, surprise)) * math.sqrt(variance)
        self._x = self._x + gain / variance * counted
        self._p = self._p - np.outer(gain, gain) / variance
        self._p[_OF_WEEK, _OF_WEEK] *= 1.0 + _ADAPT * (weight > 0.0) * max(0.0, self._surprise2 - _TOO_SURPRISING)
        self._learn_persistence(hour, mean - float(row[:_EFFECT] @ self._x[:_EFFECT]), weight, 4.0 * variance)
        self._hour = hour
        if improves:
            self._follow_rise(error, surprise)

    def _follow_rise(self, error: float, surprise: float) -> None:
        self._rise = max(0.0, self._rise + min(_RISE_STEP, surprise - _RISE_ALLOWANCE))
        self._risen = self._risen + (error - self._risen) / DAY_HOURS if self._rise else 0.0
        if self._rise > _RISE:
            self._x[_LEVEL] += self._risen
            self._rise = self._risen = 0.0

    def _ahead(self, hour: int) -> tuple[Array, Array]:
        """Return the state's mean and covariance at a later hour."""
        steps = 0.0 if self._hour == _NONE else max(0.0, hour - self._hour)
        kept = self.phi**steps
        fading = np.ones(_STATES)
        fading[_EFFECT] = kept
        p = self._p * np.outer(fading, fading)
        p[_EFFECT, _EFFECT] += self.tau2 * (1.0 - kept * kept)
        p[_LEVEL, _LEVEL] += self._drift2 * steps
        return self._x * fading, p

    def _learn_persistence(self, hour: int, effect: float, weight: float, most: float) -> None:
        if self._hour == hour - 1:
            product = max(-most, min(most, effect * self._last))
            self._product = (1.0 - 1.0 / _HOURS_KEPT) * self._product + (weight, weight * product)
        self._last = effect

    @property
    def state(self) -> tuple[float, ...]:
        """All that was learned, to be saved: about 940 numbers."""
        tables = self._spread, self._product, self._odd, self._x, self._p[_UPPER]
        return (*(getattr(self, name) for name in _NUMBERS), *np.concatenate(tables).tolist())

    @classmethod
    def restored(cls, state: Sequence[float]) -> HourlyForecast:
        """Restore a saved state. Raises ValueError for another number of numbers."""
        restored = cls(Variation(0.0, 0.0, 0.0), mean=0.0, sd=0.0)
        for name, number in zip(_NUMBERS, state, strict=False):
            setattr(restored, name, number)
        tables = np.split(np.array(state[len(_NUMBERS) :]), np.cumsum((2, 2, _TWO_WEEKS, _STATES)))
        restored._spread, restored._product, restored._odd, restored._x, known = tables
        upper = np.zeros((_STATES, _STATES))
        upper[_UPPER] = known
        restored._p = upper + np.triu(upper, 1).T
        return restored


def _row(hour: int) -> Array:
    """Return what of the state an hour of Unix time is the sum of."""
    row = np.zeros(_STATES)
    row[[_LEVEL, 1 + hour % DAY_HOURS, 1 + DAY_HOURS + hour // DAY_HOURS % WEEKDAYS, _EFFECT]] = 1.0
    return row
