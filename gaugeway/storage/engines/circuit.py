"""Circuit breaker for the connection to an engine."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gaugeway.storage.engines.failures import EngineError

T = TypeVar("T")
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0  # internal bound: time between our own attempts


class Circuit:
    """While an engine is unreachable, lets one call at a time try it; all other calls fail at once.

    The waits between tries grow from 0.1 s to 5 s. Each is drawn at random from the upper half of its range, so that
    many processes do not reconnect at the same moment. `name` is the engine's, for messages; `clock` is monotonic (s).
    """

    def __init__(
        self, name: str, *, draw: Callable[[], float] = random.random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.closed = False
        self._draw = draw
        self._clock = clock
        self._trial = asyncio.Lock()
        self._failures = 0
        self._retry_at = 0.0

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call `attempt`, which reports `succeeded` or `failed`. Raises EngineError while it is too early for a try."""
        if self.closed:
            return await attempt()
        async with self._trial:
            if (wait := self._retry_at - self._clock()) > 0:
                raise EngineError(f"{self.name}: unreachable; next try in {wait:.1f} s")
            return await attempt()

    def succeeded(self) -> None:
        """The engine answered: let all calls through."""
        self.closed, self._failures, self._retry_at = True, 0, 0.0

    def failed(self) -> None:
        """The engine did not answer: make the next try wait."""
        longest = min(_MAX_BACK_OFF_S, _FIRST_BACK_OFF_S * 2 ** min(self._failures, 10))
        self.closed = False
        self._failures += 1
        self._retry_at = self._clock() + longest * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """The connections were closed on purpose: the next call opens them."""
        self.closed = False
