"""Exponentially decaying sums."""

from __future__ import annotations

import math


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
