"""Asking again what failed for reasons that pass."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from monitors.judges import Judge, JudgeError
from monitors.judges.middleware.base import Wrapper

T = TypeVar("T")
PASSING = frozenset({"rate_limited", "server_error", "connection", "timeout"})
FIRST_S, LONGEST_S = 0.5, 30.0


class Retrying(Wrapper):
    """Repeats a question at most `times`, after the pause the server asks for, or a random one that doubles.

    It belongs outside `Adaptive`: whoever waits to ask again holds no place. `draw` gives numbers in [0, 1).
    """

    def __init__(
        self,
        judge: Judge,
        *,
        times: int = 3,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(judge)
        self._times = times
        self._sleep = sleep
        self._draw = draw

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        for repeated in range(self._times):
            try:
                return await call()
            except JudgeError as error:
                if error.kind not in PASSING:
                    raise
                pause_s = error.retry_after_s
            if pause_s is None:
                pause_s = FIRST_S * 2.0**repeated * (0.5 + self._draw() / 2.0)
            await self._sleep(min(pause_s, LONGEST_S))
        return await call()
