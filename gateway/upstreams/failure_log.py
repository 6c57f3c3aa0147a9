"""The log of requests that no upstream answered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.upstreams import UpstreamError
from gaugeway.runtime.logs import RateLimitedWarnings

_log = logging.getLogger("gaugeway")


class FailureLog:
    """Logs failures with their cause, at most one line per upstream in 10 s. `clock` is monotonic, in s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._warnings = RateLimitedWarnings(_log, clock)

    def add(self, upstream: str, error: UpstreamError) -> None:
        """Note that a request failed at its last upstream."""
        self._warnings.warn(upstream, "upstream %s: request failed: %s (%s)", upstream, error.detail, _cause(error))


def _cause(error: UpstreamError) -> str:
    cause = error.__cause__
    if isinstance(cause, UpstreamError):
        cause = cause.__cause__
    if cause is None:
        return error.kind
    return getattr(cause, "strerror", None) or type(cause).__name__
