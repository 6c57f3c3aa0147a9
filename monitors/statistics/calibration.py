"""Calibration of scores: a monotone map from a raw score to the expected truth, and how far off scores are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from msgspec import Struct

from monitors.statistics.agreement import Interval, least, share_at_any_time
from monitors.statistics.confidence_sequence import ALPHA
from monitors.statistics.eprocess import Array, bets, log_evidence, log_factors, log_mean

BINS = 10
MIN_PAIRS = 30
"""Pairs from which on a map is fitted."""
ENOUGH_FOR_ISOTONIC = 200
"""Pairs from which on the map is isotonic; with fewer, a logistic one errs as little (benchmarks/statistics)."""
KNOTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
"""Scores at which a logistic map is written."""
_CLIP, _RIDGE, _STEPS = 0.005, 1e-3, 50


class Calibration(Struct, frozen=True):
    """A rising map of scores in [0, 1], linear between `scores` and their `values`, as `gaugeway.toml` holds it.

    `fitted_for` identifies the version and judge whose scores it maps.

    >>> made = Calibration.parse("isotonic 0f0f0f0f: 0.0 0.1 1.0 0.9")
    >>> made.apply([0.0, 0.5]).round(3).tolist(), str(made)
    ([0.1, 0.5], 'isotonic 0f0f0f0f: 0.0 0.1 1.0 0.9')
    """

    kind: str
    fitted_for: str
    scores: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Calibration:
        """Read the text of a map. Raises ValueError for any other text, and for a map that falls."""
        kind, fitted_for, *numbers = text.replace(":", "").split() if ":" in text else ["", ""]
        made = cls(kind, fitted_for, tuple(map(float, numbers[::2])), tuple(map(float, numbers[1::2])))
        ends = (*made.scores[:1], *made.values[:1], 1.0 - max((0.0, *made.scores, *made.values)))
        rising = all(list(some) == sorted(some) for some in (made.scores, made.values))
        if not (numbers and len(numbers) % 2 == 0 and rising and min(ends) >= 0.0):
            raise ValueError("expected pairs of a score and its value, all in [0, 1], neither of them falling")
        return made

    @property
    def is_flat(self) -> bool:
        """Whether all scores become one value, so that no drop could be seen."""
        return self.values[0] == self.values[-1]

    def __str__(self) -> str:
        pairs = zip(self.scores, self.values, strict=True)
        return f"{self.kind} {self.fitted_for}: {' '.join(repr(round(number, 4)) for pair in pairs for number in pair)}"

    def apply(self, scores: Sequence[float] | Array) -> Array:
        """Return the calibrated scores, in [0, 1]."""
        return np.interp(scores, self.scores, self.values)


def digest(*parts: str | None) -> str:
    """Return what identifies a version and judge, or a map, in a calibration: eight hexadecimal digits."""
    return blake2b(repr(parts).encode(), digest_size=4).hexdigest()


def fit(scores: Sequence[float] | Array, truths: Sequence[float] | Array, fitted_for: str) -> Calibration:
    """Fit the map to pairs of a score and the truth about it, both in [0, 1]; isotonic from 200 pairs on, else Platt's.

    Isotonic: pool adjacent violators, linear between the centres of the pools (Ayer et al. 1955, Ann. Math. Stat. 26;
    Oron & Flournoy 2017, Stat. Biopharm. Res. 9), with a success and a failure more at either end of the scale, so that
    no map says 0 or 1 for sure. Platt (1999): the logistic regression on the logit of the score, with his targets
    (n+ + 1)/(n+ + 2) and 1/(n- + 2); a falling slope becomes 0. Raises ValueError with fewer than 30 pairs.

    >>> rng = np.random.default_rng(1)
    >>> scores = rng.random(2000)
    >>> fit(scores, rng.random(2000) < scores**2, "0" * 8).apply([0.3, 0.7]).round(1).tolist()
    [0.1, 0.5]
    """
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if x.shape != y.shape or x.size < MIN_PAIRS:
        raise ValueError(f"a calibration map needs at least {MIN_PAIRS} pairs of a score and a truth")
    kind, made = ("isotonic", _isotonic(x, y)) if x.size >= ENOUGH_FOR_ISOTONIC else ("platt", _platt(x, y))
    return Calibration.parse(str(Calibration(kind, fitted_for, *made)))  # rounded as it is written


def _isotonic(x: Array, y: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x, y = np.concatenate([[0.0, 0.0, 1.0, 1.0], x]), np.concatenate([[0.0, 1.0, 0.0, 1.0], y])
    at = np.unique(x, return_inverse=True)[1]
    pools: list[tuple[float, float, float]] = []  # number, sum of scores, sum of truths
    for pool in zip(np.bincount(at), np.bincount(at, x), np.bincount(at, y), strict=True):
        pools.append(pool)
        while len(pools) > 1 and pools[-2][2] * pools[-1][0] >= pools[-1][2] * pools[-2][0]:
            last, before = pools.pop(), pools.pop()
            pools.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    return tuple(float(score / n) for n, score, _ in pools), tuple(float(truth / n) for n, _, truth in pools)


def _platt(x: Array, y: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    good, bad = float(y.sum()), float((1.0 - y).sum())
    targets = y * (good + 1.0) / (good + 2.0) + (1.0 - y) / (bad + 2.0)
    logits = np.log(np.clip(np.array([x, 1.0 - x]), _CLIP, 1.0))
    design, (slope, intercept) = np.stack([logits[0] - logits[1], np.ones(x.size)], axis=1), np.zeros(2)
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-design @ (slope, intercept)))
        hessian = (design * (p * (1.0 - p))[:, None]).T @ design + _RIDGE * np.eye(2)
        steps = np.linalg.solve(hessian, design.T @ (targets - p) - _RIDGE * np.array([slope, intercept]))
        slope, intercept = np.array([slope, intercept]) + np.clip(steps, -2.0, 2.0)
    if slope <= 0.0:
        slope, intercept = np.array([0.0, math.log((good + 1.0) / (bad + 1.0))])
    clipped = np.clip(np.array(KNOTS), _CLIP, 1.0 - _CLIP)
    values = 1.0 / (1.0 + np.exp(-slope * np.log(clipped / (1.0 - clipped)) - intercept))
    return KNOTS, tuple(np.clip(values, _CLIP, 1.0 - _CLIP).tolist())


class Bin(Struct, frozen=True, kw_only=True):
    """The pairs with scores in one tenth of the scale: their mean score, and their mean truth.

    Its interval may be looked at as labels arrive.
    """

    predicted: float
    observed: Interval


class Reliability(Struct, frozen=True, kw_only=True):
    """The expected calibration error of `n` pairs over ten equal bins, with its 95 % interval, and the bins with pairs.

    `ece` is the plug-in estimate, which few pairs push up, even for perfect scores: read the interval.
    """

    n: int
    ece: float
    low: float
    high: float
    bins: tuple[Bin, ...]


def reliability(scores: Sequence[float] | Array, truths: Sequence[float] | Array, alpha: float = ALPHA) -> Reliability:
    """Compare scores with truths, both in [0, 1], given in the order in which the truths arrived.

    With d = score - truth and bin b, ECE = sum_b |E[d in b]| = max over signs s_b of E[s_b d] (Naeini, Cooper &
    Hauskrecht 2015, AAAI). Whatever the signs, E[s_b d] <= ECE: its lower confidence sequence with the signs of the
    pairs before is a lower bound. The largest upper bound over all signs is an upper bound, as the true signs are among
    them. Both are betting sequences at alpha/2 (arXiv 2010.09686): m is refuted when the mean over bets g of
    prod(1 + g (s d - m)/(1 + m)), or of prod(1 + g (m - s d)/(1 + m)) with the least product of each bin over its
    signs, reaches 2/alpha. The probability that the ECE is ever
    outside, whenever one looks, is at most alpha if each pair is a fresh draw and the scores were not fitted to these
    truths. Raises ValueError without pairs.

    >>> rng = np.random.default_rng(1)
    >>> scores = rng.random(4000)
    >>> found = reliability(scores, rng.random(4000) < 0.5 * scores)
    >>> found.low < 0.25 < found.high, found.high - found.low < 0.08
    (True, True)
    """
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if x.shape != y.shape or not x.size:
        raise ValueError("need as many scores as truths, at least one")
    at, d = np.minimum((x * BINS).astype(np.int64), BINS - 1), x - y
    ece = float(np.abs(np.bincount(at, d, BINS)).sum()) / x.size
    low, high = _lower(at, d, alpha / 2.0), _upper(at, d, alpha / 2.0)
    bins = tuple(
        Bin(predicted=float(x[mask].mean()), observed=share_at_any_time(float(y[mask].sum()), int(mask.sum()), alpha))
        for mask in (at == number for number in np.unique(at))
    )
    return Reliability(n=x.size, ece=ece, low=min(low, ece), high=max(high, ece), bins=bins)


def _lower(at: Array, d: Array, alpha: float) -> float:
    signs = np.zeros(d.size)
    for mask in (at == number for number in np.unique(at)):
        signs[mask] = np.sign(np.cumsum(d[mask]) - d[mask])

    return least(lambda m: bool(log_evidence((signs * d - m) / (1.0 + m)) < -math.log(alpha)))


def _upper(at: Array, d: Array, alpha: float) -> float:
    order = np.argsort(at)
    starts = np.flatnonzero(np.diff(at[order], prepend=-1))

    def refuted(m: float) -> bool:
        both = np.array([log_factors((m - sign * d[order]) / (1.0 + m), bets()) for sign in (1.0, -1.0)])
        return float(log_mean(np.add.reduceat(both, starts, axis=1).min(axis=0).sum(axis=0))) >= -math.log(alpha)

    return least(refuted)
