"""Student's t distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

_EXACT_BELOW = 40


def student(alpha: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t: |T| exceeds it with probability `alpha`.

    Below 40 degrees of freedom by the finite sum for integer degrees (Abramowitz & Stegun 26.7.3 and 26.7.4) and
    bisection, from there on by the expansion 26.7.5.

    >>> round(student(0.05, 1), 4), round(student(0.05, 19), 4), round(student(0.05, 100), 4)
    (12.7062, 2.093, 1.984)
    """
    if not 0.0 < alpha < 1.0 or degrees < 1:
        raise ValueError(f"alpha lies in (0, 1) and there is a degree of freedom, got {alpha!r} and {degrees!r}")
    if degrees >= _EXACT_BELOW:
        return _expanded(NormalDist().inv_cdf(1.0 - alpha / 2.0), degrees)
    low, high = 0.0, math.pi / 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, degrees) < 1.0 - alpha else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(theta: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) tan theta)."""
    odd = degrees % 2
    square = math.cos(theta) ** 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for step in range(degrees // 2):
        total += term
        term *= square * ((2 * step + 2) / (2 * step + 3) if odd else (2 * step + 1) / (2 * step + 2))
    total *= math.sin(theta)
    return 2.0 / math.pi * (theta + total) if odd else total


def _expanded(z: float, degrees: int) -> float:
    g1 = (z**3 + z) / 4.0
    g2 = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    g3 = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + g1 / degrees + g2 / degrees**2 + g3 / degrees**3
