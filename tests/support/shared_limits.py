"""What processes that share a limit may admit together."""

from __future__ import annotations

from gateway.access.token_bucket import burst_of

_UNHEARD = 2
"""A process that does not know how many others there are takes one part in so many times as many."""


def most_admitted(per_min: float, processes: int, hearing_s: float, seconds: float) -> float:
    """Return the most that all processes together admit within `seconds` when each syncs every `hearing_s`.

    Besides the burst and the refill that is what is taken before the others see it: for each process twice its rate and
    one request, and half a burst where it is spent before processes that did not know the key see it.

    >>> most_admitted(60, 1, 1.0, 60)
    120.0
    >>> most_admitted(60, 3, 1.0, 60)
    162.0
    """
    rate = per_min / 60.0
    allowed = burst_of(per_min) + rate * seconds
    if processes == 1:
        return allowed
    return allowed + burst_of(per_min) / _UNHEARD + 2 * processes * (rate * hearing_s + 1.0)
