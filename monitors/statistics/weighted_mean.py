"""Means of scores that were sampled with known probabilities, and sums whose terms decay with time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gaugeway.storage.sums import WeightedSums


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A weighted mean of `n` scores. Its variance is `sd**2 / n_eff`.

    `design_effect`, at least 1, is that variance over the one of independent scores; `clusters` the number of groups of
    scores that may be alike, None if none are known; `degrees` the degrees of freedom of the variance, None for
    n_eff - 1.
    """

    mean: float
    sd: float
    n: int
    n_eff: float
    design_effect: float = field(default=1.0, repr=False)
    clusters: int | None = field(default=None, repr=False)
    degrees: float | None = field(default=None, repr=False)

    def widened(self, effect: float) -> Estimate:
        """Return the estimate for a variance that is `effect` times as large."""
        return replace(self, n_eff=self.n_eff / effect, design_effect=self.design_effect * effect, degrees=None)


Numbers: TypeAlias = Sequence[float] | NDArray[np.float64]


def hajek(values: Numbers, rates: Numbers, clusters: Sequence[int] | NDArray[np.int64] | None = None) -> Estimate:
    """Estimate the mean over all traffic from scores sampled with probabilities `rates`.

    With weights w = 1/rate (Hajek's ratio estimator; docs/explanation/estimates.md#the-mean)::

        mean  = sum(w x) / sum(w)              V = sum(w^2 (x - mean)^2) / sum(w)^2
        n_eff = sum(w)^2 / sum(w^2)            sd = sqrt(V n_eff)

    so that V = sd^2/n_eff for any rates; with equal rates n_eff = n and sd is the ordinary (population) one.
    With `clusters`, the number of each score's group, the variance is the cluster-robust one over G >= 2 groups with
    the correction CR2 for few and unequal groups, and n_eff is divided by the design effect V_c/V where that is above
    1. With h the share of a group in sum(w)::

        V_c = sum_groups (sum_in_group w (x - mean))^2/(1 - h) / sum(w)^2        degrees = 1/sum_groups h^2 - 1

    The degrees of freedom are the effective number of groups less one: a few large groups say little about how groups
    differ, however many small ones there are.

    References: J. Hajek (1971), comment in Foundations of Statistical Inference, ed. Godambe & Sprott; K.-Y. Liang &
    S. L. Zeger (1986), Biometrika 73, for V_c; R. M. Bell & D. F. McCaffrey (2002), Surv. Methodol. 28, for CR2; A. V.
    Carter, K. T. Schnepel & D. G. Steigerwald (2017), Rev. Econ. Stat. 99, for the effective number.

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
    effect, groups, degrees = 1.0, None if clusters is None else np.unique(clusters).size, None
    if groups is not None and 1 < groups < x.size:
        numbers = np.unique(np.asarray(clusters), return_inverse=True)[1]
        sums, shares = np.bincount(numbers, weights=weights * (x - mean)), np.bincount(numbers, weights=weights) / total
        effect = max(1.0, float((sums**2 / (1.0 - shares)).sum()) / variance) if variance > 0.0 else 1.0
        degrees = 1.0 / float((shares**2).sum()) - 1.0
    n_eff = total**2 / squares / effect
    sd = math.sqrt(variance / squares)
    return Estimate(mean=mean, sd=sd, n=x.size, n_eff=n_eff, design_effect=effect, clusters=groups, degrees=degrees)


def hajek_from_sums(sums: WeightedSums) -> Estimate | None:
    """Return the estimate of `hajek` from the sums over the scores; None without scores.

    The variance is a difference of sums, accurate to about 1e-16 for scores in [0, 1]. Raises ValueError for sums that
    are not finite.

    >>> hajek_from_sums(WeightedSums(n=4, w=4.0, wx=3.0, w2=4.0, w2x=3.0, w2x2=3.0))
    Estimate(mean=0.75, sd=0.4330127018922193, n=4, n_eff=4.0)
    """
    if not sums.n:
        return None
    if not (
        sums.w > 0.0 and sums.w2 > 0.0 and all(map(math.isfinite, (sums.w, sums.wx, sums.w2, sums.w2x, sums.w2x2)))
    ):
        raise ValueError("the sums must be finite, and those of the weights positive")
    mean = sums.wx / sums.w
    spread = sums.w2x2 - 2.0 * mean * sums.w2x + mean * mean * sums.w2
    return Estimate(mean=mean, sd=math.sqrt(max(0.0, spread / sums.w2)), n=sums.n, n_eff=sums.w * sums.w / sums.w2)


class ExponentialDecay:
    """A sum whose terms decay exponentially with time constant `tau_s`.

    >>> recent = ExponentialDecay(tau_s=10.0)
    >>> recent.add(1.0, now=0.0)
    >>> round(recent.total(now=10.0), 3)
    0.368
    """

    def __init__(self, tau_s: float) -> None:
        self.tau_s = tau_s
        self._sum = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add `amount` at time `now`, in seconds of any clock."""
        self._sum = self.total(now) + amount
        self._at = max(self._at, now)

    def total(self, now: float) -> float:
        """Return the decayed sum at `now`."""
        return self._sum * math.exp(-max(0.0, now - self._at) / self.tau_s)
