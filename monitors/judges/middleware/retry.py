"""Retries of calls that failed for a transient reason."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from monitors.judges import Judge, JudgeError
from monitors.judges.middleware.base import Wrapper

T = TypeVar("T")
TRANSIENT = frozenset({"rate_limited", "server_error", "connection", "timeout"})
FIRST_S, LONGEST_S = 0.5, 30.0  # internal bound: time between our own attempts
LONGEST_RETRY_AFTER_S = 60.0  # internal bound: time between our own attempts


class Retrying(Wrapper):
    """Repeats a call at most `times`, after the server's Retry-After, or with exponential back-off and jitter.

    A Retry-After of more than `longest_pause_s` is not waited for: the call fails.

    Place it outside `AdaptiveConcurrency`: a call must hold no place while it waits. `draw` gives numbers in [0, 1).
    """

    def __init__(
        self,
        judge: Judge,
        *,
        times: int = 3,
        longest_pause_s: float = LONGEST_RETRY_AFTER_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(judge)
        self._times = times
        self._longest_pause_s = longest_pause_s
        self._sleep = sleep
        self._draw = draw

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        for repeated in range(self._times):
            try:
                return await call()
            except JudgeError as error:
                if error.kind not in TRANSIENT:
                    raise
                pause_s = error.retry_after_s
                if pause_s is not None and pause_s > self._longest_pause_s:
                    raise
            if pause_s is None:
                pause_s = min(LONGEST_S, FIRST_S * 2.0**repeated * (0.5 + self._draw() / 2.0))
            await self._sleep(pause_s)
        return await call()
