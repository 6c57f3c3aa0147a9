"""Change-point estimation: when a mean fell, with a 99 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 20
_QUANTILE, _GRID = 19.77, 2
"""The 99 % quantile of |argmax (W(v) - |v|/2)|, W a two-sided Brownian motion. Scores are discrete, which matters for
steep falls: two more scores on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
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
        at=float(at[first]),
        earliest=float(at[max(0, first - half)]),
        latest=float(at[min(x.size - 1, first + half)]),
    )
