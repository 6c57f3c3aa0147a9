"""The dependence of scores that nothing names: conversations without an id, a topic that trends, a question that many
ask.

Scores that are alike because they belong together come close to each other in time. So the means of successive blocks
of scores differ by more than those of independent scores, at the scale of whatever ties the scores together.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, mul

import numpy as np
from numpy.typing import NDArray

from monitors.statistics.eprocess import Array

SCALES = (10.0, 40.0, 160.0, 640.0)
"""Sizes of the blocks that are compared, in independent scores of equal weight."""
ASSUMED, ASSUMED_WEIGHT = 1.2, 6.0
"""The design effect assumed for the smallest blocks before there is a pair of them, and how many pairs it is worth."""
GROWTH = 1.2
"""Larger blocks are assumed to have so many times the design effect of the next smaller ones, with the same weight."""
MOST_PAIRS = 400.0  # internal bound: a number of the estimate
"""Pairs of blocks that count: older ones fade."""
CAUTION = 1.5
"""What exceeds 1 is taken to be so many times larger: a large bet loses more to long sessions than the variance of a
mean says, and a design effect that is too small costs false alarms."""
_SURPRISE = 5.0
"""A pair counts at most so many times what was expected: a drop is one surprising pair, dependence brings many."""
_VARIANCE_HORIZON = 3_000.0
_CHUNK = 10
_NO_HOUR = -1.0
_NUMBERS = ("_n", "_mean", "_variance", "_hour", "_expected", "_variance_of_hour")


class SerialDependence:
    """The design effect of a stream of scores in the order of time: how much larger the variance of a mean is than with
    independent scores; at least 1.

    For successive blocks with means m and m', and v the variance of one score, (m - m')^2/(v (1/n + 1/n')) is 1 on
    average if the scores are independent, and the design effect if they are not and the blocks are longer than what
    ties them together (Bartlett's batch means with overlapping scales; Alexopoulos & Goldsman, "To batch or not to
    batch?", ACM TOMACS 14 (2004)). The estimate is the largest over four sizes of blocks. Each is drawn to what the
    next smaller size suggests, with the weight of six pairs: of large blocks there are few. Only what came before
    decides about the next score, so a test that uses it stays predictable. Where the hour's mean is forecast, scores
    count by their difference from it, only blocks that end in the same or in successive hours are compared, and those
    of successive hours may differ by the forecast's variance, too: the time of day is no dependence of scores.

    >>> alone, in_fives = SerialDependence(), SerialDependence()
    >>> for i in range(6_000):
    ...     alone.add([float(i * 7919 % 10_007 < 5_000)])
    ...     in_fives.add([float(i * 7919 % 10_007 < 5_000)] * 5)
    >>> alone.design_effect < 1.5, in_fives.design_effect > 3.5
    (True, True)
    """

    def __init__(self) -> None:
        self._hour, self._expected, self._variance_of_hour = _NO_HOUR, 0.0, 0.0
        self._reset()

    def _reset(self) -> None:
        self._n = self._mean = self._variance = 0.0
        k = len(SCALES)
        self._open = [(0.0, 0.0, 0.0)] * k  # sums of w, w x, w^2 of the block under way
        # of the block before: effective size, mean, hour and variance of the hour's forecast
        self._last: list[tuple[float, float, float, float] | None] = [None] * k
        self._ratios, self._pairs = [0.0] * k, [0.0] * k

    @property
    def estimate(self) -> float:
        """The design effect without caution: what an interval needs; 2.1 before there is a pair of blocks."""
        return max(self._by_scale())

    @property
    def design_effect(self) -> float:
        """The design effect of the scores so far, with caution; 2.6 before there is a pair of blocks."""
        return 1.0 + CAUTION * (self.estimate - 1.0)

    def _by_scale(self) -> list[float]:
        estimates, assumed = [], ASSUMED
        for ratios, pairs in zip(self._ratios, self._pairs, strict=True):
            estimates.append(max(1.0, (ASSUMED_WEIGHT * assumed + ratios) / (ASSUMED_WEIGHT + pairs)))
            assumed = GROWTH * estimates[-1]
        return estimates

    def forecast(self, hour: int, mean: float, variance: float) -> None:
        """Take in what the mean of an hour of Unix time is forecast to be, before its scores."""
        if self._hour == _NO_HOUR:  # scores and differences do not compare
            self._reset()
        self._hour, self._expected, self._variance_of_hour = float(hour), mean, variance

    def add(self, scores: Sequence[float], weights: Sequence[float] | None = None) -> None:
        """Take in scores with their weights in (0, 1], 1 by default, in the order of time."""
        weights = weights or [1.0] * len(scores)
        scores = [score - self._expected for score in scores]
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
        self._open[scale], self._last[scale] = (0.0, 0.0, 0.0), (n, mean, self._hour, self._variance_of_hour)
        if last is None or self._hour > last[2] + 1.0:
            return
        last_n, last_mean, last_hour, last_variance = last
        expected = self._variance * (1.0 / n + 1.0 / last_n)
        if self._hour != last_hour:
            expected += self._variance_of_hour + last_variance
        ratio = (mean - last_mean) ** 2 / expected if expected > 0.0 else 1.0
        keep = 1.0 - 1.0 / MOST_PAIRS
        self._ratios[scale] = keep * self._ratios[scale] + min(ratio, _SURPRISE * self._by_scale()[scale])
        self._pairs[scale] = keep * self._pairs[scale] + 1.0

    @property
    def state(self) -> tuple[float, ...]:
        """All numbers, to be saved."""
        last = [number for block in self._last for number in (block or (0.0,) * 4)]
        sums = [number for block in self._open for number in block]
        return (*(getattr(self, name) for name in _NUMBERS), *self._ratios, *self._pairs, *last, *sums)

    @state.setter
    def state(self, state: Sequence[float]) -> None:
        numbers, k = iter(state), len(SCALES)
        for name in _NUMBERS:
            setattr(self, name, next(numbers))
        self._ratios, self._pairs = ([next(numbers) for _ in range(k)] for _ in range(2))
        blocks = [(next(numbers), next(numbers), next(numbers), next(numbers)) for _ in range(k)]
        self._last = [block if block[0] else None for block in blocks]
        self._open = [(next(numbers), next(numbers), next(numbers)) for _ in range(k)]


_SCALES, _FACTOR, _GROUP, _TINY = 4, 4, 16, 1e-9
_FIRST_ASSUMED, _PAIRS_ASSUMED = 2.0, 10.0


def design_effects(blocks: Array, others: Array | None = None) -> Array:
    """Return the design effect after the first 0, 1, ... blocks of scores in [0, 1] that are all there.

    `blocks` are the sums of w, w x, w^2, w^2 x and w^2 x^2 of weights and scores in successive blocks (5 x k). With
    `others`, those of a second sample in the same times, it is the effect for the difference of their means, from the
    blocks in which both have scores: what moves both alike, such as the time of day, is no dependence that matters.

    Each block is compared with the mean of up to 15 before it, so that blocks shorter than a conversation show the
    dependence too, and so are 4, 16 and 64 blocks joined. What exceeds 1 is drawn to that of the next smaller blocks
    times its growth from the blocks before those, 1 to 4, with the weight of ten pairs, and the estimate divided by one
    plus its relative error sqrt(2/pairs); the largest counts. `SerialDependence` does this for a stream that must react
    to a drop: here an incident may cost power.

    >>> rng = np.random.default_rng(1)
    >>> alone, fives = rng.random(5_000), np.repeat(rng.random(1_000), 5)
    >>> [design_effects(block_sums(x, np.ones(5_000), 10))[[0, 50, 500]].round(1).tolist() for x in (alone, fives)]
    [[1.0, 1.1, 1.0], [1.0, 8.0, 5.4]]
    """
    y, u, there = _means(blocks)
    if others is not None:
        y_others, u_others, there_too = _means(others)
        y, u, there = y_others - y, u + u_others, there & there_too
    at = np.concatenate([[0], np.cumsum(there)])
    y, u, size = y[there], u[there], 1
    effect, assumed, before = np.ones(at.size), np.full(at.size, _FIRST_ASSUMED), np.zeros(at.size)
    for scale in range(_SCALES):
        total, pairs = (sums[at // size] for sums in _against_the_ones_before(y, u))
        weight = _PAIRS_ASSUMED + pairs
        estimate = (_PAIRS_ASSUMED * assumed + total) / weight / (1.0 + np.sqrt(2.0 / weight))
        effect = np.where(pairs > 0.0, np.maximum(effect, estimate), effect)
        excess = np.maximum(0.0, estimate - 1.0)
        assumed = 1.0 + excess * (np.clip(excess / np.maximum(before, _TINY), 1.0, _FACTOR) if scale else _FACTOR)
        before = excess
        whole = y.size // _FACTOR * _FACTOR
        precision = (1.0 / u[:whole]).reshape(-1, _FACTOR)
        u = 1.0 / precision.sum(axis=1)
        y, size = u * (precision * y[:whole].reshape(-1, _FACTOR)).sum(axis=1), size * _FACTOR
    return effect


def block_sums(scores: Array, weights: Array, size: int) -> Array:
    """Return the sums of whole blocks of `size` scores, as `design_effects` takes them."""
    whole = scores.size // size * size
    return sums_by(np.arange(whole) // size, scores[:whole], weights[:whole], whole // size)


def sums_by(block: NDArray[np.int64], scores: Array, weights: Array, count: int) -> Array:
    """Return the sums of `count` blocks, as `design_effects` takes them; `block` is the number of each score's."""
    w, x = weights, scores
    return np.stack([np.bincount(block, sums, count) for sums in (w, w * x, w * w, w * w * x, w * w * x * x)])


def _means(blocks: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the blocks' means, their variances were the scores independent, and which blocks have scores.

    The variance of a score is that of all blocks so far, drawn to 1/4 with the weight of one score: never 0.
    """
    there = blocks[0] > 0.0
    total, tx, squares, sx, sxx = np.cumsum(blocks, axis=1)
    total, squares = np.maximum(total, _TINY), np.maximum(squares, _TINY)
    mean, n = tx / total, total**2 / squares
    spread = np.maximum(0.0, sxx - 2.0 * mean * sx + mean**2 * squares) / squares
    variance = (0.25 + n * spread) / (n + 1.0)
    weight = np.where(there, blocks[0], 1.0)
    return blocks[1] / weight, variance * blocks[2] / weight**2, there


def _against_the_ones_before(y: Array, u: Array) -> tuple[Array, Array]:
    """Return the sums over the first 0, 1, ... blocks of the ratios and of their number."""
    padded = -y.size % _GROUP

    def before(x: Array) -> Array:
        groups = np.pad(x, (0, padded)).reshape(-1, _GROUP)
        sums: Array = (np.cumsum(groups, axis=1) - groups).ravel()[: x.size]
        return sums

    known = np.arange(y.size) % _GROUP > 0
    precision = np.where(known, before(1.0 / u), 1.0)
    ratios = np.where(known, (y - before(y / u) / precision) ** 2 / (u + 1.0 / precision), 0.0)
    return np.concatenate([[0.0], np.cumsum(ratios)]), np.concatenate([[0.0], np.cumsum(known)])


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
