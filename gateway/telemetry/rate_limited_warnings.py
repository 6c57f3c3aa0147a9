"""Warnings about what can fail with every request: one line of each kind in 10 s, and how many were left out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

EVERY_S = 10.0
"""At most one line of each kind in this time: what fails with every request must not fill the disk."""


class RateLimitedWarnings:
    """Logs to `log`. `clock` is monotonic, in s. The number of kinds must be bounded: they are kept."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._due: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Log a warning, or count it if another of its kind was logged in the last 10 s."""
        now = self._clock()
        due, skipped = self._due.get(kind, (-math.inf, 0))
        if now < due:
            self._due[kind] = due, skipped + 1
            return
        self._due[kind] = now + EVERY_S, 0
        more = f"; {skipped} more since the last such line" if skipped else ""
        self._log.warning("%s%s", message % arguments if arguments else message, more)
