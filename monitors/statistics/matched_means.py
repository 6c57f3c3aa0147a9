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

    def interval_of(self, source: int) -> tuple[float, float]:
        """Return the normal interval of `with_source` - `without` of one source, of level 95 %."""
        half = NormalDist().inv_cdf(0.975) * float(self.se[source])
        difference = float(self.with_source[source] - self.without[source])
        return difference - half, difference + half


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
    weights: Array = some.rates.min(initial=1.0) / some.rates
    keys, cell = np.unique(some.columns * groups + some.strata[some.rows], return_inverse=True)
    source, stratum = keys // groups, keys % groups
    moments = _moments(weights, some.scores)
    inside = [_sums(cell, moment[some.rows], len(keys)) for moment in moments]
    outside = [_sums(some.strata, moment, groups)[stratum] - part for moment, part in zip(moments, inside, strict=True)]
    counts = _sums(cell, np.ones(len(cell)), len(keys))
    others: Array = _sums(some.strata, np.ones(len(some.scores)), groups)[stratum] - counts
    matched = others > 0.0

    def added(values: Array) -> Array:
        return _sums(source[matched], values[matched], some.size)

    with np.errstate(divide="ignore", invalid="ignore"):
        weight, n = added(inside[0]), added(counts)
        quota: Array = inside[0] / weight[source]
        spread: Array = (0.25 + added(counts * _variance(inside))) / (n + 1.0)
        spread_of_others: Array = (0.25 + others * _variance(outside)) / (others + 1.0)
        of_source: Array = spread * added(inside[3]) / weight**2
        of_others = added(quota**2 * spread_of_others * outside[3] / outside[0] ** 2)
        return MatchedMeans(
            n=n.astype(np.intp),
            with_source=added(inside[1]) / weight,
            without=added(quota * outside[1] / outside[0]),
            se=np.where(n > 0.0, np.sqrt(of_source + of_others), np.nan),
        )


def _sums(places: NDArray[np.intp], values: Array, size: int) -> Array:
    return np.bincount(places, weights=values, minlength=size).astype(np.float64)


def _moments(weights: Array, scores: Array) -> tuple[Array, Array, Array, Array]:
    return weights, weights * scores, weights * scores**2, weights**2


def _variance(moments: list[Array]) -> Array:
    total, first, second, _ = moments
    found: Array = np.maximum(0.0, second / total - (first / total) ** 2)
    return found
