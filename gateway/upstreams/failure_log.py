"""The log of requests that no upstream answered."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from gateway.upstreams import UpstreamError

EVERY_S = 10.0
"""At most one line for each upstream in this time: a failing upstream must not fill the disk."""
_log = logging.getLogger("gaugeway")


class FailureLog:
    """Logs failures with their cause, and how many were left out since the last line. `clock` is monotonic, in s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, tuple[float, int]] = {}

    def add(self, upstream: str, error: UpstreamError) -> None:
        """Note that a request failed at its last upstream."""
        now = self._clock()
        due, skipped = self._due.get(upstream, (-math.inf, 0))
        if now < due:
            self._due[upstream] = due, skipped + 1
            return
        self._due[upstream] = now + EVERY_S, 0
        more = f"; {skipped} more since the last such line" if skipped else ""
        _log.warning("upstream %s: request failed: %s (%s)%s", upstream, error.detail, _cause(error), more)


def _cause(error: UpstreamError) -> str:
    cause = error.__cause__
    if isinstance(cause, UpstreamError):
        cause = cause.__cause__
    if cause is None:
        return error.kind
    return getattr(cause, "strerror", None) or type(cause).__name__
