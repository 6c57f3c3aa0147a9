"""A micro-batcher: calls that wait at about the same time are answered by one request."""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gaugeway.runtime.tasks import spawn
from monitors.judges import JudgeError
from monitors.judges.middleware.limits import DEADLINE

Item = TypeVar("Item")
Result = TypeVar("Result")
BATCH_WAIT_S = 0.01
"""How long the first item waits for others: short beside a request, long enough for the texts of one sample."""
_ONE_ITEMS_FAULT = frozenset({"bad_request", "context_overflow", "too_large", "unreadable", "truncated"})
"""Failures that a single item can cause for its whole request."""


@dataclass(frozen=True, slots=True)
class _Call(Generic[Item, Result]):
    item: Item
    size: int
    result: asyncio.Future[Result]


@dataclass(slots=True)
class _Queue(Generic[Item, Result]):
    """The waiting calls of one group."""

    calls: list[_Call[Item, Result]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class MicroBatcher(Generic[Item, Result]):
    """Collects items for at most `wait_s` seconds or until their sizes add up to `size`, and has `request` answer them.

    When a request fails in a way that one item may have caused, it is repeated in halves, so that no item fails because
    of another. A cancelled call does not stop the request of the others. `name` is that of the tasks. Belongs to one
    event loop.
    """

    def __init__(
        self, request: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, name: str, size: int, wait_s: float
    ) -> None:
        if size < 1 or wait_s < 0:
            raise ValueError("a batch has at least one item and waits no negative time")
        self._request = request
        self._name = name
        self._size = size
        self._wait_s = wait_s
        self._queues: dict[str, _Queue[Item, Result]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def call(self, item: Item, *, size: int = 1, group: str = "") -> Result:
        """Return the result of an item; the items of different groups are not mixed."""
        loop = asyncio.get_running_loop()
        call: _Call[Item, Result] = _Call(item, size, loop.create_future())
        queue = self._queues.setdefault(group, _Queue())
        queue.calls.append(call)
        if sum(waiting.size for waiting in queue.calls) >= self._size:
            self._send_now(group)
        elif queue.timer is None:
            queue.timer = loop.call_later(self._wait_s, self._send_now, group)
        return await call.result

    async def finish(self) -> None:
        """Send the waiting items, and wait for all results."""
        for group in list(self._queues):
            self._send_now(group)
        if self._sending:
            await asyncio.wait(self._sending)

    def _send_now(self, group: str) -> None:
        queue = self._queues.pop(group)
        if queue.timer is not None:
            queue.timer.cancel()
        if calls := [call for call in queue.calls if not call.result.done()]:
            context = contextvars.copy_context()
            context.run(DEADLINE.set, None)  # the first caller's deadline must not end the others' calls
            task = context.run(lambda: spawn(self._send(calls), name=self._name))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, calls: Sequence[_Call[Item, Result]]) -> None:
        """Give each call its result or an exception."""
        try:
            for call, result in zip(calls, await self._request([call.item for call in calls]), strict=True):
                if not call.result.done():
                    call.result.set_result(result)
        except JudgeError as error:
            if len(calls) > 1 and error.kind in _ONE_ITEMS_FAULT:
                middle = len(calls) // 2
                await asyncio.gather(self._send(calls[:middle]), self._send(calls[middle:]))
            else:
                _fail(calls, error)
        except Exception as error:  # noqa: BLE001 - any error is passed to the waiting calls, whose metrics count it
            _fail(calls, error)
        except asyncio.CancelledError:
            for call in calls:
                call.result.cancel()
            raise


def _fail(calls: Sequence[_Call[Item, Result]], error: Exception) -> None:
    for call in calls:
        if not call.result.done():
            # One exception object for each call: raising the same one in several tasks mixes their tracebacks.
            call.result.set_exception(copy.copy(error) if isinstance(error, JudgeError) else error)
