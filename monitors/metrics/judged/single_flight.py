"""Request coalescing: callers that need the same judge answer at about the same time share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from gaugeway.runtime.tasks import spawn
from monitors.judges import JudgeError

T = TypeVar("T")
DEFAULT_SIZE = 32
"""Answers kept. Few, because an answer quotes much of its sample, and the metrics that share it run side by side."""


class _Flight(Generic[T]):
    """A computation under way and the number of its waiters."""

    def __init__(self, task: asyncio.Task[T | JudgeError]) -> None:
        self.task = task
        self.waiting = 0


class SingleFlight(Generic[T]):
    """Computes each key once, and caches the `size` results used last.

    A waiter that is cancelled leaves the computation to the others; when the last one is cancelled, so is the
    computation. A JudgeError goes to all waiters and is not cached. The judge's cost is charged to the first caller,
    in whose context the computation runs.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self._known: LRUCache[Hashable, T] = LRUCache(size)
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def get(self, key: Hashable, compute: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value for `key`, from memory, from a computation under way, or from `compute`."""
        if key in self._known:
            return self._known[key]
        if (flight := self._flights.get(key)) is None:
            flight = self._flights[key] = _Flight(spawn(self._compute(key, compute), name="shared judging"))
        flight.waiting += 1
        try:
            outcome = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                del self._flights[key]
                flight.task.cancel()
        if isinstance(outcome, JudgeError):
            raise JudgeError(outcome.kind, outcome.detail)
        return outcome

    async def _compute(self, key: Hashable, compute: Callable[[], Coroutine[Any, Any, T]]) -> T | JudgeError:
        try:
            value = await compute()
        except JudgeError as error:  # as a value: every waiter raises its own, and no task "ended with an error"
            return error
        self._known[key] = value
        return value
