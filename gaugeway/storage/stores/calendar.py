"""UTC days since 1970, by which stores partition their tables."""

from __future__ import annotations

import math

from gaugeway.storage.engines.failures import RefusedError

DAY_S = 86_400.0
_MAX_DAY = 2**31 - 1  # internal bound: a number of the format or formula


def day_of(moment: float) -> int:
    """The UTC day of a time in Unix seconds, counted from 1970. Raises RefusedError for one out of range.

    >>> day_of(0.0), day_of(-1.0), day_of(86_400.0)
    (0, -1, 1)
    """
    if not abs(moment) / DAY_S < _MAX_DAY:
        raise RefusedError(f"{moment!r} is not a valid time")
    return math.floor(moment / DAY_S)


def days_between(since: float, until: float) -> tuple[int, int]:
    """The first and the last day of times in [since, until), clamped to what a table can hold.

    >>> days_between(0.0, 86_400.0), days_between(-math.inf, 86_401.0)[1]
    ((0, 1), 1)
    """
    furthest = DAY_S * (_MAX_DAY - 1)
    first, last = (min(max(moment, -furthest), furthest) for moment in (since, until))
    return day_of(first), day_of(last)
