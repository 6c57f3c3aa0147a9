"""What goes to other systems over the network: a bounded buffer, sent in the background, repeated until it is taken."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count as count_up
from typing import Generic, NamedTuple, TypeVar

from monitors.exporters import Exporter
from monitors.records import Evaluation, Sample, Score
from monitors.runtime.tasks import happens_within, spawn

T = TypeVar("T")
Observer = Callable[[str, int], None]
"""Is told a result (`sent`, `retried`, or why it was dropped) and of how many scores."""

FIRST_S, LONGEST_S = 0.5, 60.0
_BUSY_S, _SILENT_S = 0.05, 60.0
_log = logging.getLogger("gaugeway.sinks")


class NotYetError(Exception):
    """What the delivery is about has not arrived there yet; others may have."""


class UnavailableError(Exception):
    """Nothing can be delivered now; `retry_after_s` is what the server asked to wait, if it did."""

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RefusedError(Exception):
    """The delivery will never be taken."""


class SampleScores(NamedTuple):
    """An evaluation that came to a score."""

    evaluation: Evaluation
    score: Score

    @property
    def identity(self) -> str:
        """The evaluation's identity as one string: whoever stores under it stores once."""
        one = self.evaluation
        return f"{one.sample_id}:{one.metric}:{one.version}"


class Delivery(NamedTuple, Generic[T]):
    """Something to send. Of those with the same `key` one is sent at a time, in order; `size` is its scores."""

    item: T
    key: str
    size: int


@dataclass(slots=True, order=True)
class _Entry(Generic[T]):
    due: float
    order: int
    delivery: Delivery[T] = field(compare=False)
    until: float = field(compare=False)
    attempts: int = field(compare=False, default=0)


class Outbox(Generic[T]):
    """Sends what it is offered, at most `places` at once, and holds at most `limit`; beyond that the newest is dropped.

    A delivery that comes too early is sent again after 0.5 s, then after twice the time, up to 60 s. When the server
    cannot be reached or asks to wait, everything waits, and then one delivery goes first. After `give_up_s` a delivery
    is dropped. `count` hears of everything.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[T], Awaitable[None]],
        *,
        count: Observer,
        give_up_s: float,
        limit: int = 10_000,
        places: int = 4,
    ) -> None:
        self._name = name
        self._send = send
        self._count = count
        self._give_up_s = give_up_s
        self._limit = limit
        self._places = places
        self._heap: list[_Entry[T]] = []
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failures, self._paused_until, self._silent_until = 0, 0.0, 0.0
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._order = count_up()

    def offer(self, delivery: Delivery[T]) -> None:
        """Take a delivery: only keeps it, never waits. Needs a running event loop."""
        if self._closed or len(self._heap) + len(self._under_way) >= self._limit:
            self._count("overflow", delivery.size)
            return
        now = time.monotonic()
        heapq.heappush(self._heap, _Entry(now, next(self._order), delivery, now + self._give_up_s))
        self._drained.clear()
        self._wake.set()
        if self._task is None:
            self._task = spawn(self._run(), name=f"sending to {self._name}")

    async def aclose(self, timeout_s: float = 3.0) -> None:
        """Send what is left within `timeout_s`, without waiting for what was to be waited for; count the rest."""
        self._closed = True
        if self._task is None:
            return
        self._paused_until = 0.0
        for entry in self._heap:
            entry.due = 0.0
        heapq.heapify(self._heap)
        self._wake.set()
        if self._heap or self._under_way:
            await happens_within(self._drained, timeout_s)
        tasks = [self._task, *self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if left := sum(entry.delivery.size for entry in self._heap):
            self._count("unsent", left)
            _log.warning("%s: %d scores not sent before shutdown", self._name, left)

    async def _run(self) -> None:
        while True:
            entry = await self._next()
            key = entry.delivery.key
            self._under_way[key] = spawn(self._attempt(entry), name=f"a delivery to {self._name}")

    async def _next(self) -> _Entry[T]:
        while True:
            self._wake.clear()
            now = time.monotonic()
            free = len(self._under_way) < (1 if self._failures else self._places)
            if free and now >= self._paused_until and (entry := self._pop(now)) is not None:
                return entry
            idle_s = None
            if free and self._heap:
                due = max(self._heap[0].due, self._paused_until)
                idle_s = max(due - now, _BUSY_S if self._under_way else 0.001)
            await happens_within(self._wake, idle_s)

    def _pop(self, now: float) -> _Entry[T] | None:
        """Take the first that is due and has none of its key before it."""
        passed: list[_Entry[T]] = []
        found = None
        while self._heap and self._heap[0].due <= now and found is None:
            entry = heapq.heappop(self._heap)
            if entry.delivery.key in self._under_way:
                passed.append(entry)
            else:
                found = entry
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    async def _attempt(self, entry: _Entry[T]) -> None:
        delivery, settled = entry.delivery, False
        try:
            await self._send(delivery.item)
            self._failures = 0
            self._settle("sent", entry)
            settled = True
        except NotYetError as error:
            self._failures = 0
            entry.due = time.monotonic() + _back_off(entry.attempts)
            settled = self._again(entry, str(error))
        except UnavailableError as error:
            self._pause(error)
            settled = self._again(entry, str(error))
            self._expire()
        except Exception as error:  # noqa: BLE001 - whatever it is, to send the same again would not help
            self._settle("refused", entry)
            settled = True
            reason = str(error) if isinstance(error, RefusedError) else type(error).__name__
            self._complain("%s: %d scores were refused: %s", self._name, delivery.size, reason)
        finally:
            if not settled:
                heapq.heappush(self._heap, entry)
            del self._under_way[delivery.key]
            if not (self._heap or self._under_way):
                self._drained.set()
            self._wake.set()

    def _again(self, entry: _Entry[T], why: str) -> bool:
        """Count a failed attempt; whether it was the last one."""
        entry.attempts += 1
        if max(entry.due, time.monotonic()) >= entry.until:
            self._settle("gave_up", entry)
            self._complain("%s: gave up %d scores: %s", self._name, entry.delivery.size, why)
            return True
        self._count("retried", entry.delivery.size)
        return False

    def _pause(self, error: UnavailableError) -> None:
        now = time.monotonic()
        if now < self._paused_until:  # one of several that failed at the same time
            return
        if not self._failures:
            _log.warning("%s unreachable, retrying: %s", self._name, error)
        self._paused_until = now + max(_back_off(self._failures), error.retry_after_s or 0.0)
        self._failures += 1

    def _expire(self) -> None:
        """Drop what has waited long enough; while nothing gets through, nobody else would."""
        now = time.monotonic()
        if gone := [entry for entry in self._heap if entry.until <= now]:
            self._heap = [entry for entry in self._heap if entry.until > now]
            heapq.heapify(self._heap)
            for entry in gone:
                self._settle("gave_up", entry)
            self._complain("%s: gave up %d deliveries that waited too long", self._name, len(gone))

    def _complain(self, message: str, *about: object) -> None:
        """Write a warning, once a minute: the counts have them all."""
        now = time.monotonic()
        level = logging.WARNING if now >= self._silent_until else logging.DEBUG
        if level == logging.WARNING:
            self._silent_until = now + _SILENT_S
        _log.log(level, message, *about)

    def _settle(self, result: str, entry: _Entry[T]) -> None:
        self._count(result, entry.delivery.size)


class OutboxExporter(Exporter, Generic[T]):
    """An exporter that sends scores: `prepare` says what, without the texts that nobody asked for, `send` how.

    Only scores of the `metrics` (shell patterns) go out. What was skipped or failed is no verdict on an answer.
    """

    def __init__(self, name: str, *, observe: Observer, metrics: Sequence[str], give_up_s: float) -> None:
        self._metrics = metrics
        self._observe = observe
        self._outbox: Outbox[T] = Outbox(name, self.send, count=observe, give_up_s=give_up_s)

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Put the scores into the outbox."""
        scores = [
            SampleScores(one, one.outcome)
            for one in evaluations
            if isinstance(one.outcome, Score) and any(fnmatchcase(one.metric, pattern) for pattern in self._metrics)
        ]
        if not scores:
            return
        if not (sample.trace_id and sample.span_id):
            self._observe("no_trace", len(scores))
            return
        for delivery in self.prepare(sample, scores):
            self._outbox.offer(delivery)

    async def aclose(self) -> None:
        """Send what is left, for a while."""
        await self._outbox.aclose()
        await self.disconnect()

    @abstractmethod
    def prepare(self, sample: Sample, scores: Sequence[SampleScores]) -> Iterable[Delivery[T]]:
        """Return what to send about a sample that has a trace."""

    @abstractmethod
    async def send(self, item: T) -> None:
        """Send once. Raises NotYetError, UnavailableError or RefusedError."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Let go of the connections."""


def _back_off(attempts: int) -> float:
    return min(LONGEST_S, FIRST_S * 2.0 ** min(attempts, 20))
