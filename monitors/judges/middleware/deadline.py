"""The deadline of a sample: bounds the time its judging takes, waiting for a free judge not counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from monitors.judges import Judge, JudgeError, Observer
from monitors.judges.middleware.base import Wrapper

T = TypeVar("T")


class Deadline:
    """A budget of `seconds` for all judge calls of one sample; time during which calls overlap counts once."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._used = 0.0
        self._running = 0
        self._since = 0.0

    @property
    def left(self) -> float:
        """Seconds left, at least 0.0."""
        running = self._clock() - self._since if self._running else 0.0
        return max(0.0, self.seconds - self._used - running)

    @contextmanager
    def spending(self) -> Iterator[float]:
        """Count the time the block takes; yields the seconds left at its start."""
        left = self.left
        if not self._running:
            self._since = self._clock()
        self._running += 1
        try:
            yield left
        finally:
            self._running -= 1
            if not self._running:
                self._used += self._clock() - self._since


DEADLINE: ContextVar[Deadline | None] = ContextVar("gaugeway_deadline", default=None)
"""The deadline of the sample under evaluation; the evaluator sets it before the metrics start. None: unbounded."""


class DeadlineJudge(Wrapper):
    """Raises JudgeError("deadline") when the sample's DEADLINE has passed.

    Place it inside `AdaptiveConcurrency`, so that the wait for other samples' calls does not count.
    """

    def __init__(self, judge: Judge, *, observer: Observer | None = None) -> None:
        super().__init__(judge)
        self._observer = observer or Observer()

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        deadline = DEADLINE.get()
        if deadline is None:
            return await call()
        if deadline.left > 0.0:
            try:
                with deadline.spending() as left:
                    async with asyncio.timeout(left):
                        return await call()
            except TimeoutError:
                pass
        self._observer.failed(self.model, "deadline")
        raise JudgeError("deadline", f"the sample's {deadline.seconds:g} s of judging are used up")
