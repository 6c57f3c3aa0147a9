"""Fixed-sample intervals for a mean in [0, 1], accurate for small samples and near 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from monitors.statistics.confidence_sequence import ALPHA, student


def bounded_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return a two-sided interval for the mean of values in [0, 1].

    Wilson's interval with the observed dispersion: the bounds are the m that solve

        (x - m)^2 = t^2 r m (1 - m) / n,     r = (1 + sum (x_i - x)^2 / (x (1 - x))) / (n + 1)

    where x is the mean and t Student's quantile. r is the share of a coin's variance that the values have: 1 for zeros
    and ones, which gives Wilson's interval, less for what lies between; one more value of a coin keeps equal values
    from an interval without width. Simulated for n of 5 to 400, for smooth scores, for scores with spikes at 0 and 1,
    and for coins: it covers 93 % or more, where Student's interval falls to 88 % and less near the ends. Where nearly
    all scores lie in one place and few far below it covers less: 78 % at n = 15 (.95, or .1 in one of ten). For means
    of scores there is `closed_window`; this is for paired differences.
    Reference: E. B. Wilson (1927), JASA 22, 209-212.

    Raises ValueError without values, or for one outside [0, 1].

    >>> [round(bound, 3) for bound in bounded_mean([1.0] * 18 + [0.0] * 2)]
    [0.682, 0.974]
    >>> [round(bound, 3) for bound in bounded_mean([0.8, 0.9, 0.85, 0.9] * 5)]
    [0.818, 0.898]
    """
    x = np.asarray(values, dtype=np.float64)
    if not x.size or not (np.isfinite(x).all() and x.min() >= 0.0 and x.max() <= 1.0):
        raise ValueError("an interval needs at least one value, all of them in [0, 1]")
    n, mean = x.size, float(x.mean())
    coin = mean * (1.0 - mean)
    dispersion = min(1.0, float(x.var()) / coin) if coin > 0.0 else 1.0
    k = student(ALPHA, n - 1) ** 2 * (1.0 + n * dispersion) / (n + 1) / n if n > 1 else math.inf
    if math.isinf(k):
        return 0.0, 1.0
    centre, half = (mean + k / 2.0) / (1.0 + k), math.sqrt(k * coin + k * k / 4.0) / (1.0 + k)
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def bounded_difference(differences: Sequence[float]) -> tuple[float, float]:
    """Return a two-sided interval for the mean of paired differences in [-1, 1]: `bounded_mean` of (d + 1)/2.

    >>> [round(bound, 3) for bound in bounded_difference([0.1, 0.0, 0.2, 0.1] * 10)]
    [0.045, 0.154]
    """
    low, high = bounded_mean([(difference + 1.0) / 2.0 for difference in differences])
    return 2.0 * low - 1.0, 2.0 * high - 1.0
