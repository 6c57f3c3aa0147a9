"""The outbox of an exporter, a bounded buffer sent in the background with retries, and the client of a JSON API."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count as count_up
from typing import Any, Generic, NamedTuple, TypeVar

import httpx

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.runtime.replies import ReplyError, limited
from gaugeway.runtime.retry import delay_s, retry_after_s
from gaugeway.runtime.tasks import happens_within, spawn
from monitors.exporters import Exporter

T = TypeVar("T")
PLACES = 4
Observer = Callable[[str, int], None]
"""Called with a result (`sent`, `retried`, or why scores were dropped) and the number of scores."""

FIRST_S, LONGEST_S = 0.5, 60.0  # internal bound: time between our own attempts
_BUSY_S, _SILENT_S = 0.05, 60.0
_log = logging.getLogger("gaugeway.sinks")


class NotYetError(Exception):
    """The server does not have the delivery's trace yet; other deliveries may succeed."""


class UnavailableError(Exception):
    """No delivery can succeed now; `retry_after_s` is the server's Retry-After in seconds, if it sent one."""

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RefusedError(Exception):
    """The server will never accept the delivery."""


class SampleScores(NamedTuple):
    """An evaluation with a score."""

    evaluation: Evaluation
    score: Score

    @property
    def identity(self) -> str:
        """The evaluation's identity as one string: the idempotency key of its delivery."""
        evaluation = self.evaluation
        return f"{evaluation.sample_id}:{evaluation.metric}:{evaluation.version}"


class Delivery(NamedTuple, Generic[T]):
    """Something to send. Deliveries with the same `key` are sent one at a time, in order; `size` counts scores."""

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
    """Sends deliveries, at most `PLACES` at once, and holds at most `limit`; beyond that new ones are dropped.

    A delivery that is too early is sent again after 0.5 s, with back-off up to 60 s. When the server is unreachable or
    asks to wait, all deliveries pause, and a single one is sent first. After `give_up_s` a delivery is dropped. `count`
    is called with every result.
    """

    def __init__(
        self, name: str, send: Callable[[T], Awaitable[None]], *, count: Observer, give_up_s: float, limit: int = 10_000
    ) -> None:
        self._name = name
        self._send = send
        self._count = count
        self._give_up_s = give_up_s
        self._limit = limit
        self._heap: list[_Entry[T]] = []
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failures, self._paused_until, self._silent_until = 0, 0.0, 0.0
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._order = count_up()

    def offer(self, delivery: Delivery[T]) -> None:
        """Add a delivery without waiting. Needs a running event loop."""
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
        """Send what is left within `timeout_s`, ignoring pauses; count the rest as unsent."""
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
            free = len(self._under_way) < (1 if self._failures else PLACES)
            if free and now >= self._paused_until and (entry := self._pop(now)) is not None:
                return entry
            idle_s = None
            if free and self._heap:
                due = max(self._heap[0].due, self._paused_until)
                idle_s = max(due - now, _BUSY_S if self._under_way else 0.001)
            await happens_within(self._wake, idle_s)

    def _pop(self, now: float) -> _Entry[T] | None:
        """Remove the first due delivery whose key is not under way."""
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
            entry.due = time.monotonic() + delay_s(entry.attempts, first_s=FIRST_S, longest_s=LONGEST_S)
            settled = self._retry(entry, str(error))
        except UnavailableError as error:
            self._pause(error)
            settled = self._retry(entry, str(error))
            self._expire()
        except Exception as error:  # noqa: BLE001 - an unknown failure is counted as refused: sending the same again would not help
            self._settle("refused", entry)
            settled = True
            reason = str(error) if isinstance(error, RefusedError) else type(error).__name__
            self._warn("%s: %d scores were refused: %s", self._name, delivery.size, reason)
        finally:
            if not settled:
                heapq.heappush(self._heap, entry)
            del self._under_way[delivery.key]
            if not (self._heap or self._under_way):
                self._drained.set()
            self._wake.set()

    def _retry(self, entry: _Entry[T], why: str) -> bool:
        """Count a failed attempt; return whether it was the last one."""
        entry.attempts += 1
        if max(entry.due, time.monotonic()) >= entry.until:
            self._settle("gave_up", entry)
            self._warn("%s: gave up %d scores: %s", self._name, entry.delivery.size, why)
            return True
        self._count("retried", entry.delivery.size)
        return False

    def _pause(self, error: UnavailableError) -> None:
        now = time.monotonic()
        if now < self._paused_until:  # one of several that failed at the same time
            return
        if not self._failures:
            _log.warning("%s unreachable, retrying: %s", self._name, error)
        self._paused_until = now + max(
            delay_s(self._failures, first_s=FIRST_S, longest_s=LONGEST_S), error.retry_after_s or 0.0
        )
        self._failures += 1

    def _expire(self) -> None:
        """Drop deliveries past their deadline: while the server is unreachable, no attempt would do it."""
        now = time.monotonic()
        if gone := [entry for entry in self._heap if entry.until <= now]:
            self._heap = [entry for entry in self._heap if entry.until > now]
            heapq.heapify(self._heap)
            for entry in gone:
                self._settle("gave_up", entry)
            self._warn("%s: gave up %d deliveries that waited too long", self._name, len(gone))

    def _warn(self, message: str, *about: object) -> None:
        """Log a warning, at most once a minute; every event is in the counts."""
        now = time.monotonic()
        level = logging.WARNING if now >= self._silent_until else logging.DEBUG
        if level == logging.WARNING:
            self._silent_until = now + _SILENT_S
        _log.log(level, message, *about)

    def _settle(self, result: str, entry: _Entry[T]) -> None:
        self._count(result, entry.delivery.size)


class OutboxExporter(Exporter, Generic[T]):
    """An exporter that sends scores through an outbox: `prepare` builds the deliveries, `send` sends one.

    Only scores of the `metrics` (shell patterns) are sent; skipped and failed evaluations are not. `_api` is where to.
    """

    _api: Api

    def __init__(self, name: str, *, observe: Observer, metrics: Sequence[str], give_up_s: float) -> None:
        self._metrics = metrics
        self._observe = observe
        self._outbox: Outbox[T] = Outbox(name, self.send, count=observe, give_up_s=give_up_s)

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Put the scores into the outbox."""
        scores = [
            SampleScores(evaluation, evaluation.outcome)
            for evaluation in evaluations
            if isinstance(evaluation.outcome, Score)
            and any(fnmatchcase(evaluation.metric, pattern) for pattern in self._metrics)
        ]
        if not scores:
            return
        if not (sample.trace_id and sample.span_id):
            self._observe("no_trace", len(scores))
            return
        for delivery in self.prepare(sample, scores):
            self._outbox.offer(delivery)

    async def aclose(self) -> None:
        """Send what is left within the outbox's time limit, and close the connections."""
        await self._outbox.aclose()
        await self._api.aclose()

    @abstractmethod
    def prepare(self, sample: Sample, scores: Sequence[SampleScores]) -> Iterable[Delivery[T]]:
        """Return the deliveries for a sample that has a trace."""

    @abstractmethod
    async def send(self, item: T) -> None:
        """Send once. Raises NotYetError, UnavailableError or RefusedError."""


_MISSING = 404
_TRY_AGAIN = frozenset({401, 403, 407, 408, 409, 425, 429})
"""Statuses that are retried besides 5xx. A rejected key may be corrected before the scores are given up."""
_SHOWN = 200


class Api:
    """Calls `url` + a path. User and password stay out of the URL: httpx logs it with every request."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx.Auth | None = None, timeout_s: float
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ValueError("url: cannot be read") from None  # the reason would quote it
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
            raise ValueError("url: expected http://... or https://..., with no password or query in it")
        self._timeout_s = timeout_s
        options = limited()
        self._client = httpx.AsyncClient(
            base_url=str(parsed).rstrip("/"),
            headers={**options["headers"], **(headers or {})},
            event_hooks=options["event_hooks"],
            auth=auth,
            timeout=timeout_s,
        )

    async def call(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Make one request and return the JSON object of the answer ({} without one).

        Raises NotYetError, UnavailableError, RefusedError.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._client.request(method, path, json=body, params=params)
        except ReplyError as error:
            raise RefusedError(str(error)) from error
        except (httpx.TransportError, TimeoutError) as error:
            raise UnavailableError(type(error).__name__) from error
        status = answer.status_code
        if answer.is_success:
            return _object(answer)
        detail = f"answered {status}"
        if status == _MISSING:
            raise NotYetError(detail)
        if status in _TRY_AGAIN or answer.is_server_error:
            raise UnavailableError(detail, retry_after_s(answer.headers, time.time()))
        raise RefusedError(f"{detail}{_reason(answer)}")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _reason(answer: httpx.Response) -> str:
    """Return the server's error message, shortened; never the whole answer, which may quote what was sent."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return ""
    details = [
        found[key] for key in ("detail", "message") if isinstance(found, dict) and isinstance(found.get(key), str)
    ]
    return f": {details[0][:_SHOWN]}" if details else ""


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json() if answer.content else {}
    except (ValueError, RecursionError) as error:
        raise RefusedError("answered something that is not JSON: is the url right?") from error
    return found if isinstance(found, dict) else {}
