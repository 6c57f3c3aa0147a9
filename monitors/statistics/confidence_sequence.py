"""Intervals for an estimated mean of scores in [0, 1]."""

from __future__ import annotations

import math
from statistics import NormalDist

from monitors.statistics.weighted_mean import Estimate

MIN_N_EFF = 100
"""Minimum effective sample size of the asymptotic confidence sequence; below it callers show "insufficient data"."""


def confidence_sequence(estimate: Estimate, *, alpha: float = 0.05, tightest_at: float = 500.0) -> tuple[float, float]:
    """Return the asymptotic confidence sequence: an interval that stays valid if it is looked at after every score.

    With t = n_eff (STATISTICS 1.2; Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, arXiv 2103.06476)::

        mean +- s sqrt( 2 (t r2 + 1) / (t^2 r2) * ln( sqrt(t r2 + 1) / alpha ) )
        r2 = ( -2 ln alpha + ln(-2 ln alpha + 1) ) / tightest_at

    `alpha` is the two-sided probability that the true mean is ever outside. s^2 = (1/4 + t sd^2)/(t + 1), as in the
    empirical Bernstein sequence of arXiv 2010.09686, so that equal scores do not give width zero. Clipped to [0, 1].

    >>> low, high = confidence_sequence(Estimate(mean=0.8, sd=0.3, n=400, n_eff=400.0))
    >>> round(low, 3), round(high, 3)
    (0.754, 0.846)
    """
    t = _effective(estimate, alpha)
    log_alpha = math.log(alpha)
    r2 = (-2.0 * log_alpha + math.log(1.0 - 2.0 * log_alpha)) / tightest_at
    half = math.sqrt(2.0 * (t * r2 + 1.0) / (t * t * r2) * (0.5 * math.log(t * r2 + 1.0) - log_alpha))
    return _around(estimate, half)


def closed_window(estimate: Estimate, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the ordinary normal interval, for a closed window that is looked at once (STATISTICS 1.2).

    mean +- z s/sqrt(t) with s and t as in `confidence_sequence`. Looked at after every score it would miss the mean in
    over half of the cases.

    >>> low, high = closed_window(Estimate(mean=0.8, sd=0.3, n=400, n_eff=400.0))
    >>> round(low, 3), round(high, 3)
    (0.771, 0.829)
    """
    t = _effective(estimate, alpha)
    return _around(estimate, NormalDist().inv_cdf(1.0 - alpha / 2.0) / math.sqrt(t))


def _effective(estimate: Estimate, alpha: float) -> float:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
    if not estimate.n_eff > 0.0:
        raise ValueError("an interval needs at least one score")
    return estimate.n_eff


def _around(estimate: Estimate, half: float) -> tuple[float, float]:
    """Return the interval of `half` standard deviations, with the variance shrunk towards 1/4 by one score."""
    t = estimate.n_eff
    half *= math.sqrt((0.25 + t * estimate.sd**2) / (t + 1.0))
    return max(0.0, estimate.mean - half), min(1.0, estimate.mean + half)
