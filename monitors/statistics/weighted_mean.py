"""Means of scores that were sampled with known probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A weighted mean of `n` scores. Its variance is `sd**2 / n_eff`.

    `design_effect`, at least 1, is that variance over the one of independent scores; `clusters` the number of groups of
    scores that may be alike, None if none are known.
    """

    mean: float
    sd: float
    n: int
    n_eff: float
    design_effect: float = field(default=1.0, repr=False)
    clusters: int | None = field(default=None, repr=False)


def hajek(values: Sequence[float], rates: Sequence[float], clusters: Sequence[int] | None = None) -> Estimate:
    """Estimate the mean over all traffic from scores sampled with probabilities `rates`.

    With weights w = 1/rate (Hajek's ratio estimator; docs/explanation/estimates.md#the-mean)::

        mean  = sum(w x) / sum(w)              V = sum(w^2 (x - mean)^2) / sum(w)^2
        n_eff = sum(w)^2 / sum(w^2)            sd = sqrt(V n_eff)

    so that V = sd^2/n_eff for any rates; with equal rates n_eff = n and sd is the ordinary (population) one.
    With `clusters`, the number of each score's group, the variance is the cluster-robust one over G >= 2 groups, and
    n_eff is divided by the design effect V_c/V where that is above 1::

        V_c = G/(G - 1) sum_groups (sum_in_group w (x - mean))^2 / sum(w)^2

    References: J. Hajek (1971), comment in Foundations of Statistical Inference, ed. Godambe & Sprott; K.-Y. Liang &
    S. L. Zeger (1986), Biometrika 73, for V_c.

    Raises ValueError without values, or for a rate outside (0, 1].

    >>> hajek([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    Estimate(mean=0.75, sd=0.4330127018922193, n=4, n_eff=4.0)
    >>> round(hajek([0.0, 1.0], [0.2, 0.8]).mean, 12)
    0.2
    >>> found = hajek([1.0, 1.0, 0.0, 0.0] * 2, [1.0] * 8, clusters=[1, 1, 2, 2, 3, 3, 4, 4])
    >>> round(found.design_effect, 3), round(found.n_eff, 3), found.clusters
    (2.667, 3.0, 4)
    """
    x = np.asarray(values, dtype=np.float64)
    rate = np.asarray(rates, dtype=np.float64)
    if x.ndim != 1 or x.shape != rate.shape or not x.size:
        raise ValueError("values and rates differ in length, or there are none")
    if not (np.isfinite(x).all() and rate.min() > 0.0 and rate.max() <= 1.0):
        raise ValueError("values are finite and rates lie in (0, 1]")
    weights = rate.min() / rate  # only ratios matter; this scale cannot overflow
    total, squares = float(weights.sum()), float((weights**2).sum())
    mean = float((weights * x).sum()) / total
    variance = float((weights**2 * (x - mean) ** 2).sum())
    effect, groups = 1.0, None if clusters is None else len(set(clusters))
    if groups is not None and 1 < groups < x.size and variance > 0.0:
        sums = np.bincount(np.unique(np.asarray(clusters), return_inverse=True)[1], weights=weights * (x - mean))
        effect = max(1.0, float((sums**2).sum()) * groups / (groups - 1) / variance)
    n_eff = total**2 / squares / effect
    sd = math.sqrt(variance / squares)
    return Estimate(mean=mean, sd=sd, n=x.size, n_eff=n_eff, design_effect=effect, clusters=groups)


def hajek_from_sums(*, n: int, w: float, wx: float, w2: float, w2x: float, w2x2: float) -> Estimate:
    """Return the estimate of `hajek` from sums over the scores of w = 1/rate, w x, w^2, w^2 x and w^2 x^2.

    The variance is a difference of sums, accurate to about 1e-16 for scores in [0, 1]. Raises ValueError without
    scores, or for sums that are not finite.

    >>> hajek_from_sums(n=4, w=4.0, wx=3.0, w2=4.0, w2x=3.0, w2x2=3.0)
    Estimate(mean=0.75, sd=0.4330127018922193, n=4, n_eff=4.0)
    """
    if not (n > 0 and w > 0.0 and w2 > 0.0 and all(map(math.isfinite, (w, wx, w2, w2x, w2x2)))):
        raise ValueError("the sums must be finite and over at least one score")
    mean = wx / w
    spread = w2x2 - 2.0 * mean * w2x + mean * mean * w2
    return Estimate(mean=mean, sd=math.sqrt(max(0.0, spread / w2)), n=n, n_eff=w * w / w2)


@dataclass(slots=True)
class WeightedSums:
    """The sums that `hajek_from_sums` takes, updated score by score or by groups of scores.

    >>> sums = WeightedSums()
    >>> sums.add_groups(n=4, x=3.0, x2=3.0, w=1.0)
    >>> sums.estimate()
    Estimate(mean=0.75, sd=0.4330127018922193, n=4, n_eff=4.0)
    """

    n: int = 0
    w: float = 0.0
    wx: float = 0.0
    w2: float = 0.0
    w2x: float = 0.0
    w2x2: float = 0.0

    def add(self, x: NDArray[np.float64], w: NDArray[np.float64]) -> None:
        """Add scores `x` with weights `w`, arrays of one length."""
        self.n += x.size
        self.w += float(w.sum())
        self.wx += float((w * x).sum())
        self.w2 += float((w * w).sum())
        self.w2x += float((w * w * x).sum())
        self.w2x2 += float((w * w * x * x).sum())

    def add_groups(self, *, n: ArrayLike, x: ArrayLike, x2: ArrayLike, w: ArrayLike) -> None:
        """Add groups of `n` scores of weight `w` by their sum `x` and the sum of their squares `x2`.

        All four are numbers, or arrays of one length.
        """
        square = np.multiply(w, w)
        self.n += int(np.sum(n))
        self.w += float(np.dot(w, n))
        self.wx += float(np.dot(w, x))
        self.w2 += float(np.dot(square, n))
        self.w2x += float(np.dot(square, x))
        self.w2x2 += float(np.dot(square, x2))

    def estimate(self) -> Estimate | None:
        """Return the weighted mean; None without scores."""
        return hajek_from_sums(**asdict(self)) if self.n else None
