"""A clock that tests turn by hand."""

from __future__ import annotations


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
