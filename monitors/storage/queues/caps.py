"""How many bytes may wait in a queue."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from monitors.storage.queues import QueueFull

_EVERY_S = 2.0


class Bound:
    """At most about `max_bytes` wait; None: as many as the engine takes.

    The engine is asked before something is put, every two seconds, and each time while it is full; in between, what
    this process puts is added to its answer. So a queue may hold more than `max_bytes` by one batch, and by what other
    processes put in that time.
    """

    def __init__(self, max_bytes: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._used = 0
        self._ask_at = -math.inf

    async def admit(self, size: int, used: Callable[[], Awaitable[int]]) -> None:
        """Let `size` bytes in, where `used` tells how many are there already. Raises QueueFull."""
        if self._max_bytes is None:
            return
        if self._clock() >= self._ask_at or self._used >= self._max_bytes:
            self._used = await used()
            self._ask_at = self._clock() + _EVERY_S
        if self._used >= self._max_bytes:
            raise QueueFull(f"{self._used} of {self._max_bytes} bytes are taken")
        self._used += size

    def fill(self, used: int) -> float:
        """The share of the bound that `used` bytes are.

        >>> Bound(200).fill(50), Bound(None).fill(50)
        (0.25, 0.0)
        """
        return used / self._max_bytes if self._max_bytes else 0.0
