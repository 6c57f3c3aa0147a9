"""Sums that forget: what was lately counts more than what was long ago."""

from __future__ import annotations

import math


class ExponentialDecay:
    """A sum whose terms fade with time constant `tau_s`.

    >>> lately = ExponentialDecay(tau_s=10.0)
    >>> lately.add(1.0, now=0.0)
    >>> round(lately.total(now=10.0), 3)
    0.368
    """

    def __init__(self, tau_s: float) -> None:
        self.tau_s = tau_s
        self._sum = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add what came at `now`, in seconds of any clock."""
        self._sum = self.total(now) + amount
        self._at = max(self._at, now)

    def total(self, now: float) -> float:
        """What is left of all of it at `now`."""
        return self._sum * math.exp(-max(0.0, now - self._at) / self.tau_s)
