"""What a bucket says to each bet of the e-SR detector: sums that several workers can make and a leader adds up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSums:
    """`logs[k]` is the sum of ln(1 + g_k w (m0 - x)/(1 - m0)) over the bucket's `n` scores, for each bet g_k.

    The sums of parts of one bucket add up to those of the whole, whoever scored what in whatever order (STATISTICS
    1.6), as long as all of them used the same m0. Adding those of other buckets or another m0 raises ValueError.

    >>> LogSums(0.0, 60.0, 0.8, 1, (0.5, -1.0)) + LogSums(0.0, 60.0, 0.8, 2, (0.25, 2.0))
    LogSums(start=0.0, seconds=60.0, m0=0.8, n=3, logs=(0.75, 1.0))
    """

    start: float
    seconds: float
    m0: float
    n: int
    logs: tuple[float, ...]

    def __add__(self, other: LogSums) -> LogSums:
        """Join the sums of two parts of one bucket."""
        if (self.start, self.seconds, self.m0) != (other.start, other.seconds, other.m0):
            raise ValueError("sums of different buckets, or against different means, do not add up")
        logs = tuple(a + b for a, b in zip(self.logs, other.logs, strict=True))
        return LogSums(self.start, self.seconds, self.m0, self.n + other.n, logs)
