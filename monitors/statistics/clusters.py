"""Scores that come in clusters (the answers of one conversation): one bet per cluster and bucket.

Scores of one cluster are alike, so a product of one factor per score is no supermartingale: with sessions of five at a
correlation of .3 it gave 15 to 20 false alarms per 100,000 scores at a budget of 2. Two corrections make it one again:

- within a bucket a cluster bets once, on the mean of its scores;
- a cluster that has bet before bets on what its earlier scores do not predict. With e the mean of the n earlier scores
  and r the intraclass correlation, the best linear prediction of the next one under "the mean is m" is
  m + c (e - m), where c = n r / (1 + (n - 1) r). The difference x - (m + c (e - m)) has mean 0 given the past for
  scores with a linear regression on the cluster's mean (a random effect), and is nearly uncorrelated with it otherwise.

Reference for the prediction: Searle, Casella & McCulloch, "Variance Components", Wiley 1992, chapter 7 (BLUP).
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

MAX_CLUSTERS = 5_000
"""Clusters that one stream remembers; of more, the one that was silent longest is forgotten and starts again."""
REMEMBERED_S = 3_600.0
HORIZON = 5_000.0
"""Scores after which what is known of mean, variance and correlation has half its weight."""
FEWEST_PAIRS = 30
ASSUMED, FEWEST_CLUSTERS = 0.2, 30.0
"""The correlation assumed before there is a pair, and the number of clusters with pairs that replaces the assumption:
pairs of few clusters (one batch job) say nothing about how clusters differ."""
ASSUMED_AT_FIRST, MOST_COMPANIONS = 0.8, 10.0  # internal bound: a series with correlation .8 has 9 at most
ASSUMED_CLUSTERS, COLD = 10.0, 500.0
MOST_CORRELATED = 0.9  # internal bound: a number of the format or formula
QUESTION, SESSION = "q:", "s:"
"""Beginnings of names. Equal questions are a cluster only where they are rare, as in a burst, not asked all day."""
_SAVED_SHARE = 0.05
MOST_SHARE_OF_A_QUESTION = 0.05  # internal bound: a number of the format or formula
MOST_SHARE, JUDGED_FROM = 0.25, 200.0  # internal bound: a number of the format or formula
"""A name with more than a quarter of the stream is no cluster but a part of the traffic (a key that all requests use);
looked at from so many scores on."""
ESTABLISHED, FROM_THE_START = 1_000.0, 0.9
"""Scores of the stream after a name's first one, from which on it may be a part of the traffic: until then it may be a
burst of one user. A name with nine tenths of all scores need not wait: nothing else is there."""


class ClusterMean(NamedTuple):
    """One cluster's scores in one bucket.

    `score` and `weight` are the means of its `n` scores in [0, 1] and of their weights in (0, 1]; `earlier` is the mean
    of its scores in earlier buckets and `shrinkage` the c of the prediction above, in [0, 1); 0 for a new cluster.
    """

    score: float
    weight: float
    n: int = 1
    earlier: float = 0.0
    shrinkage: float = 0.0


class SavedClusters(NamedTuple):
    """The state of `Clusters` that outlives a restart; `common` has at most 80 names with their counts.

    `ages` holds how many scores came since the first one of those names that are not established, `named` the share of
    scores whose conversation is known.
    """

    correlation: tuple[float, ...]
    scores: float
    common: dict[str, int]
    effect: tuple[float, ...] = ()
    ages: dict[str, float] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    named: float = 0.0


@lru_cache(1024)
def _kept(n: int) -> float:
    """Return the weight that what was known keeps when so many scores come."""
    return math.pow(0.5, n / HORIZON)


class _Seen(NamedTuple):
    n: int
    total: float
    deviation: float
    at: float


class DesignEffect:
    """By how much a mean's variance exceeds that of independent scores, from the clusters of a stream; recent ones
    count more.

    With the deviations d = w (x - mean) it is the sum over clusters of (sum of d)^2 over the sum of all d^2 (Liang &
    Zeger 1986), drawn to what is assumed of a new stream: its scores are correlated at .8 with the others of their
    cluster, of which at most 10 count, as 10 clusters would show it. The weight of that fades with the scores: at 500
    it is half, at 5,000 a hundredth.

    >>> effect = DesignEffect()
    >>> for x in (0.0, 1.0) * 500:
    ...     _ = effect.add([x - 0.5] * 2, earlier=0.0)
    >>> round(effect.value, 3)
    2.0
    """

    def __init__(self) -> None:
        self._n = self._clusters = self._scores = self._groups = self._companions = 0.0

    @property
    def value(self) -> float:
        """The design effect, at least 1."""
        if not self._groups:
            return 1.0
        assumed = 1.0 + ASSUMED_AT_FIRST * min(MOST_COMPANIONS, self._companions / self._n)
        weight = ASSUMED_CLUSTERS / (1.0 + (self._n / COLD) ** 2)
        measured = self._clusters / self._scores if self._scores > 0.0 else 1.0
        return max(1.0, (self._groups * measured + weight * assumed) / (self._groups + weight))

    def add(self, deviations: Sequence[float], *, earlier: float, before: int = 0) -> float:
        """Take in a cluster's deviations of a bucket, after `before` with the sum `earlier`; return the new sum."""
        total, n = sum(deviations), len(deviations)
        keep = _kept(n)
        self._n = keep * self._n + n
        self._clusters = keep * self._clusters + total * (total + 2.0 * earlier)
        self._scores = keep * self._scores + sum(deviation * deviation for deviation in deviations)
        self._groups = keep * self._groups + (before == 0)
        self._companions = keep * self._companions + n * (n - 1 + 2 * before)
        return earlier + total

    def add_alone(self, deviations: Sequence[float]) -> None:
        """Take in scores of a bucket that have no companions."""
        n, squares = len(deviations), sum(deviation * deviation for deviation in deviations)
        keep = _kept(n)
        self._n, self._groups = keep * self._n + n, keep * self._groups + n
        self._clusters, self._scores = keep * self._clusters + squares, keep * self._scores + squares
        self._companions *= keep

    @property
    def state(self) -> tuple[float, ...]:
        """The sums, to be saved."""
        return self._n, self._clusters, self._scores, self._groups, self._companions

    @state.setter
    def state(self, state: Sequence[float]) -> None:
        self._n, self._clusters, self._scores, self._groups, self._companions = state


def name_of(names: str | None, kind: str) -> str:
    """Return the first of some names that is of a kind; "" without one.

    >>> name_of("s:a q:b", QUESTION), name_of(None, SESSION)
    ('q:b', '')
    """
    return next((name for name in (names or "").split() if name.startswith(kind)), "")


def groups_of(names: Sequence[str | None]) -> list[int]:
    """Return the number of each score's cluster, for a window whose scores are all there.

    As in a stream, a score's cluster is its closest name that is not common in the window; without one it is alone.

    >>> groups_of(["s:a k:1", "s:a k:1", "s:b k:1", None, None])
    [0, 0, 2, 3, 4]
    """
    counts = Counter(name for some in names for name in (some or "").split())
    n = len(names)

    def most(name: str) -> float:
        return n * MOST_SHARE_OF_A_QUESTION if name.startswith(QUESTION) else max(2.0, n * MOST_SHARE)

    first: dict[str, int] = {}
    return [
        next(
            (first.setdefault(cluster, at) for cluster in (some or "").split() if counts[cluster] <= most(cluster)), at
        )
        for at, some in enumerate(names)
    ]


class IntraclassCorrelation:
    """The correlation of two scores of one cluster, from pairs as they come; recent ones count more.

    `lower` is the estimate less one standard error, in [0, .9], but at least an assumed .2 (1 - k/30) while only k < 30
    clusters had pairs. Too high an estimate costs a little power, too low a one costs false alarms
    (benchmarks/detection/clusters.py).

    >>> icc = IntraclassCorrelation()
    >>> for _ in range(200):
    ...     icc.add([1.0, 1.0], earlier=None)
    ...     icc.add([0.0, 0.0], earlier=None)
    >>> icc.lower > 0.85
    True
    """

    def __init__(self) -> None:
        self._w = self._x = self._xx = 0.0
        self._pairs = self._products = self._squares = 0.0
        self._clusters = 0.0

    @property
    def centre(self) -> float | None:
        """The mean of all scores; None without any."""
        return self._x / self._w if self._w else None

    @property
    def lower(self) -> float:
        """The estimate less one standard error, cut to [0, .9]; see the class for few clusters."""
        assumed = ASSUMED * max(0.0, 1.0 - self._clusters / FEWEST_CLUSTERS)
        if self._pairs < FEWEST_PAIRS or not self._w:
            return assumed
        if (variance := self._xx / self._w - (self._x / self._w) ** 2) <= 0.0:
            return assumed
        mean = self._products / self._pairs
        error = math.sqrt(max(0.0, self._squares / self._pairs - mean * mean) / self._pairs)
        return min(MOST_CORRELATED, max(assumed, (mean - error) / variance))

    def add(self, scores: Sequence[float], *, earlier: float | None, paired: bool = False) -> None:
        """Take in a cluster's scores of one bucket; `earlier` is the mean of those before, if any.

        `paired` says that the cluster had pairs before.
        """
        n, total, squares = len(scores), sum(scores), sum(x * x for x in scores)
        if self._w:
            self._clusters += 0.0 if paired or (n == 1 and earlier is None) else 1.0
            centre = self._x / self._w
            if n > 1:
                deviation = total - n * centre
                own = squares - 2.0 * centre * total + n * centre * centre
                self._pair((deviation * deviation - own) / (n * (n - 1)))
            if earlier is not None:
                self._pair((total / n - centre) * (earlier - centre))
        self._add(n, total, squares)

    def add_alone(self, scores: Sequence[float]) -> None:
        """Take in scores of a bucket that have no companions."""
        self._add(len(scores), sum(scores), sum(x * x for x in scores))

    def _add(self, n: int, total: float, squares: float) -> None:
        keep = _kept(n)
        self._w, self._x, self._xx = keep * self._w + n, keep * self._x + total, keep * self._xx + squares

    def _pair(self, product: float) -> None:
        keep = _kept(1)
        self._pairs = keep * self._pairs + 1.0
        self._products = keep * self._products + product
        self._squares = keep * self._squares + product * product

    @property
    def state(self) -> tuple[float, ...]:
        """The sums, to be saved."""
        return self._w, self._x, self._xx, self._pairs, self._products, self._squares, self._clusters

    @state.setter
    def state(self, state: Sequence[float]) -> None:
        self._w, self._x, self._xx, self._pairs, self._products, self._squares, self._clusters = state


class Clusters:
    """The clusters of one stream: turns a bucket's scores into one mean per cluster.

    A score may have several names, the closest first ("s:1 u:2"): the first that has at most a quarter of the
    earlier scores, or is new to the stream, is its cluster. What is remembered of a cluster ends after an hour of
    silence and is not saved: after a restart the conversations under way start again, which costs at most one bet of
    each.

    >>> clusters = Clusters()
    >>> found = clusters.means([0.5, 1.0, 0.0], [1.0, 1.0, 1.0], ["s:a k:b", "s:a k:b", None], at=0.0)
    >>> [(mean.score, mean.n) for mean in found]
    [(0.75, 2), (0.0, 1)]
    """

    def __init__(self) -> None:
        self.correlation = IntraclassCorrelation()
        self.effect = DesignEffect()
        self._now = 0.0
        self._seen: OrderedDict[str, _Seen] = OrderedDict()  # by the time of the last score
        self._names: Counter[str] = Counter()
        self._first: dict[str, float] = {}
        self._scores = self._count_of_all = 0.0
        self.named = 0.0

    @property
    def state(self) -> SavedClusters:
        """What is saved: the correlation, and the names that are common."""
        common = {name: n for name, n in self._names.items() if n >= _SAVED_SHARE * self._scores}
        ages = {name: age for name in common if (age := self._age(name)) < ESTABLISHED}
        return SavedClusters(self.correlation.state, self._scores, common, self.effect.state, ages, self.named)

    @state.setter
    def state(self, saved: SavedClusters) -> None:
        self.correlation.state, self._scores, self._names = saved.correlation, saved.scores, Counter(saved.common)
        self._first = {name: self._count_of_all - saved.ages.get(name, ESTABLISHED) for name in saved.common}
        self.named = saved.named
        if len(saved.effect) == len(self.effect.state):
            self.effect.state = saved.effect

    def means(
        self, scores: Sequence[float], weights: Sequence[float], names: Sequence[str | None], *, at: float
    ) -> list[ClusterMean]:
        """Group the scores of a bucket that began at Unix time `at`; a score without a name is a cluster of its own.

        What decides about the groups, and what is predicted, uses earlier buckets only.
        """
        self._now = max(self._now, at)
        self._forget()
        if not any(names):
            return self._alone(scores, weights)
        groups: dict[str | int, list[int]] = {}
        is_cluster = cache(self._is_cluster)  # the counts change after the bucket
        for index, some in enumerate(names):
            name = next((cluster for cluster in some.split() if is_cluster(cluster)), index) if some else index
            groups.setdefault(name, []).append(index)
        r = self.correlation.lower
        found = [
            self._mean(name, [scores[i] for i in some], [weights[i] for i in some], r) for name, some in groups.items()
        ]
        self._count(names)
        return found

    def _alone(self, scores: Sequence[float], weights: Sequence[float]) -> list[ClusterMean]:
        """Do what `means` does with scores without names, all at once."""
        if (centre := self.correlation.centre) is not None:
            self.effect.add_alone([weight * (score - centre) for score, weight in zip(scores, weights, strict=True)])
        self.correlation.add_alone(scores)
        self._count([None] * len(scores))
        return list(map(ClusterMean, scores, weights))

    def _mean(self, name: str | int, scores: list[float], weights: list[float], r: float) -> ClusterMean:
        n, total = len(scores), sum(scores)
        seen = self._seen.get(name) if isinstance(name, str) else None
        earlier, shrinkage = (seen.total / seen.n, seen.n * r / (1.0 + (seen.n - 1) * r)) if seen else (0.0, 0.0)
        deviation = seen.deviation if seen else 0.0
        if (centre := self.correlation.centre) is not None:
            deviations = [w * (x - centre) for x, w in zip(scores, weights, strict=True)]
            deviation = self.effect.add(deviations, earlier=deviation, before=seen.n if seen else 0)
        self.correlation.add(scores, earlier=earlier if seen else None, paired=seen is not None and seen.n > 1)
        if isinstance(name, str):
            before, earlier_total = (seen.n, seen.total) if seen else (0, 0.0)
            self._seen[name] = _Seen(n + before, total + earlier_total, deviation, self._now)
            self._seen.move_to_end(name)
            if len(self._seen) > MAX_CLUSTERS:
                self._seen.popitem(last=False)
        return ClusterMean(total / n, sum(weights) / n, n, earlier, shrinkage)

    def _forget(self) -> None:
        """Forget clusters that have been silent for too long: what a TTLCache does, in less time for each score."""
        while self._seen and self._now >= next(iter(self._seen.values())).at + REMEMBERED_S:
            self._seen.popitem(last=False)

    def _is_cluster(self, name: str) -> bool:
        """Whether a name is not common; of questions only rare ones, in a stream that is known well enough."""
        known = self._scores >= JUDGED_FROM
        share = self._names.get(name, 0) / self._scores if known else 0.0
        if name.startswith(QUESTION):
            return known and share <= MOST_SHARE_OF_A_QUESTION
        return share <= MOST_SHARE or (share < FROM_THE_START and self._age(name) < ESTABLISHED)

    def _age(self, name: str) -> float:
        """How many scores of the stream came since the first one of a name."""
        return self._count_of_all - self._first.get(name, self._count_of_all)

    def _count(self, names: Sequence[str | None]) -> None:
        """Count names; halve all counts when `HORIZON` scores came, so that rare ones go and the table stays small."""
        for some in names:
            for name in (some or "").split():
                self._names[name] = self._names.get(name, 0) + 1
                self._first.setdefault(name, self._count_of_all)
        self._scores += len(names)
        with_session = sum(f" {SESSION}" in f" {some}" for some in names)
        self.named += (with_session - len(names) * self.named) / max(self._scores, len(names))
        self._count_of_all += len(names)
        if self._scores >= HORIZON:
            self._scores /= 2.0
            self._names = Counter({name: n // 2 for name, n in self._names.items() if n > 1})
            self._first = {name: self._first[name] for name in self._names}
