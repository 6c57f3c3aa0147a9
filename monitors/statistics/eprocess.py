"""The parts of an e-detector in the log domain: payoffs, bets, and the Shiryaev-Roberts and CUSUM recursions.

Reference: Shin, Ramdas & Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
arXiv 2203.03532; betting factors as in Waudby-Smith & Ramdas, arXiv 2010.09686. Formulas:
docs/explanation/alerts.md#how-it-decides.
All functions work on the last axis (the K bets), so that a simulation can run many streams at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

FIRST_BET, LAST_BET, BETS = 0.02, 0.8, 8
EMPTY = float("-inf")
"""The log of a statistic before the first score."""


def bets() -> Array:
    """Return the fractions g_k, a geometric grid that covers drops of every size.

    >>> bets().round(3).tolist()
    [0.02, 0.034, 0.057, 0.097, 0.165, 0.279, 0.472, 0.8]
    """
    return np.geomspace(FIRST_BET, LAST_BET, BETS)


def checked(scores: Sequence[float], weights: Sequence[float]) -> tuple[Array, Array]:
    """Return `scores` and `weights` as arrays. Raises ValueError for a score outside [0, 1] or a weight outside (0, 1].

    >>> checked([0.5, float("nan")], [1.0, 1.0])
    Traceback (most recent call last):
        ...
    ValueError: scores lie in [0, 1] and weights in (0, 1]
    """
    x = np.array(scores, dtype=np.float64)
    w = np.array(weights, dtype=np.float64)
    if x.shape != w.shape:
        raise ValueError(f"{len(scores)} scores with {len(weights)} weights")
    # NaN is rejected too: every comparison with it is false
    if x.size and not (x.min() >= 0.0 and x.max() <= 1.0 and w.min() > 0.0 and w.max() <= 1.0):
        raise ValueError("scores lie in [0, 1] and weights in (0, 1]")
    return x, w


def drop_payoffs(scores: Array, weights: Array, m0: float, expected: Array | None = None) -> Array:
    """Return the payoffs of a bet on "below m0", w (m0 - x)/(1 - m0) >= -1; their mean is <= 0 if the mean is >= m0.

    `expected` are the means of the scores given those of the same cluster before, if the mean of all is m0
    (`expected_means`): then w (m - x)/(1 - min(m, m0)), which is >= -1 too, and never a larger bet than without.
    """
    if expected is None:
        return weights * (m0 - scores) / (1.0 - m0)
    return weights * (expected - scores) / (1.0 - np.minimum(expected, m0))


def expected_means(m0: float, earlier: Sequence[float], shrinkage: Sequence[float]) -> Array | None:
    """Return the predictions m0 + c (e - m0) of scores whose clusters had the means e before; None without any c > 0.

    >>> expected_means(0.8, [0.4, 0.0], [0.5, 0.0]).round(12).tolist()
    [0.6, 0.8]
    """
    if not any(shrinkage):
        return None
    predicted: Array = m0 + np.array(shrinkage, dtype=np.float64) * (np.array(earlier, dtype=np.float64) - m0)
    return predicted


def log_factors(payoffs: Array, fractions: Array) -> Array:
    """Return the logs of e_k = 1 + g_k payoff, on a new last axis over the bets; E[e_k | past] <= 1 under H0.

    >>> x = np.array([0.0, 1.0])
    >>> np.exp(log_factors(drop_payoffs(x, np.ones(2), 0.8), np.array([0.5]))).round(12).tolist()
    [[3.0], [0.5]]
    """
    return np.log1p(payoffs[..., None] * fractions)


def log_evidence(payoffs: Array) -> Array:
    """Return the ln of an e-value of "the mean of the payoffs, all >= -1, is not above 0", valid at any time.

    The mean over bets g of prod(1 + g payoff) has a mean <= 1 while E[payoff | past] <= 0. Payoffs on the first axis.
    """
    return log_mean(log_factors(payoffs, bets()).sum(axis=0))


def shiryaev_roberts(log_m: Array, increments: Array, log_start: float) -> Array:
    """Update M_k <- e_k (M_k + w), w the start weight: E[alarms at M >= 1] <= the sum of the start weights under H0.

    >>> float(np.exp(shiryaev_roberts(np.array([EMPTY]), np.log([2.0]), np.log(0.25)))[0])
    0.5
    """
    grown: Array = np.logaddexp(log_m, log_start)
    return increments + grown


def cusum(log_c: Array, increments: Array) -> Array:
    """Update C_k <- e_k max(C_k, 1).

    >>> np.exp(cusum(np.log([0.1, 3.0]), np.log([2.0, 2.0]))).round(12).tolist()
    [2.0, 6.0]
    """
    return increments + np.maximum(log_c, 0.0)


def log_mean(log_m: Array) -> Array:
    """Return the log of the mixture mean_k M_k over the last axis; `EMPTY` if every M_k is.

    >>> round(float(np.exp(log_mean(np.log([1.0, 3.0])))), 12)
    2.0
    """
    total: Array = np.logaddexp.reduce(log_m, axis=-1)
    return total - float(np.log(log_m.shape[-1]))
