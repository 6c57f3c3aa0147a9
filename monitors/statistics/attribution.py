"""Which of many sources lower the scores of the exchanges that got them, at a controlled false-discovery rate.

Exchanges are compared within strata (topic, model, sampling rate, period). The null hypothesis of a source: within a
stratum, which exchanges got it has nothing to do with their scores. Then the exchanges that got it are a draw without
replacement from their stratum, and with badness y = 1 - score, n_h of them in stratum h and the mean A_h(b) of
exp(b y) over *all* exchanges of h::

    e(b) = prod over exchanges with the source of exp(b y) / A_h(b)          E[e(b)] <= 1

because the mean of a convex function of a sum is at most that of drawing with replacement (Hoeffding 1963, theorem 4),
for which it is exactly the product of the A_h(b). The mean over a grid of bets b is an e-value too. e-BH over all
sources keeps the expected share of wrongly named ones at or below alpha, however the sources depend on each other
(Wang & Ramdas 2022): sources retrieved together always do.

Exchanges of one cluster (a session, equal questions) count once for a source, and in A_h together as one.

A source that is retrieved beside a bad one has low scores as well. So each named one must stay convincing within the
exchanges that got none of the others, and within those that did. The smaller of two e-values is one too, as far as
it is at most the first: this only removes names.

References: W. Hoeffding (1963), Probability inequalities for sums of bounded random variables, JASA 58; R. Wang & A.
Ramdas (2022), False discovery rate control with e-values, J. R. Stat. Soc. B 84 (arXiv 2009.02824).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from monitors.statistics.multiple_testing import affected

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]

ALPHA = 0.05
"""The expected share of wrongly named sources among those named."""
BETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MAX_NAMED = 20
"""Sources that are compared with one another; of more, the strongest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrievals:
    """n exchanges with their scores, and the m pairs of an exchange and a distinct source that it got.

    `scores` [n] lie in [0, 1], 1 is best; `rates` [n] are inclusion probabilities in (0, 1]; `strata` [n] number the
    groups within which exchanges are compared, from 0; exchanges of different rates are never compared. Pair k says
    that exchange `rows[k]` got source `columns[k]`, of `size` sources. Exchanges with the same number in
    `clusters` [n] (one session, equal questions) count once for each source: their scores are alike for other reasons.
    """

    scores: Array
    rates: Array
    strata: Index
    rows: Index
    columns: Index
    size: int
    clusters: Index | None = field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """A source that lowers scores; `log_e` is the natural logarithm of its e-value."""

    source: int
    log_e: float


def log_e_values(some: Retrievals) -> Array:
    """Return the logarithm of each source's e-value against "its exchanges score as the others of their stratum".

    >>> x = np.array([0.1] * 10 + [0.9] * 90)
    >>> rows = np.arange(100)
    >>> found = log_e_values(
    ...     Retrievals(
    ...         scores=x, rates=np.ones(100), strata=np.zeros(100, int), rows=rows, columns=rows // 10, size=10
    ...     )
    ... )
    >>> bool(found[0] > 10.0), bool(found[1:].max() < 0.0)
    (True, True)
    """
    tested = _tested(some)
    return tested.log_e(tested.strata)


def blamed(some: Retrievals, alpha: float = ALPHA) -> tuple[Blamed, ...]:
    """Return the sources that lower scores, the strongest first, with a false-discovery rate of at most `alpha`.

    Of two that are always retrieved together, only one is named. Raises ValueError for an alpha outside (0, 1).
    """
    if not some.size or not some.scores.size:
        return ()
    tested = _tested(some)
    evidence = tested.log_e(tested.strata)
    candidates = _e_bh(evidence, alpha)[:MAX_NAMED]
    named: list[int] = []
    for source in candidates:
        evidence[source] = min(evidence[source], tested.given(source, named))
        if source in _e_bh(evidence, alpha):
            named.append(source)
    for source in reversed(list(named)):
        evidence[source] = min(evidence[source], tested.given(source, [one for one in named if one != source]))
        if source not in _e_bh(evidence, alpha):
            named.remove(source)
    named = [source for source in _e_bh(evidence, alpha) if source in named]
    return tuple(Blamed(source=source, log_e=float(evidence[source])) for source in named)


def _e_bh(evidence: Array, alpha: float) -> list[int]:
    return [int(name) for name in affected({str(at): float(one) for at, one in enumerate(evidence)}, alpha)]


def _tested(some: Retrievals) -> _Tested:
    """Return what is tested: strata of one rate each, and each source once in a cluster."""
    rates = np.unique(some.rates, return_inverse=True)[1]
    rows, columns = some.rows, some.columns
    shares = np.ones(len(some.scores))
    if some.clusters is not None:
        shares = 1.0 / np.bincount(some.clusters)[some.clusters]
        once = np.unique(some.clusters[rows] * some.size + columns, return_index=True)[1]
        rows, columns = rows[once], columns[once]
    return _Tested(
        badness=1.0 - some.scores,
        bets=some.rates.min() / some.rates,
        shares=shares,
        strata=_dense(some.strata * (int(rates.max()) + 1) + rates),
        pairs=(rows, columns),
        everything=(some.rows, some.columns),
        size=some.size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """The arrays of a test.

    `bets` are smaller where an exchange stands for fewer others, `shares` add up to 1 over a cluster, `pairs` are
    tested, and `everything` says who got what.
    """

    badness: Array
    bets: Array
    shares: Array
    strata: Index
    pairs: tuple[Index, Index]
    everything: tuple[Index, Index]
    size: int

    def log_e(self, strata: Index) -> Array:
        """Return the log e-values of all sources within these strata."""
        exponents = np.outer(BETS, self.bets * self.badness)  # bets x exchanges
        total = np.bincount(strata, weights=self.shares)
        rows, columns = self.pairs
        logs = np.empty((len(BETS), self.size))
        for bet, exponent in enumerate(exponents):
            mean = np.bincount(strata, weights=self.shares * np.exp(exponent)) / total
            gain = exponent - np.log(mean)[strata]
            logs[bet] = np.bincount(columns, weights=gain[rows], minlength=self.size)
        most = logs.max(axis=0)
        found: Array = most + np.log(np.exp(logs - most).mean(axis=0))
        return found

    def given(self, source: int, others: Sequence[int]) -> float:
        """Return the log e-value of one source among exchanges with and without the others."""
        if not others:
            return math.inf
        rows, columns = self.everything
        with_others = np.zeros(len(self.badness), dtype=np.intp)
        with_others[rows[np.isin(columns, others)]] = 1
        return float(self.log_e(_dense(2 * self.strata + with_others))[source])


def _dense(numbers: Index) -> Index:
    return np.unique(numbers, return_inverse=True)[1].astype(np.intp)
