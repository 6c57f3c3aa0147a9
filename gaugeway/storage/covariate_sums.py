"""Sums of judged scores and their covariate, which a store adds up and `monitors.statistics.control_variate` reads."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The moments of one stratum; two parts are merged by `+`, so that a store can aggregate.

    `n_all`, `f`, `ff` are over all its exchanges: their number, sum f and sum f^2. All others are over the judged ones,
    with u = 1/pi: `n` their number, `u`, `uy`, `uf`, `uyy`, `uyf`, `uff` sums of u, u Y, u f, u Y^2, u Y f, u f^2, and
    `u2` ... `u2ff` the same with u^2.
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

    def of_traffic(self, n_all: int, f: float, ff: float) -> Sums:
        """Return a copy with the number and the covariate sums of all exchanges replaced."""
        return replace(self, n_all=n_all, f=f, ff=ff)
