"""Exponential back-off between the attempts of an operation that keeps failing."""

from __future__ import annotations

from collections.abc import Callable

_MAX_DOUBLINGS = 60


def delay_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay in seconds after earlier `failures`: `first_s` doubled that often, at most `longest_s`.

    >>> [delay_s(failures, first_s=0.5, longest_s=60.0) for failures in (0, 1, 2, 1000)]
    [0.5, 1.0, 2.0, 60.0]
    """
    return float(min(longest_s, first_s * 2.0 ** min(failures, _MAX_DOUBLINGS)))


class Backoff:
    """The delays of one operation: doubled after each failure, from `first_s` to `longest_s`, and reset by a success.

    `draw` returns the factor of each delay. With `random.random` (full jitter) many processes that lost the same server
    do not reconnect at the same moment.

    >>> backoff = Backoff(0.1, 5.0)
    >>> [backoff.failed() for _ in range(3)], backoff.reset(), backoff.failed()
    ([0.1, 0.2, 0.4], None, 0.1)
    """

    def __init__(self, first_s: float, longest_s: float, draw: Callable[[], float] = lambda: 1.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._draw = draw
        self._failures = 0

    def failed(self) -> float:
        """Record a failure; return the delay before the next attempt, in seconds."""
        delay = delay_s(self._failures, first_s=self._first_s, longest_s=self._longest_s) * self._draw()
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Record a success: the next delay is the first one again."""
        self._failures = 0
