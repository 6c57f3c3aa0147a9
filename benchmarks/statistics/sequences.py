"""Bounds on a mean that hold for any law of scores in [0, 1], at all times together or for a window that is over.

All accept weights w = pi_min/pi in (0, 1] of scores that were sampled with unequal probabilities pi. What they need is
E[w (x - mean) | past] = 0 over the sampled scores, which holds when every exchange has the same conditional mean given
the past (docs/explanation/estimates.md#the-mean); without weights w = 1.

Reference: Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", arXiv 2010.09686.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monitors.statistics.eprocess import Array, checked

LARGEST_BET = 0.5
"""The largest lambda of the empirical Bernstein sequence, and the largest share of the capital the hedged one bets."""
WINDOW_BET = 0.75
GRID = 500
_BISECTIONS = 40
_MOMENTS, _STATE = 4, 10


class EmpiricalBernstein:
    """A two-sided confidence sequence in closed form: the true mean is ever outside with probability <= alpha.

    Plug-in (predictable) bets; each side has alpha/2, the upper one is the lower one of 1 - x
    (docs/explanation/estimates.md#the-interval)::

        lam_t = min( sqrt( 2 ln(2/alpha) / (s2_{t-1} t ln(1 + t)) ), 1/2 )             psi(l) = -ln(1 - l) - l
        lower_t = ( sum lam_i x_i - ln(2/alpha) - sum psi(lam_i) (x_i - mean_{i-1})^2 ) / sum lam_i

    With weights the same argument (Fan, Grama & Liu 2015, lemma 4.1: exp(l y - psi(l) y^2) <= 1 + l y for y >= -1)
    is applied to y_i = w_i (x_i - m) - (mean_{i-1}(w x) - m mean_{i-1}(w)) >= -1, and `lower` is the larger root m of::

        sum lam_i w_i (x_i - m) - sum psi(lam_i) y_i^2 = ln(2/alpha)

    0 when m = 0 is not refuted. The bounds never loosen. O(1) memory; scores go in in the order of time.

    >>> sequence = EmpiricalBernstein(alpha=0.05)
    >>> sequence.update([0.9, 1.0, 0.8, 0.9] * 100)
    >>> sequence.n, round(sequence.lower, 3), round(sequence.upper, 3)
    (400, 0.879, 0.92)
    """

    def __init__(self, alpha: float = 0.05) -> None:
        self.alpha = _level(alpha)
        self._sides = np.zeros((2, _STATE))

    @property
    def n(self) -> int:
        """How many scores went in."""
        return int(self._sides[0, 0])

    @property
    def lower(self) -> float:
        """The lower bound."""
        return float(self._sides[0, -1])

    @property
    def upper(self) -> float:
        """The upper bound."""
        return 1.0 - float(self._sides[1, -1])

    def update(self, scores: Sequence[float], weights: Sequence[float] | None = None) -> None:
        """Take in more scores. Raises ValueError, unchanged, for a score or weight that cannot be."""
        x, w = checked(scores, [1.0] * len(scores) if weights is None else weights)
        if x.size:
            level = math.log(2.0 / self.alpha)
            self._sides = np.stack(
                [bernstein_path(side, y, w, level)[0] for side, y in zip(self._sides, (x, 1.0 - x), strict=True)]
            )

    def dumps(self) -> str:
        """The whole state as JSON, under 1 kB."""
        return json.dumps({"alpha": self.alpha, "sides": self._sides.tolist()})

    def loads(self, state: str) -> None:
        """Continue from a state that `dumps` gave. Raises ValueError, unchanged, for one of another alpha."""
        saved: dict[str, Any] = json.loads(state)
        sides = np.array(saved.get("sides"), dtype=np.float64)
        if saved.get("alpha") != self.alpha or sides.shape != self._sides.shape:
            raise ValueError(f"a state made for another sequence than alpha = {self.alpha}")
        self._sides = sides


def bernstein_path(state: Array, scores: Array, weights: Array, level: float) -> tuple[Array, Array]:
    """One side of `EmpiricalBernstein` along the first axis of `scores`; further axes are parallel streams.

    `state` (first axis of 10, zeros at the start) and the lower bounds after each score are returned; `level` is
    ln(1/alpha) of this side.

    >>> state, lower = bernstein_path(np.zeros(10), np.full(50, 0.9), np.ones(50), level=math.log(20))
    >>> lower[[0, 9, 49]].round(3).tolist()
    [0.0, 0.27, 0.774]
    """
    wx = weights * scores
    t, s2, moments = _plug_in(state[:_MOMENTS], scores, weights)
    lam = np.minimum(np.sqrt(2.0 * level / (s2 * t * np.log1p(t))), LARGEST_BET)
    psi = -np.log1p(-lam) - lam
    before = np.maximum(t - 1.0, 1.0)
    mean_wx = (state[2] + wx.cumsum(axis=0) - wx) / before
    mean_w = np.where(t > 1.0, (state[1] + weights.cumsum(axis=0) - weights) / before, 1.0)
    a, b = wx - mean_wx, weights - mean_w
    terms = np.stack([lam * wx, lam * weights, psi * a * a, psi * a * b, psi * b * b])
    gain, stake, aa, ab, bb = state[_MOMENTS:-1, None] + terms.cumsum(axis=1)
    at_zero, slope = gain - aa - level, 2.0 * ab - stake
    root = 2.0 * at_zero / (np.sqrt(slope * slope + 4.0 * bb * np.maximum(at_zero, 0.0)) - slope)
    lower = np.maximum(np.maximum.accumulate(np.clip(root, 0.0, 1.0), axis=0), state[-1])
    return np.concatenate([moments, np.stack([gain[-1], stake[-1], aa[-1], ab[-1], bb[-1], lower[-1]])]), lower


def _plug_in(moments: Array, scores: Array, weights: Array) -> tuple[Array, Array, Array]:
    """The time t of each score, the variance of w (x - mean) as known before it, and the moments after the last.

    Moments are n, sum w, sum w x, sum (w (x - mean))^2; the mean starts with one score of 1/2, the variance with 1/4.
    """
    n, w_sum, wx_sum, squares = moments
    t = n + np.arange(1.0, len(scores) + 1.0).reshape(-1, *[1] * (scores.ndim - 1)) + np.zeros_like(scores)
    ws, wxs = w_sum + weights.cumsum(axis=0), wx_sum + (weights * scores).cumsum(axis=0)
    deviations = (weights * (scores - (0.5 + wxs) / (1.0 + ws))) ** 2
    sums = squares + deviations.cumsum(axis=0)
    return t, (0.25 + sums - deviations) / t, np.stack([t[-1], ws[-1], wxs[-1], sums[-1]])


class HedgedBetting:
    """A two-sided confidence sequence on a grid of means m: tighter than `EmpiricalBernstein` for the first thousands.

    Two capitals for each m, one that bets on "the mean is above m", one on "below"
    (docs/explanation/estimates.md#the-interval)::

        K+_t(m) = prod( 1 + min(lam_i, c/m) w_i (x_i - m) )
        K-_t(m) = prod( 1 - min(lam_i, c/(1-m)) w_i (x_i - m) )

    with the plug-in lam of `EmpiricalBernstein`, not cut, and c = 1/2. A mean leaves for good once max(K+, K-)/2 >=
    1/alpha. K+ falls and K- rises with m, so that the bounds, grid points that left, hold between the grid points too.

    The state holds the capitals of the means still in: 5 kB for the default grid at first, under 1 kB when a tenth is
    left. It keeps seven digits of each logarithm.

    >>> sequence = HedgedBetting(alpha=0.05)
    >>> sequence.update([0.9, 1.0, 0.8, 0.9] * 100)
    >>> round(sequence.lower, 3), round(sequence.upper, 3)
    (0.882, 0.912)
    """

    def __init__(self, alpha: float = 0.05, grid: int = GRID) -> None:
        if grid < 2:
            raise ValueError(f"a grid has at least 2 steps, got {grid!r}")
        self.alpha = _level(alpha)
        self.grid = grid
        self._moments = np.zeros(_MOMENTS)
        self._low, self._high = 0, grid
        self._capital = np.zeros((2, grid - 1))

    @property
    def n(self) -> int:
        """How many scores went in."""
        return int(self._moments[0])

    @property
    def lower(self) -> float:
        """The lower bound."""
        return self._low / self.grid

    @property
    def upper(self) -> float:
        """The upper bound."""
        return self._high / self.grid

    def update(self, scores: Sequence[float], weights: Sequence[float] | None = None) -> None:
        """Take in more scores. Raises ValueError, unchanged, for a score or weight that cannot be."""
        x, w = checked(scores, [1.0] * len(scores) if weights is None else weights)
        if not x.size:
            return
        t, s2, self._moments = _plug_in(self._moments, x, w)
        lam = np.sqrt(2.0 * math.log(2.0 / self.alpha) / (s2 * t * np.log1p(t)))[:, None]
        m = np.arange(self._low + 1, self._high) / self.grid
        payoffs = w[:, None] * (x[:, None] - m)
        up = np.log1p(np.minimum(lam, LARGEST_BET / m) * payoffs).cumsum(axis=0) + self._capital[0]
        down = np.log1p(-np.minimum(lam, LARGEST_BET / (1.0 - m)) * payoffs).cumsum(axis=0) + self._capital[1]
        enough = math.log(2.0 / self.alpha)
        below, above = (up >= enough).any(axis=0), (down >= enough).any(axis=0)
        # should both sides win everywhere (a law that changed), the bounds meet where the lower one has got to
        first = int(below.sum())
        last = max(first, len(m) - int(above.sum()))
        self._capital = np.stack([up[-1, first:last], down[-1, first:last]])
        self._low, self._high = self._low + first, self._low + max(last, first) + 1
        self._high = min(self._high, self.grid)

    def dumps(self) -> str:
        """The whole state as JSON."""
        packed = base64.b64encode(self._capital.astype("<f4").tobytes()).decode()
        return json.dumps(
            self._identity() | {"moments": self._moments.tolist(), "in": [self._low, self._high], "capital": packed}
        )

    def loads(self, state: str) -> None:
        """Continue from a state that `dumps` gave. Raises ValueError, unchanged, for one of another alpha or grid."""
        saved: dict[str, Any] = json.loads(state)
        if any(saved.get(key) != value for key, value in self._identity().items()):
            raise ValueError(f"a state made for another sequence than {self._identity()}")
        self._low, self._high = saved["in"]
        capital = np.frombuffer(base64.b64decode(saved["capital"]), dtype="<f4").astype(np.float64)
        self._capital = capital.reshape(2, self._high - self._low - 1)
        self._moments = np.array(saved["moments"])

    def _identity(self) -> dict[str, float]:
        return {"alpha": self.alpha, "grid": self.grid}


def betting_lower(scores: Sequence[float], weights: Sequence[float] | None = None, alpha: float = 0.05) -> float:
    """A lower bound of the mean from a window that is over: above the true mean with probability <= alpha.

    The capital against "the mean is <= m", with bets made for the length n of the window (arXiv 2010.09686, 4.2)::

        K_t(m) = prod_{i<=t} ( 1 + min(lam_i, c/m) w_i (x_i - m) )       lam_i = sqrt( 2 ln(1/alpha) / (n s2_{i-1}) )

    falls with m; the bound is the largest m with max_t K_t(m) >= 1/alpha (Ville's inequality), found by bisection and
    rounded down. c = 3/4. The scores come in an order fixed without looking at them, that of time for instance. This
    is what a baseline is made of (docs/explanation/alerts.md#baselines). Raises ValueError for no score, or
    one that cannot be.

    >>> round(betting_lower([1.0, 1.0, 0.0, 1.0, 1.0] * 400), 3)
    0.777
    >>> round(betting_lower([1.0] * 20), 3)
    0.823
    """
    x, w = checked(scores, [1.0] * len(scores) if weights is None else weights)
    if not x.size:
        raise ValueError("a bound needs at least one score")
    level = -math.log(_level(alpha))
    _, s2, _ = _plug_in(np.zeros(_MOMENTS), x, w)
    lam = np.sqrt(2.0 * level / (len(x) * s2))
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        m = 0.5 * (low + high)
        capital = np.log1p(np.minimum(lam, WINDOW_BET / m) * w * (x - m)).cumsum()
        low, high = (m, high) if capital.max() >= level else (low, m)
    return low


def _level(alpha: float) -> float:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
    return alpha
