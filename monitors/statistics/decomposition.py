"""Decomposition of a fall of a mean into changes within groups and a change of the groups' shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from monitors.statistics.weighted_mean import Estimate, hajek

Array: TypeAlias = NDArray[np.float64]
Members: TypeAlias = NDArray[np.intp]

LEAST_N_EFF = 10.0
"""Minimum effective sample size of a comparison."""
_LEAST_COMMON = 0.1


class Contrast(Struct, frozen=True, kw_only=True):
    """A difference of means with its standard error; positive where the mean fell."""

    value: float
    se: float

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the two-sided normal interval of level 1 - `alpha`, for two closed windows.

        >>> low, high = Contrast(value=0.2, se=0.05).interval(0.05)
        >>> round(low, 3), round(high, 3)
        (0.102, 0.298)
        """
        half = NormalDist().inv_cdf(1.0 - alpha / 2.0) * self.se
        return self.value - half, self.value + half

    def clear(self, alpha: float) -> bool:
        """Return whether the whole interval is above 0."""
        return self.interval(alpha)[0] > 0.0

    @property
    def p_value(self) -> float:
        """The one-sided p-value of "it did not fall", in [0, 1].

        >>> round(Contrast(value=0.1, se=0.05).p_value, 4)
        0.0228
        """
        return 0.5 * math.erfc(self.value / self.se / math.sqrt(2.0)) if self.se > 0.0 else 1.0


def fall(before: Estimate | None, since: Estimate | None, *, least: float = LEAST_N_EFF) -> Contrast | None:
    """Return the fall of the mean from `before` to `since`; None if either has fewer than `least` effective scores.

    V = s_b^2/t_b + s_s^2/t_s with t = n_eff and s^2 = (1/4 + t sd^2)/(t + 1), as in `confidence_sequence`: equal
    scores do not give a zero error.

    >>> fall(Estimate(mean=0.9, sd=0.3, n=100, n_eff=100.0), Estimate(mean=0.6, sd=0.3, n=9, n_eff=9.0))
    >>> dropped = fall(Estimate(mean=0.9, sd=0.3, n=400, n_eff=400.0), Estimate(mean=0.6, sd=0.3, n=100, n_eff=100.0))
    >>> round(dropped.value, 3), round(dropped.se, 3), dropped.clear(0.001)
    (0.3, 0.034, True)
    """
    if before is None or since is None or min(before.n_eff, since.n_eff) < least:
        return None
    return Contrast(value=before.mean - since.mean, se=math.sqrt(_variance(before) + _variance(since)))


class Grouped(Struct, frozen=True, kw_only=True):
    """Scores of one period with the group index of each; `rates` are inclusion probabilities."""

    values: Sequence[float]
    rates: Sequence[float]
    groups: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group: its share of the traffic and its mean, before and since; None where it has no score."""

    share_before: float
    share_since: float
    before: Estimate | None
    since: Estimate | None


class Decomposition(Struct, frozen=True, kw_only=True):
    """A fall of the mean as the sum of a part `within` the groups and a part `mix` from their shares."""

    total: Contrast
    within: Contrast
    mix: Contrast
    groups: Mapping[int, Group]


def decompose(before: Grouped, since: Grouped, *, least: float = LEAST_N_EFF) -> Decomposition | None:
    """Split the fall of a mean into the change within groups and the change of their shares (Kitagawa, Oaxaca).

    With shares p_h, means m_h (all weighted by 1/rate) and C the groups worth `least` scores on both sides::

        q_h    = p_h(before) / sum over C of p(before)
        within = sum over C of q_h (m_h(before) - m_h(since))      the fall if the mix had stayed
        mix    = m(before) - m(since) - within

    A new group is no part of `within`, as the old mix had none of it. Standard errors are by the delta method from the
    influence of each score, those of `within` with variances shrunk as in `fall`. None if the common groups are less
    than a tenth of either side.

    Reference: E. M. Kitagawa (1955), Components of a difference between two rates, JASA 50.

    >>> easy, hard = [1.0, 0.8] * 50, [0.4, 0.2] * 50
    >>> old = Grouped(values=easy * 3 + hard, rates=[1.0] * 400, groups=[0] * 300 + [1] * 100)
    >>> new = Grouped(values=easy + hard, rates=[1.0] * 200, groups=[0] * 100 + [1] * 100)
    >>> parts = decompose(old, new)
    >>> [abs(round(part.value, 3)) for part in (parts.total, parts.within, parts.mix)]
    [0.15, 0.0, 0.15]
    """
    sides = _Side(before), _Side(since)
    parts = {index: _group(index, *sides) for index in sorted({*before.groups, *since.groups})}
    common = [index for index, part in parts.items() if fall(part.before, part.since, least=least) is not None]
    covered = [sum(getattr(parts[index], share) for index in common) for share in ("share_before", "share_since")]
    total = fall(sides[0].mean, sides[1].mean, least=least)
    if total is None or min(covered, default=0.0) < _LEAST_COMMON:
        return None
    size = max(parts) + 1
    quota, mean_before, mean_since = np.zeros(size), np.zeros(size), np.zeros(size)
    shrunk = 0.0
    for index in common:
        old, new = parts[index].before, parts[index].since
        if old is not None and new is not None:
            quota[index] = parts[index].share_before / covered[0]
            mean_before[index], mean_since[index] = old.mean, new.mean
            shrunk += quota[index] ** 2 * (_shrinkage(old) + _shrinkage(new))
    within = float((quota * (mean_before - mean_since)).sum())
    of_old, of_new = sides
    known = quota[of_old.members] > 0.0
    gap = of_old.values - mean_since[of_old.members] - within
    within_old = np.where(known, of_old.shares * gap / covered[0], 0.0)
    within_new = -quota[of_new.members] * of_new.within_group * (of_new.values - mean_since[of_new.members])
    mix_old = of_old.shares * (of_old.values - of_old.mean.mean) - within_old
    mix_new = -of_new.shares * (of_new.values - of_new.mean.mean) - within_new
    return Decomposition(
        total=total,
        within=Contrast(value=within, se=math.sqrt(_square(within_old) + _square(within_new) + shrunk)),
        mix=Contrast(value=total.value - within, se=math.sqrt(_square(mix_old) + _square(mix_new))),
        groups=parts,
    )


class _Side:
    """One side as arrays: `shares` of the total weight, `within_group` of the weight of the score's group."""

    def __init__(self, grouped: Grouped) -> None:
        self.values: Array = np.asarray(grouped.values, dtype=np.float64)
        self.rates: Array = np.asarray(grouped.rates, dtype=np.float64)
        self.members: Members = np.asarray(grouped.groups, dtype=np.intp)
        self.mean = hajek(grouped.values, grouped.rates)
        weights = self.rates.min() / self.rates
        self.shares: Array = weights / weights.sum()
        self.within_group: Array = self.shares / np.bincount(self.members, weights=self.shares)[self.members]

    def of(self, index: int) -> tuple[float, Estimate | None]:
        """Return the share and the mean of one group."""
        here = self.members == index
        if not here.any():
            return 0.0, None
        return float(self.shares[here].sum()), hajek(self.values[here].tolist(), self.rates[here].tolist())


def _group(index: int, before: _Side, since: _Side) -> Group:
    (share_before, old), (share_since, new) = before.of(index), since.of(index)
    return Group(share_before=share_before, share_since=share_since, before=old, since=new)


def _variance(estimate: Estimate) -> float:
    """Return the variance of the mean, with the scores' variance shrunk towards 1/4 by one score."""
    t = estimate.n_eff
    return (0.25 + t * estimate.sd**2) / (t + 1.0) / t


def _shrinkage(estimate: Estimate) -> float:
    """Return what the shrinkage adds to the variance of the mean."""
    return max(0.0, _variance(estimate) - estimate.sd**2 / estimate.n_eff)


def _square(influence: Array) -> float:
    return float((influence**2).sum())


LEAST = 20
_QUANTILE, _GRID = 19.77, 2
"""The 99 % quantile of |argmax (W(v) - |v|/2)|, W a two-sided Brownian motion. Scores are discrete, which matters for
steep falls: two more scores on either side."""


class Onset(Struct, frozen=True, kw_only=True):
    """The time of the first score after the fall, and the 99 % interval around it."""

    at: float
    earliest: float
    latest: float


def onset(times: Sequence[float], values: Sequence[float], rates: Sequence[float]) -> Onset | None:
    """Date one fall of a mean by least squares; None without a fall, or with fewer than `LEAST` scores.

    With weights w = 1/rate, left and right of a split k: at = argmax_k W_l W_r/(W_l + W_r) (m_l - m_r)^2 over the
    splits with m_l > m_r. The interval is k +- (19.77 s^2/(m_l - m_r)^2 n/n_eff + 2) scores, s the standard deviation
    around the two means.

    Reference: Y.-C. Yao (1987), Approximating the distribution of the maximum likelihood estimate of the change-point.

    >>> found = onset(range(100), [0.9, 0.8] * 30 + [0.5, 0.4] * 20, [1.0] * 100)
    >>> found.at, found.earliest, found.latest
    (60.0, 57.0, 63.0)
    """
    if len(times) < LEAST:
        return None
    order = np.argsort(np.asarray(times, dtype=np.float64), kind="stable")
    at, x = np.asarray(times, dtype=np.float64)[order], np.asarray(values, dtype=np.float64)[order]
    rate = np.asarray(rates, dtype=np.float64)[order]
    w = rate.min() / rate
    weight, total = np.cumsum(w), np.cumsum(w * x)
    left, right = weight[:-1], weight[-1] - weight[:-1]
    gap = total[:-1] / left - (total[-1] - total[:-1]) / right
    gain = np.where(gap > 0.0, left * right / weight[-1] * gap**2, 0.0)
    split = int(gain.argmax())
    if gain[split] <= 0.0:
        return None
    drop = float(gap[split])
    level = np.where(np.arange(x.size) <= split, total[split] / left[split], (total[-1] - total[split]) / right[split])
    variance = float((w * (x - level) ** 2).sum() / weight[-1])
    worth = float(weight[-1] ** 2 / (w**2).sum()) / x.size
    half = int(np.ceil(_QUANTILE * variance / drop**2 / worth)) + _GRID
    first = split + 1
    return Onset(
        at=float(at[first]), earliest=float(at[max(0, first - half)]), latest=float(at[min(x.size - 1, first + half)])
    )
