"""Sums of scores, which a store adds up, windows merge by `+`, and `monitors.statistics` estimates from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSums:
    """The sums over `n` scores x of weight w = 1/rate: `w`, `wx`, `w2`, `w2x`, `w2x2` of w, w x, w^2, w^2 x, w^2 x^2.

    >>> WeightedSums.of_groups(n=4, x=3.0, x2=3.0, w=1.0) + WeightedSums.of_groups(n=[1], x=[0.5], x2=[0.25], w=[2.0])
    WeightedSums(n=5, w=6.0, wx=4.0, w2=8.0, w2x=5.0, w2x2=4.0)
    """

    n: int = 0
    w: float = 0.0
    wx: float = 0.0
    w2: float = 0.0
    w2x: float = 0.0
    w2x2: float = 0.0

    @staticmethod
    def of(x: NDArray[np.float64], w: NDArray[np.float64]) -> WeightedSums:
        """Return the sums over scores `x` with weights `w`, arrays of one length."""
        return WeightedSums(
            n=x.size,
            w=float(w.sum()),
            wx=float((w * x).sum()),
            w2=float((w * w).sum()),
            w2x=float((w * w * x).sum()),
            w2x2=float((w * w * x * x).sum()),
        )

    @staticmethod
    def of_groups(*, n: ArrayLike, x: ArrayLike, x2: ArrayLike, w: ArrayLike) -> WeightedSums:
        """Return the sums over groups of `n` scores of weight `w`, by their sum `x` and the sum of their squares `x2`.

        All four are numbers, or arrays of one length.
        """
        square = np.multiply(w, w)
        return WeightedSums(
            n=int(np.sum(n)),
            w=float(np.dot(w, n)),
            wx=float(np.dot(w, x)),
            w2=float(np.dot(square, n)),
            w2x=float(np.dot(square, x)),
            w2x2=float(np.dot(square, x2)),
        )

    def __add__(self, other: WeightedSums) -> WeightedSums:
        return WeightedSums(**self._added(other))

    def _added(self, other: WeightedSums) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(WeightedSums)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The moments of judged scores and their covariate in one stratum; two parts are merged by `+`.

    So a store can aggregate. `n_all`, `f`, `ff` are over all its exchanges: their number, sum f and sum f^2. All others
    are over the judged ones, with u = 1/pi: `n` their number, `u`, `uy`, `uf`, `uyy`, `uyf`, `uff` sums of u, u Y, u f,
    u Y^2, u Y f, u f^2, and `u2` ... `u2ff` the same with u^2.
    """

    n_all: int = 0
    f: float = 0.0
    ff: float = 0.0
    n: int = 0
    u: float = 0.0
    uy: float = 0.0
    uf: float = 0.0
    uyy: float = 0.0
    uyf: float = 0.0
    uff: float = 0.0
    u2: float = 0.0
    u2y: float = 0.0
    u2f: float = 0.0
    u2yy: float = 0.0
    u2yf: float = 0.0
    u2ff: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Sums)})
