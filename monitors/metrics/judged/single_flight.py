"""One answer for everybody who asks the same thing at about the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from monitors.judges import JudgeError
from monitors.runtime.tasks import spawn

T = TypeVar("T")
DEFAULT_SIZE = 32
"""Who shares an answer asks at about the same time; an answer quotes much of its sample, so that few are kept."""


class _Flight(Generic[T]):
    """A computation under way, and how many wait for it."""

    def __init__(self, task: asyncio.Task[T | JudgeError]) -> None:
        self.task = task
        self.waiting = 0


class Shared(Generic[T]):
    """Computes each key once; the `size` used last are remembered.

    A waiter that gives up leaves the computation to the others, and the last one to give up ends it. A JudgeError goes
    to everybody who waits and is not remembered. The judge's bill goes to the one that asked first, whose context the
    computation runs in.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self._size = size
        self._known: OrderedDict[Hashable, T] = OrderedDict()
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def get(self, key: Hashable, compute: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value for `key`, from memory, from a computation under way, or from `compute`."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        flight = self._flights.get(key)
        if flight is None:
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
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return value
