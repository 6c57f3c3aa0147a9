"""Retries: exponential back-off, `Retry-After`, and a bounded FIFO buffer that repeats what could not be sent."""

from __future__ import annotations

import asyncio
import math
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from email.utils import mktime_tz, parsedate_tz
from itertools import islice
from typing import Generic, TypeVar

from gaugeway.runtime.tasks import happens_within, spawn

T = TypeVar("T")
_MAX_DOUBLINGS = 60  # internal bound: time between our own attempts
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


def delay_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay in seconds after earlier `failures`: `first_s` doubled that often, at most `longest_s`.

    >>> [delay_s(failures, first_s=0.5, longest_s=60.0) for failures in (0, 1, 2, 1000)]
    [0.5, 1.0, 2.0, 60.0]
    """
    return float(min(longest_s, first_s * 2.0 ** min(failures, _MAX_DOUBLINGS)))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds a server asks to wait (RFC 9110, 10.2.3, or OpenAI's `retry-after-ms`).

    None when it does not say, or in no form that is known.

    `headers` have lower-case names, or ignore case. `now` is the Unix time that a date is compared with.

    >>> retry_after_s({"retry-after": "2", "retry-after-ms": "1500"}, 0.0)
    1.5
    >>> retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 45.0)
    15.0
    >>> retry_after_s({"retry-after": "soon"}, 0.0)
    """
    if _NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "").strip()):
        return float(milliseconds) / 1000
    if _NUMBER.fullmatch(value := headers.get("retry-after", "").strip()):
        return float(value)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0.0, mktime_tz((*date[:9], date[9] or 0)) - now)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


class Backoff:
    """The delays of one operation: doubled after each failure, from `first_s` to `longest_s`, and reset by a success.

    `draw` returns the factor of each delay. With `random.random` (full jitter) many processes that lost the same server
    do not reconnect at the same moment.

    >>> backoff = Backoff(0.1, 5.0)
    >>> [backoff.failed() for _ in range(3)], backoff.reset(), backoff.failed()
    ([0.1, 0.2, 0.4], None, 0.1)
    """

    def __init__(self, first_s: float, longest_s: float, draw: Callable[[], float] = lambda: 1.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._draw = draw
        self._failures = 0

    def failed(self) -> float:
        """Record a failure; return the delay before the next attempt, in seconds."""
        delay = delay_s(self._failures, first_s=self._first_s, longest_s=self._longest_s) * self._draw()
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Record a success: the next delay is the first one again."""
        self._failures = 0


class Capacity:
    """How many items, and bytes of them, may be held together. Buffers of one pipeline share it."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.items = 0
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Reserve room for one item of `size` bytes; False when there is none."""
        if self.items >= self.max_items or self.bytes + size > self.max_bytes:
            return False
        self.items += 1
        self.bytes += size
        return True

    def release(self, size: int) -> None:
        """Free the room of one item of `size` bytes."""
        self.items -= 1
        self.bytes -= size


class Sink(ABC, Generic[T]):
    """Where a `RetryBuffer` sends its items, and what it reports about them."""

    @abstractmethod
    async def send(self, items: Sequence[T]) -> None:
        """Send a batch, all of it or nothing."""

    @abstractmethod
    def refuses(self, error: Exception) -> bool:
        """Whether `send` failed because of an item's value, so that sending the same item again cannot succeed."""

    @abstractmethod
    def sent(self, item: T) -> None:
        """Count an item that was sent."""

    @abstractmethod
    def dropped(self, item: T, error: Exception | None) -> None:
        """Count an item that was lost: refused with `error`, or still unsent when the buffer was closed (None)."""

    @abstractmethod
    def failed(self, count: int, error: Exception) -> None:
        """Count a failed attempt to send `count` items; it will be repeated."""


@dataclass(eq=False)
class RetryBuffer(Generic[T]):
    """Holds items until the sink accepts them: bounded in items and bytes, in order, in batches of at most `batch`.

    A batch has at most `batch_bytes`, unless it is one item. A batch with a refused item is sent again one item at a
    time, so that only that item is dropped. After any other failure the batch is repeated after a delay. Before a batch
    that is not full, the buffer waits `gather_s` for more.
    """

    name: str
    sink: Sink[T]
    capacity: Capacity
    backoff: Backoff
    _: KW_ONLY
    batch: int
    batch_bytes: float = math.inf
    gather_s: float = 0.0

    def __post_init__(self) -> None:
        self._items: deque[tuple[T, int]] = deque()
        self._wake, self._closing = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def start(self) -> None:
        """Start sending in the background; needs a running event loop."""
        self._task = spawn(self._run(), name=self.name)

    def offer(self, item: T, size: int) -> bool:
        """Take an item of `size` bytes without waiting; False when there is no room for it."""
        if not self.capacity.take(size):
            return False
        self.add(item, size)
        return True

    def add(self, item: T, size: int) -> None:
        """Take an item for which the capacity is reserved already."""
        self._items.append((item, size))
        self._wake.set()

    async def aclose(self, timeout_s: float) -> int:
        """Send what is left within `timeout_s` seconds, at once; return how many items were dropped."""
        self.backoff.reset()
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
            await asyncio.wait([self._task])
        left = len(self._items)
        for _ in range(left):
            self.sink.dropped(self._pop(), None)
        return left

    async def _run(self) -> None:
        while self._items or not self._closing.is_set():
            if not self._items:
                self._wake.clear()
                await self._wake.wait()
                continue
            if len(self._items) < self.batch and self.gather_s:
                await happens_within(self._closing, self.gather_s)
            count = self._next_batch()
            try:
                await self._send_first(count)
                self.backoff.reset()
            except Exception as error:  # noqa: BLE001 - any failure is counted by the sink, and the batch is repeated
                self.sink.failed(count, error)
                await self._pause(self.backoff.failed())

    def _next_batch(self) -> int:
        """Return how many items the next batch has."""
        size = 0
        for count, (_, item_size) in enumerate(islice(self._items, self.batch)):
            size += item_size
            if size > self.batch_bytes and count:
                return count
        return min(self.batch, len(self._items))

    async def _send_first(self, count: int) -> None:
        """Send the first items; raises what the sink raises, unless it refuses an item."""
        try:
            await self.sink.send([self._items[index][0] for index in range(count)])
        except Exception as error:
            if not self.sink.refuses(error):
                raise
            if count == 1:
                self.sink.dropped(self._pop(), error)
            else:
                for _ in range(count):
                    await self._send_first(1)
        else:
            for _ in range(count):
                self.sink.sent(self._pop())

    async def _pause(self, seconds: float) -> None:
        """Wait; closing ends the wait once, so that the last attempt is not missed."""
        if self._closing.is_set():
            await asyncio.sleep(seconds)
        else:
            await happens_within(self._closing, seconds)

    def _pop(self) -> T:
        item, size = self._items.popleft()
        self.capacity.release(size)
        return item
