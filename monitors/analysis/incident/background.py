"""Results that take longer than a page may wait: made in the background, one at a time, and kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

from gaugeway.runtime.tasks import spawn

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class BackgroundResults(Generic[K, T]):
    """Results by key. The `most` that were used last are kept, and made again when they are `fresh_s` seconds old.

    `clock` gives seconds; `name` is that of the tasks, whose errors are logged under it.
    """

    def __init__(self, *, name: str, fresh_s: float, most: int, clock: Callable[[], float]) -> None:
        self._name = name
        self._fresh_s = fresh_s
        self._most = most
        self._clock = clock
        self._kept: LRUCache[K, tuple[float, T]] = LRUCache(most)
        self._running: dict[K, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, key: K, make: Callable[[], Awaitable[T]], *, within_s: float, final: bool = False) -> T | None:
        """Return the result of a key; None while it is being made, or after an error.

        Waits up to `within_s` seconds for it. An older one is returned while a new one is made; a `final` one does not
        change any more.
        """
        kept = self._kept.get(key)
        if kept is None or (not final and self._clock() - kept[0] > self._fresh_s):
            if key not in self._running and len(self._running) < self._most:
                self._running[key] = spawn(self._make(key, make), name=self._name)
            if kept is None and (task := self._running.get(key)) is not None:
                await asyncio.wait([task], timeout=within_s)
                kept = self._kept.get(key)
        return None if kept is None else kept[1]

    async def _make(self, key: K, make: Callable[[], Awaitable[T]]) -> None:
        try:
            async with self._one_at_a_time:
                found = await make()
            self._kept[key] = self._clock(), found
        finally:
            self._running.pop(key, None)
