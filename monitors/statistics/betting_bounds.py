"""Lower confidence bounds on a mean, updated bucket by bucket; the state has at most a few hundred numbers.

Both accept weights w = (smallest sampling rate)/(rate of the score) in (0, 1]. They need E[w (x - mean)] = 0 over the
judged exchanges, which holds for rates fixed before the score (docs/explanation/estimates.md#the-mean). The bet is
fixed before a bucket is seen and the same for all of its scores, so their order does not matter.

Reference: Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", arXiv 2010.09686.
"""

from __future__ import annotations

import base64
import math

import numpy as np

from monitors.statistics.eprocess import Array

GRID = 50
"""Candidate means of `WindowLower`; the bound is interpolated between two of them, conservatively."""
LARGEST_BET, LARGEST_RUNNING_BET = 0.9, 0.5


def packed(values: Array) -> str:
    """Encode numbers as base64 of their 64-bit form: exact, and half as long as decimals.

    >>> unpacked(packed(np.array([[0.1, 2.0]])), (1, 2)).tolist()
    [[0.1, 2.0]]
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def unpacked(text: str, shape: tuple[int, ...]) -> Array:
    """Decode numbers from `packed`. Raises ValueError if they do not fit `shape`."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8").reshape(shape).astype(np.float64)


class Spread:
    """The running variance of weighted scores, shrunk towards 1/4 by one score; it sets the bets.

    >>> spread = Spread()
    >>> spread.variance
    0.25
    >>> spread.update(np.array([0.0, 1.0] * 50), np.ones(100))
    >>> spread.n, round(spread.variance, 3)
    (100, 0.25)
    """

    SIZE = 4

    def __init__(self) -> None:
        self.state = np.array([0.0, 0.0, 0.0, 0.25])

    @property
    def n(self) -> int:
        """The number of scores."""
        return int(self.state[0])

    @property
    def variance(self) -> float:
        """The mean of (w (x - mean))^2."""
        return float(self.state[3] / (self.state[0] + 1.0))

    def update(self, x: Array, w: Array) -> None:
        """Add scores."""
        n, total, weighted, squares = self.state.tolist()
        total, weighted = total + float(w.sum()), weighted + float((w * x).sum())
        mean = (0.5 + weighted) / (1.0 + total)
        squares += float(np.square(w * (x - mean)).sum())
        self.state = np.array([n + x.size, total, weighted, squares])


class WindowLower:
    """The betting lower bound on the mean of a window of about `n` scores, wrong with probability <= `alpha`.

    For each candidate m of a grid, the log of a gambler's capital who bets on "the mean is above m"::

        C(m) = sum_i ln(1 + lam_i w_i (x_i - m))        lam_i = min( sqrt(2 ln(1/alpha) / (n V)), 0.9 )

    with V the `Spread` before the bucket (arXiv 2010.09686, the bets for a fixed number of scores). If the mean is at
    most m, C(m) >= ln(1/alpha) has probability <= alpha at any time (Ville). C falls in m, so everything below the
    largest such m is rejected. C is concave in m: a chord lies below it, and interpolating between two candidates can
    only lower the bound.

    >>> window = WindowLower(n=2000, alpha=0.05)
    >>> for _ in range(200):
    ...     window.update(np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), np.ones(10))
    >>> window.n, round(window.bound(), 3)
    (2000, 0.832)
    """

    def __init__(self, n: int, alpha: float) -> None:
        if n < 1 or not 0.0 < alpha < 1.0:
            raise ValueError(f"a window has at least one score and alpha lies in (0, 1), got {n!r} and {alpha!r}")
        self._level = -math.log(alpha)
        self._wanted = n
        self._grid = np.linspace(0.0, 1.0, GRID + 1)
        self._capital = np.zeros(GRID + 1)
        self._spread = Spread()

    @property
    def n(self) -> int:
        """The number of scores."""
        return self._spread.n

    def update(self, x: Array, w: Array) -> None:
        """Add the scores of a bucket."""
        bet = min(LARGEST_BET, math.sqrt(2.0 * self._level / (self._wanted * self._spread.variance)))
        self._capital += np.log1p(bet * w[:, None] * (x[:, None] - self._grid)).sum(axis=0)
        self._spread.update(x, w)

    def bound(self) -> float:
        """Return the bound; 0 while no candidate is rejected."""
        refuted = int(np.count_nonzero(self._capital >= self._level))
        if not refuted:
            return 0.0
        # no capital grows at m = 1, so at least one candidate is never rejected
        above, below = self._capital[refuted - 1 : refuted + 1].tolist()
        return float(self._grid[refuted - 1] + (above - self._level) / (above - below) / GRID)

    def dumps(self) -> str:
        """Return the state as text."""
        return packed(np.concatenate([self._spread.state, self._capital]))

    def loads(self, state: str) -> None:
        """Restore a state from `dumps`."""
        values = unpacked(state, (Spread.SIZE + GRID + 1,))
        self._spread.state, self._capital = values[: Spread.SIZE], values[Spread.SIZE :]


class RunningLower:
    """A lower confidence sequence: above the true mean at *any* time with probability <= `alpha`, O(1) memory.

    Predictable plug-in empirical Bernstein, with the deviations taken from the candidate mean m itself, so that weights
    need no estimate of anything. For xi = w (x - m) >= -1 and a bet lam in (0, 1/2] fixed before the score::

        exp( lam xi - psi(lam) xi^2 ) <= 1 + lam xi          psi(l) = -ln(1 - l) - l        (Fan, Grama & Liu 2015)

    so, while the mean is at most m, the product over the scores reaches 1/alpha with probability <= alpha. Its log is a
    quadratic in m, with sums over the scores as coefficients; the bound is where it equals ln(1/alpha)::

        A - B m - (C - 2 D m + E m^2)    A = sum lam w x,  B = sum lam w,  C, D, E = sum psi w^2 (x^2, x, 1)
        lam = min( sqrt( 2 ln(1/alpha) / (V t ln(1 + t)) ), 1/2 )     t: scores with this bucket's, V: `Spread` before

    With lam <= 1/2 it falls in m on [0, 1]. The bound never decreases.

    >>> running = RunningLower(alpha=0.05)
    >>> spread = Spread()
    >>> for _ in range(200):
    ...     x, w = np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), np.ones(10)
    ...     running.update(x, w, spread.variance)
    ...     spread.update(x, w)
    >>> running.n, round(running.bound, 3)
    (2000, 0.825)
    """

    SIZE = 7

    def __init__(self, alpha: float) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
        self._level = -math.log(alpha)
        self.state = np.zeros(self.SIZE)

    @property
    def n(self) -> int:
        """The number of scores."""
        return int(self.state[0])

    @property
    def bound(self) -> float:
        """Return the bound; 0 while no candidate is rejected."""
        return float(self.state[-1])

    def update(self, x: Array, w: Array, variance: float) -> None:
        """Add the scores of a bucket; `variance` is their variance as known before it."""
        n, a, b, c, d, e, best = self.state.tolist()
        n += x.size
        bet = min(LARGEST_RUNNING_BET, math.sqrt(2.0 * self._level / (variance * n * math.log1p(n))))
        psi = -math.log1p(-bet) - bet
        wx = w * x
        a, b = a + bet * float(wx.sum()), b + bet * float(w.sum())
        c, d, e = c + psi * float(wx @ wx), d + psi * float(wx @ w), e + psi * float(w @ w)
        gain, slope = a - c - self._level, b - 2.0 * d
        if gain > 0.0:
            # the positive root of -e m^2 - slope m + gain, in the form without a difference of near equals
            best = max(best, 2.0 * gain / (slope + math.sqrt(slope * slope + 4.0 * e * gain)))
        self.state = np.array([n, a, b, c, d, e, best])
