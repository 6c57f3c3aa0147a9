"""Intervals for an estimated mean of scores in [0, 1], and the mean with its interval as charts show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Protocol

from msgspec import Struct

from monitors.statistics.clusters import groups_of
from monitors.statistics.weighted_mean import Estimate, hajek

ALPHA, TIGHTEST_AT = 0.05, 500.0
"""The error probability of the intervals, and the number of scores at which a sequence is tightest."""
_LOG_ALPHA = math.log(ALPHA)
_R2 = (-2.0 * _LOG_ALPHA + math.log(1.0 - 2.0 * _LOG_ALPHA)) / TIGHTEST_AT
MIN_N_EFF = 10
"""Minimum effective sample size of the confidence sequence; below it callers show "insufficient data"."""
_PSEUDO_SCORES = 2.0
"""Scores of 0, and as many of 1, that are added before the interval is built."""


def confidence_sequence(estimate: Estimate) -> tuple[float, float]:
    """Return the asymptotic confidence sequence: an interval that stays valid if it is looked at after every score.

    With t = n_eff (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, arXiv 2103.06476;
    docs/explanation/estimates.md#the-interval)::

        mean +- s sqrt( 2 (t r2 + 1) / (t^2 r2) * ln( sqrt(t r2 + 1) / ALPHA ) )
        r2 = ( -2 ln ALPHA + ln(-2 ln ALPHA + 1) ) / TIGHTEST_AT

    `ALPHA` is the two-sided probability that the true mean is ever outside. Mean, s and t are those of the scores with
    two pseudo-scores of 0 and two of 1 (Agresti & Coull, 1998, for one look): without them the sequence is ever wrong
    in 10 to 28 % of runs where nearly all scores are 1. With them, from 10 scores on and looked at after each, in at
    most 4 % on ten laws (`benchmarks/statistics/small_samples.py`). Clipped to [0, 1]; it always includes the estimate.

    >>> low, high = confidence_sequence(Estimate(mean=0.8, sd=0.3, n=400, n_eff=400.0))
    >>> round(low, 3), round(high, 3)
    (0.751, 0.843)
    >>> low, high = confidence_sequence(Estimate(mean=1.0, sd=0.0, n=20, n_eff=20.0))
    >>> round(low, 3), round(high, 3)
    (0.647, 1.0)
    """
    t, mean, variance = with_pseudo_scores(estimate)
    half = math.sqrt(variance) * _boundary(t)
    return max(0.0, min(estimate.mean, mean - half)), min(1.0, max(estimate.mean, mean + half))


def difference_sequence(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the confidence sequence of the mean of `b` less that of `a`, whose scores are independent.

    The difference is a Brownian motion in information, the inverse of its variance V, in whatever proportion scores of
    the two arrive (Jennison & Turnbull, 2000, section 3.1). So the sequence is that of one mean with the clock::

        t = 4 t_a t_b / (t_a + t_b)        s^2 = V t        V = s_a^2/t_a + s_b^2/t_b

    with t_a and t_b, means and variances of the scores with the pseudo-scores of `confidence_sequence`. Clipped to
    [-1, 1]; it always includes the estimate.

    >>> a = Estimate(mean=0.8, sd=0.3, n=400, n_eff=400.0)
    >>> low, high = difference_sequence(a, Estimate(mean=0.9, sd=0.2, n=400, n_eff=400.0))
    >>> round(low, 3), round(high, 3)
    (0.043, 0.155)
    """
    (t_a, mean_a, variance_a), (t_b, mean_b, variance_b) = (with_pseudo_scores(estimate) for estimate in (a, b))
    t = 4.0 * t_a * t_b / (t_a + t_b)
    middle, found = mean_b - mean_a, b.mean - a.mean
    half = math.sqrt((variance_a / t_a + variance_b / t_b) * t) * _boundary(t)
    return max(-1.0, min(found, middle - half)), min(1.0, max(found, middle + half))


def closed_window(estimate: Estimate) -> tuple[float, float]:
    """Return a two-sided interval for a window that is looked at once, at a time that the scores do not decide.

    With n = n_eff, the sd of `Estimate` and Student's t for its degrees of freedom::

        m = (n mean + 2)/(n + 4)        m +- t sqrt( n sd^2 + 2 m^2 + 2 (1 - m)^2 )/(n + 4)

    that is, of so many independent scores with two pseudo-scores of 0 and two of 1. How often it covers the mean:
    `benchmarks/statistics/coverage.py`, and `few_sessions.py` for scores that are alike. Looked at after every score it
    would miss the mean in over half of the cases.
    Reference: A. Agresti & B. A. Coull (1998), American Statistician 52, for coins.

    >>> low, high = closed_window(Estimate(mean=0.8, sd=0.3, n=400, n_eff=400.0))
    >>> round(low, 3), round(high, 3)
    (0.767, 0.827)
    >>> low, high = closed_window(Estimate(mean=1.0, sd=0.0, n=10, n_eff=10.0))
    >>> round(low, 3), round(high, 3)
    (0.659, 1.0)
    """
    n = _effective(estimate)
    degrees = max(1, math.floor(n - 1.0 if estimate.degrees is None else estimate.degrees))
    total = n + 2.0 * _PSEUDO_SCORES
    mean = (n * estimate.mean + _PSEUDO_SCORES) / total
    variance = n * estimate.sd**2 + _PSEUDO_SCORES * (mean**2 + (1.0 - mean) ** 2)
    half = student(ALPHA, degrees) * math.sqrt(variance) / total
    return max(0.0, min(estimate.mean, mean - half)), min(1.0, max(estimate.mean, mean + half))


def with_pseudo_scores(estimate: Estimate, each: float = _PSEUDO_SCORES) -> tuple[float, float, float]:
    """Return the effective number, mean and variance of the scores with `each` pseudo-scores of 0, and of 1."""
    n = _effective(estimate)
    t = n + 2.0 * each
    mean = (n * estimate.mean + each) / t
    squares = (n * (estimate.sd**2 + estimate.mean**2) + each) / t
    return t, mean, max(0.0, squares - mean**2)


def _boundary(t: float) -> float:
    """Return the half-width of the sequence for scores of variance 1."""
    return math.sqrt(2.0 * (t * _R2 + 1.0) / (t * t * _R2) * (0.5 * math.log(t * _R2 + 1.0) - _LOG_ALPHA))


def _effective(estimate: Estimate) -> float:
    if not estimate.n_eff > 0.0:
        raise ValueError("an interval needs at least one score")
    return estimate.n_eff


_EXACT_BELOW = 40


def student(alpha: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t: |T| exceeds it with probability `alpha`.

    Below 40 degrees of freedom by the finite sum for integer degrees (Abramowitz & Stegun 26.7.3 and 26.7.4) and
    bisection, from there on by the expansion 26.7.5.

    >>> round(student(0.05, 1), 4), round(student(0.05, 19), 4), round(student(0.05, 100), 4)
    (12.7062, 2.093, 1.984)
    """
    if not 0.0 < alpha < 1.0 or degrees < 1:
        raise ValueError(f"alpha lies in (0, 1) and there is a degree of freedom, got {alpha!r} and {degrees!r}")
    if degrees >= _EXACT_BELOW:
        return _expanded(NormalDist().inv_cdf(1.0 - alpha / 2.0), degrees)
    low, high = 0.0, math.pi / 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, degrees) < 1.0 - alpha else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(theta: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) tan theta)."""
    odd = degrees % 2
    square = math.cos(theta) ** 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for step in range(degrees // 2):
        total += term
        term *= square * ((2 * step + 2) / (2 * step + 3) if odd else (2 * step + 1) / (2 * step + 2))
    total *= math.sin(theta)
    return 2.0 / math.pi * (theta + total) if odd else total


def _expanded(z: float, degrees: int) -> float:
    g1 = (z**3 + z) / 4.0
    g2 = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    g3 = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + g1 / degrees + g2 / degrees**2 + g3 / degrees**3


class Level(Struct, frozen=True, kw_only=True):
    """A mean over `n` scores; `low` and `high` are its 95 % interval, None with too few scores."""

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    def overlaps(self, other: Level) -> bool | None:
        """Whether the intervals of two means overlap; None where one has no interval."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high


class ScoredPoint(Protocol):
    """A score with its inclusion probability and the names of its clusters."""

    @property
    def value(self) -> float | None: ...

    @property
    def rate(self) -> float: ...

    @property
    def cluster(self) -> str | None: ...


def mean_of(points: Sequence[ScoredPoint]) -> Estimate | None:
    """Return the mean of some scores over all traffic, with their clusters; None without scores."""
    if not points:
        return None
    groups = groups_of([point.cluster for point in points])
    return hajek([point.value or 0.0 for point in points], [point.rate for point in points], groups)


def level_of(
    found: Estimate | None, interval: Callable[[Estimate], tuple[float, float]] = closed_window
) -> Level | None:
    """Return a mean with its interval: `closed_window`, or `confidence_sequence` for what is looked at again and again.

    >>> level_of(Estimate(mean=0.8, sd=0.3, n=9, n_eff=9.0)), level_of(None)
    (Level(mean=0.8, n=9, low=None, high=None), None)
    """
    if found is None:
        return None
    low, high = interval(found) if found.n_eff >= MIN_N_EFF else (None, None)
    return Level(mean=min(1.0, max(0.0, found.mean)), n=found.n, low=low, high=high)
