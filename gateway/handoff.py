"""From the request path to the queue: a bounded buffer, read in batches by a thread, delivered until it succeeds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gateway.exchange import GENERATION_ROUTES, Exchange, Recording
from gateway.instruments import Instruments
from monitors.queues import Queue
from monitors.records import Sample
from monitors.tasks import spawn

_log = logging.getLogger("gaugeway.handoff")


class Reader(Protocol):
    """Turns a recording into an exchange, and an exchange into the sample it may become."""

    def read(self, recording: Recording) -> Exchange:
        """Read a recording; raises ValueError when its bodies make no sense."""

    def sample(self, exchange: Exchange) -> Sample | None:
        """Return the sample, or None when the exchange was not chosen."""


class HandOff:
    """Takes recordings from the request path and brings samples to the queue.

    At most `max_items` exchanges and `max_bytes` of their bodies are held; beyond that the newest is dropped and
    counted. While the queue fails, samples stay here and are tried again with back-off (0.1 s up to 5 s).
    """

    def __init__(
        self,
        *,
        queue: Queue,
        reader: Reader,
        instruments: Instruments,
        on_exchange: Callable[[Exchange], None] | None = None,
        max_items: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        batch: int = 100,
        interval_s: float = 0.05,
    ) -> None:
        self._queue = queue
        self.reader = reader
        self._instruments = instruments
        self._on_exchange = on_exchange
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._batch = batch
        self._interval_s = interval_s
        self._recordings: deque[Recording] = deque()
        self._dropped: deque[Recording] = deque()
        self._samples: deque[tuple[Sample, int]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task; needs a running event loop."""
        self._task = spawn(self._run(), name="hand-off")

    def offer(self, recording: Recording) -> None:
        """Take a finished recording. Called on the request path: only appends, never blocks, never raises."""
        held = len(self._recordings) + len(self._samples)
        if held >= self._max_items or self._bytes + recording.size > self._max_bytes:
            # What stays is a shell for the counters; the content is what costs memory.
            recording.chunks = []
            recording.request_body = None
            recording.size = 0
            self._dropped.append(recording)
        else:
            self._bytes += recording.size
            self._recordings.append(recording)
        self._wake.set()

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Deliver what is left within `timeout_s`; what cannot be delivered is counted as error."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
            await asyncio.wait([self._task])
        for sample, _ in self._samples:
            self._instruments.outcome(sample.app, "error")
        for recording in self._recordings:
            if recording.route in GENERATION_ROUTES:
                self._instruments.outcome(_app_of(recording), "error")
        lost = len(self._samples) + len(self._recordings)
        if lost:
            _log.error("%d captured exchanges could not be handed to the queue before the end", lost)

    async def _run(self) -> None:
        retry_at, back_off = 0.0, 0.1
        while True:
            idle = not (self._recordings or self._dropped)
            if self._closing and idle and not self._samples:
                return
            if idle:
                self._wake.clear()
                wait_s = max(retry_at - time.monotonic(), 0.01) if self._samples else None
                await _wait(self._wake, wait_s)
                if not self._closing:
                    await asyncio.sleep(self._interval_s)  # lets a batch gather
            await self._read_batch()
            self._instruments.waiting.set(len(self._recordings) + len(self._samples))
            if self._samples and time.monotonic() >= retry_at:
                if await self._deliver():
                    back_off = 0.1
                else:
                    retry_at, back_off = time.monotonic() + back_off, min(back_off * 2, 5.0)

    async def _read_batch(self) -> None:
        recordings = [self._recordings.popleft() for _ in range(min(self._batch, len(self._recordings)))]
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        if recordings or dropped:
            for recording, sample in await asyncio.to_thread(self._read, recordings, dropped):
                if sample is None:
                    self._bytes -= recording.size
                else:
                    self._samples.append((sample, recording.size))

    def _read(self, recordings: list[Recording], dropped: list[Recording]) -> list[tuple[Recording, Sample | None]]:
        """Read a batch, in a thread: parsing must not hold up the event loop."""
        for recording in dropped:
            self._count(recording)
            if recording.route in GENERATION_ROUTES:
                self._instruments.outcome(_app_of(recording), "overflow")
        return [(recording, self._read_one(recording)) for recording in recordings]

    def _read_one(self, recording: Recording) -> Sample | None:
        start = time.perf_counter()
        try:
            return self._capture(recording)
        except Exception as error:  # noqa: BLE001 - whatever one odd exchange does must not stop the capture of others
            _log.warning("exchange %s was not captured: %s", recording.id, type(error).__name__)
            self._count(recording)
            self._instruments.outcome(_app_of(recording), "error")
            return None
        finally:
            self._instruments.capture_seconds(time.perf_counter() - start)

    def _capture(self, recording: Recording) -> Sample | None:
        """Count the request, and take a sample of it if it is an exchange that was chosen."""
        if recording.route not in GENERATION_ROUTES:
            self._count(recording)
            return None
        app = _app_of(recording)
        if recording.too_large or recording.status == 413:  # noqa: PLR2004 - the status of our own refusal
            self._count(recording)
            self._instruments.outcome(app, "too_large")
            return None
        exchange = self.reader.read(recording)
        sample = None
        if recording.explicit is not None and not recording.explicit.capture:
            outcome = "opted_out"
        elif (sample := self.reader.sample(exchange)) is None:
            outcome = "sampled_out"
        else:
            outcome = None
        self._instruments.request(recording, app=exchange.app, model=exchange.model, stream=exchange.stream)
        self._instruments.usage(exchange)
        if self._on_exchange is not None:
            self._on_exchange(exchange)
        if outcome is not None:
            self._instruments.outcome(exchange.app, outcome)
        return sample

    async def _deliver(self) -> bool:
        """Bring up to one batch of samples to the queue; False when the queue failed."""
        batch = [self._samples[index] for index in range(min(self._batch, len(self._samples)))]
        try:
            await self._queue.put([sample for sample, _ in batch])
        except Exception as error:  # noqa: BLE001 - any failure of any queue is met by waiting and trying again
            self._instruments.hand_off_failed()
            _log.warning("the queue did not take %d samples: %s: %s", len(batch), type(error).__name__, error)
            return False
        for _ in batch:
            sample, size = self._samples.popleft()
            self._bytes -= size
            self._instruments.captured(sample)
        return True

    def _count(self, recording: Recording) -> None:
        """Count a request whose bodies are not read."""
        self._instruments.request(recording, app=_app_of(recording), model="unknown", stream=False)


def _app_of(recording: Recording) -> str:
    return (recording.explicit.app if recording.explicit else None) or "default"


async def _wait(event: asyncio.Event, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
