"""The dependence of scores that nothing names: conversations without an id, a topic that trends, a question that many
ask.

Scores that are alike because they belong together come close to each other in time. So the means of successive blocks
of scores differ by more than those of independent scores, at the scale of whatever ties the scores together.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, mul

import numpy as np

SCALES = (10.0, 40.0, 160.0, 640.0)
"""Sizes of the blocks that are compared, in independent scores of equal weight."""
ASSUMED, ASSUMED_WEIGHT = 1.5, 6.0
"""The design effect assumed for the smallest blocks before there is a pair of them, and how many pairs it is worth."""
GROWTH = 1.3
"""Larger blocks are assumed to have so many times the design effect of the next smaller ones, with the same weight."""
MOST_PAIRS = 400.0  # internal bound: a number of the estimate
"""Pairs of blocks that count: older ones fade."""
_SURPRISE = 8.0
"""A pair counts at most so many times what was expected: a drop is one surprising pair, dependence brings many."""
_VARIANCE_HORIZON = 3_000.0
_CHUNK = 10


class SerialDependence:
    """The design effect of a stream of scores in the order of time: how much larger the variance of a mean is than with
    independent scores; at least 1.

    For successive blocks with means m and m', and v the variance of one score, (m - m')^2/(v (1/n + 1/n')) is 1 on
    average if the scores are independent, and the design effect if they are not and the blocks are longer than what
    ties them together (Bartlett's batch means with overlapping scales; Alexopoulos & Goldsman, "To batch or not to
    batch?", ACM TOMACS 14 (2004)). The estimate is the largest over four sizes of blocks. Each is drawn to what the
    next smaller size suggests, with the weight of six pairs: of large blocks there are few. Only what came before
    decides about the next score, so a test that uses it stays predictable.

    >>> alone, in_fives = SerialDependence(), SerialDependence()
    >>> for i in range(6_000):
    ...     alone.add([float(i * 7919 % 10_007 < 5_000)])
    ...     in_fives.add([float(i * 7919 % 10_007 < 5_000)] * 5)
    >>> alone.design_effect < 1.5, in_fives.design_effect > 3.5
    (True, True)
    """

    def __init__(self) -> None:
        self._n = self._mean = self._variance = 0.0
        k = len(SCALES)
        self._open = [(0.0, 0.0, 0.0)] * k  # sums of w, w x, w^2 of the block under way
        self._last: list[tuple[float, float] | None] = [None] * k  # effective size and mean of the block before
        self._ratios, self._pairs = [0.0] * k, [0.0] * k

    @property
    def design_effect(self) -> float:
        """The design effect of the scores so far, at least 1; 3.3 before there is a pair of blocks."""
        return max(self._by_scale())

    def _by_scale(self) -> list[float]:
        estimates, assumed = [], ASSUMED
        for ratios, pairs in zip(self._ratios, self._pairs, strict=True):
            estimates.append(max(1.0, (ASSUMED_WEIGHT * assumed + ratios) / (ASSUMED_WEIGHT + pairs)))
            assumed = GROWTH * estimates[-1]
        return estimates

    def add(self, scores: Sequence[float], weights: Sequence[float] | None = None) -> None:
        """Take in scores with their weights in (0, 1], 1 by default, in the order of time."""
        weights = weights or [1.0] * len(scores)
        for start in range(0, len(scores), _CHUNK):
            x, w = scores[start : start + _CHUNK], weights[start : start + _CHUNK]
            self._learn_variance(x)
            sums = sum(w), sum(map(mul, w, x)), sum(map(mul, w, w))
            for scale, size in enumerate(SCALES):
                sw, swx, sww = map(add, self._open[scale], sums)
                self._open[scale] = sw, swx, sww
                if sw * sw >= size * sww:
                    self._close(scale, sw * sw / sww, swx / sw)

    def _learn_variance(self, scores: Sequence[float]) -> None:
        n = len(scores)
        self._n = min(self._n + n, _VARIANCE_HORIZON)
        before, share = self._mean, n / self._n
        self._mean += share * (sum(scores) / n - before)
        squares = sum((x - before) * (x - self._mean) for x in scores) / n
        self._variance += share * (squares - self._variance)

    def _close(self, scale: int, n: float, mean: float) -> None:
        last = self._last[scale]
        self._open[scale], self._last[scale] = (0.0, 0.0, 0.0), (n, mean)
        if last is None or self._variance <= 0.0:
            return
        ratio = (mean - last[1]) ** 2 / (self._variance * (1.0 / n + 1.0 / last[0]))
        keep = 1.0 - 1.0 / MOST_PAIRS
        self._ratios[scale] = keep * self._ratios[scale] + min(ratio, _SURPRISE * self._by_scale()[scale])
        self._pairs[scale] = keep * self._pairs[scale] + 1.0

    @property
    def state(self) -> tuple[float, ...]:
        """All numbers, to be saved."""
        last = [number for block in self._last for number in (block or (0.0, 0.0))]
        sums = [number for block in self._open for number in block]
        return self._n, self._mean, self._variance, *self._ratios, *self._pairs, *last, *sums

    @state.setter
    def state(self, state: Sequence[float]) -> None:
        numbers, k = iter(state), len(SCALES)
        self._n, self._mean, self._variance = (next(numbers) for _ in range(3))
        self._ratios, self._pairs = ([next(numbers) for _ in range(k)] for _ in range(2))
        blocks = [(next(numbers), next(numbers)) for _ in range(k)]
        self._last = [block if block[0] else None for block in blocks]
        self._open = [(next(numbers), next(numbers), next(numbers)) for _ in range(k)]


SIGNIFICANT = 1.645
"""Standard errors from which on the first autocorrelation of a closed sample counts: by chance one time in twenty."""


def closed_design_effect(scores: Sequence[float]) -> float:
    """Return the design effect of n scores in the order in which they came, for a sample that is complete; at least 1.

    It is 1 + 2 sum r_k of the autocorrelations r_k up to the first below its standard error 1/sqrt(n), and 1 if the
    first of all is not significant: an ordinary sample keeps its ordinary interval. The rule that stops at the first
    unclear one is that of C. J. Geyer, "Practical Markov chain Monte Carlo", Stat. Sci. 7 (1992), section 3.3.

    >>> closed_design_effect([0.0, 1.0, 1.0, 0.0] * 25), closed_design_effect([1.0] * 100)
    (1.0, 1.0)
    >>> closed_design_effect([0.0] * 5 + [1.0] * 10 + [0.0] * 5 + [1.0] * 5 + [0.0] * 5) > 3.0
    True
    """
    x = np.asarray(scores, dtype=np.float64)
    d = x - x.mean()
    variance, error, effect, least = float(d @ d), 1.0 / x.size**0.5, 1.0, SIGNIFICANT
    for lag in range(1, x.size // 2):
        r = float(d[:-lag] @ d[lag:]) / variance if variance > 0.0 else 0.0
        if r < least * error:
            break
        effect, least = effect + 2.0 * r, 1.0
    return effect
