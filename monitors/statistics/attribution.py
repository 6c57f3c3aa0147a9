"""Which of many sources lower the scores of the exchanges that got them, at a controlled false-discovery rate.

Exchanges are compared within strata (topic, model, period). The null hypothesis of a source: within a stratum, which
exchanges got it has nothing to do with their scores. Then the k of N exchanges of a stratum that got it are drawn
without replacement, and with badness y = 1 - score and a bet b > 0::

    e(b) = prod over strata of exp(b sum of y with the source) / E_k(b)        E[e(b)] = 1

    E_k(b) = the mean, over all choices of k of the N exchanges, of exp(b sum of y)

E_k is an elementary symmetric polynomial of the exp(b y) over N choose k; one recursion gives it for every k::

    E_k(first i) = (1 - k/i) E_k(first i - 1) + k/i exp(b y_i) E_(k-1)(first i - 1)

In a very large stratum it is replaced by its upper bound, the k-th power of the mean of exp(b y) (Hoeffding 1963,
theorem 4). The mean over a grid of bets is an e-value too. e-BH over all sources keeps the expected share of wrongly
named ones at or below alpha, however the sources depend on each other (Wang & Ramdas 2022): sources retrieved together
always do.

Equal questions are alike in their difficulty and in their sources. A question asked often is a stratum of its own,
where exchanges with and without a source are compared; of a rare one the exchanges count together, with their mean
score. Of one session, a source counts once.

A source that is retrieved beside a bad one has low scores as well. So each named one must stay convincing when
exchanges with and without the others are compared apart. The smaller of two e-values is used, which removes names only.

References: W. Hoeffding (1963), Probability inequalities for sums of bounded random variables, JASA 58; R. Wang & A.
Ramdas (2022), False discovery rate control with e-values, J. R. Stat. Soc. B 84 (arXiv 2009.02824).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from monitors.statistics.multiple_testing import affected

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]

ALPHA = 0.05
"""The expected share of wrongly named sources among those named."""
BETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MAX_NAMED = 20
"""Sources that are compared with one another; of more, the strongest."""


FREQUENT = 8
"""Exchanges from which on a question is a stratum of its own."""
MAX_CELLS = 4_000_000
"""Exchanges of a stratum times the most of them with one source, up to which the mean over all choices is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrievals:
    """n exchanges with their scores, and the m pairs of an exchange and a distinct source that it got.

    `scores` [n] lie in [0, 1], 1 is best; `rates` [n] are inclusion probabilities in (0, 1], for means only: a test
    needs no weights, as which exchanges are scored does not depend on their content. `strata` [n] number the groups
    within which exchanges are compared, from 0. Pair k says that exchange `rows[k]` got source `columns[k]`, of `size`
    sources. `questions` [n] and `sessions` [n] number equal questions and sessions, from 0; without them each exchange
    has its own.
    """

    scores: Array
    rates: Array
    strata: Index
    rows: Index
    columns: Index
    size: int
    questions: Index | None = field(default=None)
    sessions: Index | None = field(default=None)


class ScoredAnswer(NamedTuple):
    """An answer with its score in [0, 1], 1 is best, and the sources (or other traits) that it has.

    `stratum` is any value that is the same for answers to be compared. Equal `question`s and `session`s are known by
    their names; an answer without such a name has its own, by its `id`.
    """

    id: str
    score: float
    rate: float
    traits: Collection[Hashable]
    stratum: Hashable = None
    question: str = ""
    session: str = ""


def retrievals_of(answers: Sequence[ScoredAnswer], traits: Sequence[Hashable]) -> Retrievals:
    """Return answers as arrays; a source is the index of one of `traits`, others are left out."""
    index = {trait: number for number, trait in enumerate(traits)}
    pairs = [(row, index[trait]) for row, answer in enumerate(answers) for trait in {*answer.traits} & index.keys()]
    return Retrievals(
        scores=np.array([answer.score for answer in answers], dtype=np.float64),
        rates=np.array([answer.rate for answer in answers], dtype=np.float64),
        strata=_numbered(answer.stratum for answer in answers),
        rows=np.array([row for row, _ in pairs], dtype=np.intp),
        columns=np.array([column for _, column in pairs], dtype=np.intp),
        size=len(index),
        questions=_numbered(answer.question or answer.id for answer in answers),
        sessions=_numbered(answer.session or answer.id for answer in answers),
    )


def _numbered(values: Iterable[Hashable]) -> Index:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.intp)


class Contrast(Struct, frozen=True, kw_only=True):
    """The exchanges of each source against the others: `log_e` [size] are natural logarithms of the e-values.

    Of the sources that score `lower`, the strongest first, those named by `log_e_alone` still do when exchanges with
    and without the others are compared apart; its values are their e-values then. Of two that are always retrieved
    together, it has only one. Both lists have a false-discovery rate of at most `alpha`.
    """

    log_e: Array
    lower: Sequence[int] = ()
    log_e_alone: Mapping[int, float] = {}


def contrast(some: Retrievals, alpha: float = ALPHA) -> Contrast:
    """Test each source against "its exchanges score as the others of their stratum".

    Raises ValueError for an alpha outside (0, 1).

    >>> x = np.array([0.1] * 10 + [0.9] * 90)
    >>> found = contrast(retrievals_of([ScoredAnswer(str(k), x[k], 1.0, [k // 10]) for k in range(100)], range(10)))
    >>> bool(found.log_e[0] > 10.0), bool(found.log_e[1:].max() < 0.0), found.lower, [*found.log_e_alone]
    (True, True, [0], [0])
    """
    if not some.size or not some.scores.size:
        return Contrast(log_e=np.zeros(some.size))
    tested = _tested(some)
    log_e = tested.log_e()
    lower = _e_bh(log_e, alpha)
    evidence, named = log_e.copy(), list[int]()
    for source in lower[:MAX_NAMED]:
        evidence[source] = min(evidence[source], tested.given(source, named))
        if source in _e_bh(evidence, alpha):
            named.append(source)
    for source in reversed(list(named)):
        evidence[source] = min(evidence[source], tested.given(source, [other for other in named if other != source]))
        if source not in _e_bh(evidence, alpha):
            named.remove(source)
    alone = {source: float(evidence[source]) for source in _e_bh(evidence, alpha) if source in named}
    return Contrast(log_e=log_e, lower=lower, log_e_alone=alone)


def _e_bh(evidence: Array, alpha: float) -> list[int]:
    return [int(name) for name in affected({str(at): float(value) for at, value in enumerate(evidence)}, alpha)]


def _tested(some: Retrievals) -> _Units:
    """Return the units of the test: exchanges, or all exchanges of a rare question in one stratum together."""
    n = len(some.scores)
    questions = np.arange(n) if some.questions is None else some.questions
    frequent = np.bincount(questions)[questions] >= FREQUENT
    strata = _dense(
        np.where(frequent, some.strata.max() + 1 + questions, some.strata) * (some.strata.max() + 1) + some.strata
    )
    alone = np.where(frequent, np.arange(n), n + questions)
    unit = _dense(strata * (2 * n + 1) + alone)
    members = np.bincount(unit)
    first = np.unique(unit, return_index=True)[1]
    pairs = np.unique(unit[some.rows] * some.size + some.columns)
    rows, columns = pairs // some.size, pairs % some.size
    sessions = np.arange(len(first)) if some.sessions is None else some.sessions[first]
    once = np.unique(sessions[rows] * some.size + columns, return_index=True)[1]
    return _Units(
        badness=np.bincount(unit, weights=1.0 - some.scores) / members,
        strata=strata[first],
        tested=(rows[once], columns[once]),
        got=(rows, columns),
        size=some.size,
    )


class _Units(Struct, frozen=True, kw_only=True):
    """The arrays of a test: the pairs of unit and source that are `tested`, and all that were `got`."""

    badness: Array
    strata: Index
    tested: tuple[Index, Index]
    got: tuple[Index, Index]
    size: int

    def log_e(self) -> Array:
        """Return the log e-values of all sources."""
        rows, columns = self.tested
        return self._log_e(self.strata, rows, columns)

    def given(self, source: int, others: Sequence[int]) -> float:
        """Return the log e-value of one source when units with and without the others are compared apart."""
        if not others:
            return math.inf
        rows, columns = self.got
        with_others = np.zeros(len(self.badness), dtype=np.intp)
        with_others[rows[np.isin(columns, others)]] = 1
        tested, which = self.tested
        own = which == source
        return float(self._log_e(_dense(2 * self.strata + with_others), tested[own], which[own])[source])

    def _log_e(self, strata: Index, rows: Index, columns: Index) -> Array:
        sums = np.bincount(columns, weights=self.badness[rows], minlength=self.size)
        logs = np.outer(BETS, sums)  # bets x sources
        order = np.argsort(strata, kind="stable")
        ends = np.cumsum(np.bincount(strata))
        cells, counts = np.unique(strata[rows] * self.size + columns, return_counts=True)
        place, source = cells // self.size, cells % self.size
        for stratum in np.unique(place):
            here = place == stratum
            k = counts[here]
            members = order[ends[stratum - 1] if stratum else 0 : ends[stratum]]
            logs[:, source[here]] -= _log_means(np.outer(BETS, self.badness[members]), int(k.max()))[:, k]
        most = logs.max(axis=0)
        found: Array = most + np.log(np.exp(logs - most).mean(axis=0))
        return found


def _log_means(exponents: Array, most: int) -> Array:
    """Return log E_k for k = 0 ... `most` (bets x k), from b y of the N members of a stratum (bets x N).

    >>> _log_means(np.log([[1.0, 2.0, 4.0]]), 3).round(3).tolist() == np.log([[1, 7 / 3, 14 / 3, 8]]).round(3).tolist()
    True
    """
    bets, n = exponents.shape
    if n * most > MAX_CELLS:
        peak = exponents.max(axis=1, keepdims=True)
        mean = peak + np.log(np.exp(exponents - peak).mean(axis=1, keepdims=True))
        bound: Array = mean * np.arange(most + 1)
        return bound
    logs = np.full((bets, most + 1), -np.inf)
    logs[:, 0] = 0.0
    with np.errstate(divide="ignore"):
        log = np.log(np.arange(n + 1.0))
    down = log[::-1]
    for i in range(1, n + 1):
        top = min(i, most)
        stay = logs[:, 1 : top + 1] + (down[n - i + 1 : n - i + 1 + top] - log[i])  # log (i - k)/i
        step = logs[:, :top] + (log[1 : top + 1] + (exponents[:, i - 1 : i] - log[i]))
        logs[:, 1 : top + 1] = np.logaddexp(stay, step)
    return logs


def _dense(numbers: Index) -> Index:
    return np.unique(numbers, return_inverse=True)[1].astype(np.intp)


class MatchedMeans(Struct, frozen=True, kw_only=True):
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
    moments = (weights, weights * some.scores, weights * some.scores**2, weights**2)
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


def _variance(moments: list[Array]) -> Array:
    total, first, second, _ = moments
    found: Array = np.maximum(0.0, second / total - (first / total) ** 2)
    return found


def log_e_overlap(n: int, marked: int, drawn: int, both: int) -> float:
    """Return the log e-value of `both` marked units among `drawn` of `n`, against drawing them at random.

    It is that of `contrast` with one stratum and scores 0 and 1, in closed form: the mean over the bets of exp(b both)
    over its expectation under the hypergeometric law.

    >>> round(log_e_overlap(100, 10, 50, 5), 1), log_e_overlap(100, 10, 10, 10) > 20.0
    (-1.1, True)
    """
    k = np.arange(max(0, drawn + marked - n), min(drawn, marked) + 1)
    log_factorial = _log_factorials(n)

    def log_choose(of: int, some: Index) -> Array:
        found: Array = log_factorial[of] - log_factorial[some] - log_factorial[of - some]
        return found

    law = log_choose(marked, k) + log_choose(n - marked, drawn - k) - float(log_choose(n, np.array([drawn]))[0])
    logs = [bet * both - float(np.logaddexp.reduce(bet * k + law)) for bet in BETS]
    return float(np.logaddexp.reduce(logs)) - math.log(len(BETS))


@lru_cache(maxsize=16)
def _log_factorials(n: int) -> Array:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, n + 1.0)))])
