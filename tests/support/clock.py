"""A clock that tests turn by hand, and how long they wait for a real one."""

from __future__ import annotations

import os
import time


class Clock:
    """Goes as far as a test sets it, or as somebody sleeps; `slept` are those pauses, in seconds."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass without waiting."""
        self.slept.append(round(seconds, 3))
        self.now += seconds


class Patience:
    """Seconds of an idle machine: with three processes for each core a wait may last three times as long."""

    def __init__(self, seconds: float) -> None:
        self._left, self._at = seconds, time.monotonic()

    def is_over(self) -> bool:
        """Count the time since the last call, as far as there was a core for it; call it often."""
        now = time.monotonic()
        self._left -= (now - self._at) / max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        self._at = now
        return self._left < 0.0
