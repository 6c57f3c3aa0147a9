"""A deadline for each sample: how long its judging may take, not counting the time it waits for its turn."""

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
    """What is left of a sample's `seconds`. Calls that run side by side use them up once."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._used = 0.0
        self._running = 0
        self._since = 0.0

    @property
    def left(self) -> float:
        """Seconds left, 0.0 at least."""
        running = self._clock() - self._since if self._running else 0.0
        return max(0.0, self.seconds - self._used - running)

    @contextmanager
    def spending(self) -> Iterator[float]:
        """Use it up while the block runs; gives what is left at its start."""
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


PATIENCE: ContextVar[Deadline | None] = ContextVar("gaugeway_patience", default=None)
"""The patience with the sample that is evaluated now; whoever evaluates it sets it, before the metrics start."""


class Patient(Wrapper):
    """Ends a question when its sample's time is used up, with JudgeError("deadline").

    It belongs inside what makes questions wait (`Adaptive`), so that a sample does not pay for the others before it.
    Without a PATIENCE everything may take as long as it takes.
    """

    def __init__(self, judge: Judge, *, observer: Observer | None = None) -> None:
        super().__init__(judge)
        self._observer = observer or Observer()

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        patience = PATIENCE.get()
        if patience is None:
            return await call()
        if patience.left > 0.0:
            try:
                with patience.spending() as left:
                    async with asyncio.timeout(left):
                        return await call()
            except TimeoutError:
                pass
        self._observer.failed(self.model, "deadline")
        raise JudgeError("deadline", f"the sample's {patience.seconds:g} s of judging are used up")
