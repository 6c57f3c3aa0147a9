"""The mean score of exchanges with a source against that of exchanges without it, matched by stratum."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from monitors.statistics.attribution import Retrievals

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedMeans:
    """Means by source [size]; NaN where no exchange with the source has one without it in its stratum.

    `n` exchanges with the source could be matched. `with_source` is their mean, `without` that of the others, with
    each stratum weighted as among those with the source. `se` is the standard error of the difference.
    """

    n: NDArray[np.intp]
    with_source: Array
    without: Array
    se: Array

    def interval(self, alpha: float = 0.05) -> tuple[Array, Array]:
        """Return the normal interval of `with_source` - `without`, of level 1 - `alpha`, by source."""
        half = NormalDist().inv_cdf(1.0 - alpha / 2.0) * self.se
        return self.with_source - self.without - half, self.with_source - self.without + half


def matched_means(some: Retrievals) -> MatchedMeans:
    """Compare each source's exchanges with the others of the same strata; all are weighted by 1/rate.

    With weights w = 1/rate, W_h their sum over the source's exchanges in stratum h, over the strata that have others::

        with    = sum_h W_h m_h(with) / sum_h W_h          without = sum_h W_h m_h(without) / sum_h W_h
        se^2    = sum_h q_h^2 (s^2 / t_h + s'_h^2 / t'_h),  q_h = W_h / sum W,  t = (sum w)^2 / sum w^2

    s^2 is the variance of all the source's exchanges about the means of their strata, shrunk towards 1/4 by one score;
    so is that of the others. This is direct standardisation (Kitagawa 1955, JASA 50).

    >>> found = matched_means(
    ...     Retrievals(
    ...         scores=np.array([0.2, 0.4, 0.8, 1.0, 0.5]), rates=np.ones(5), strata=np.array([0, 0, 0, 0, 1]),
    ...         rows=np.array([0, 1, 4]), columns=np.zeros(3, int), size=1,
    ...     )
    ... )
    >>> found.n.tolist(), found.with_source.round(3).tolist(), found.without.round(3).tolist()
    ([2], [0.3], [0.9])
    """
    groups = int(some.strata.max(initial=0)) + 1
    weights = some.rates.min(initial=1.0) / some.rates
    totals = [np.bincount(some.strata, weights=one, minlength=groups) for one in _moments(weights, some.scores)]
    keys, cell = np.unique(some.columns * groups + some.strata[some.rows], return_inverse=True)
    inside = [np.bincount(cell, weights=one[some.rows]) for one in _moments(weights, some.scores)]
    source, stratum = keys // groups, keys % groups
    outside = [total[stratum] - part for total, part in zip(totals, inside, strict=True)]
    counts = np.bincount(cell, minlength=len(keys))
    matched = np.bincount(some.strata, minlength=groups)[stratum] > counts

    def added(values: Array) -> Array:
        return np.bincount(source[matched], weights=values[matched], minlength=some.size)

    with np.errstate(divide="ignore", invalid="ignore"):
        mean_in, mean_out = inside[1] / inside[0], outside[1] / outside[0]
        weight = added(inside[0])
        quota = inside[0] / weight[source]
        n = added(counts.astype(np.float64))
        spread = (0.25 + added(counts * _variance(inside))) / (n + 1.0)
        others = np.bincount(some.strata, minlength=groups)[stratum] - counts
        spread_out = (0.25 + others * _variance(outside)) / (others + 1.0)
        of_source = spread * added(inside[3]) / weight**2
        of_others = added(quota**2 * spread_out * outside[3] / outside[0] ** 2)
        return MatchedMeans(
            n=n.astype(np.intp),
            with_source=added(inside[1]) / weight,
            without=added(quota * mean_out),
            se=np.where(n > 0, np.sqrt(of_source + of_others), np.nan),
        )


def _moments(weights: Array, scores: Array) -> tuple[Array, Array, Array, Array]:
    return weights, weights * scores, weights * scores**2, weights**2


def _variance(moments: list[Array]) -> Array:
    total, first, second, _ = moments
    return np.maximum(0.0, second / total - (first / total) ** 2)
