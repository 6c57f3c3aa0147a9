"""The capture buffer: takes recordings from the request path, and brings the samples made of them to the queue."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

from gateway.capture import result
from gateway.capture.exchange_reader import Decision
from gateway.capture.result import CaptureResult, Decoder
from gateway.handoff.backpressure import EVERY_S, QueueMonitor, capture_factor
from gateway.handoff.observer import CaptureObserver
from gateway.handoff.sampler_client import SamplerClient, SamplerClientError
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import GENERATION_ROUTES, Explicit, Recording
from gaugeway.records import Sample
from gaugeway.runtime.label_cap import OVERFLOW
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.retry import Backoff, Capacity, RetryBuffer, Sink
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import reason_of, refused
from gaugeway.storage.queues import Queue

_log = logging.getLogger("gaugeway.handoff")
_TOO_LARGE = 413


class Reader(Decoder, Protocol):
    """Makes capture decisions and decodes recordings."""

    def decide(self, recording: Recording) -> Decision:
        """Decide whether the exchange becomes a sample, without decoding a body."""


class Selector:
    """Selects the recordings that become samples; all others are decoded here, if at all, and counted."""

    def __init__(self, reader: Reader, observer: CaptureObserver) -> None:
        self.reader = reader
        self._observer = observer

    def select(self, recording: Recording) -> bool:
        """Whether a recording becomes a sample. What is not captured is decoded in this process, not in the sampler
        process: it is cheap without extraction and redaction, and back-pressure must relieve the sampler process.
        """
        started = perf_counter()
        if recording.explicit is not None and recording.explicit.dropped_tags:
            self._observer.instruments.tags_dropped(recording.explicit.dropped_tags)
        outcome: str | None = None
        if recording.route in GENERATION_ROUTES:
            rejected = recording.ending == "rejected"
            if recording.too_large or (rejected and recording.status == _TOO_LARGE):
                outcome = "too_large"
            elif rejected:  # there is no answer to judge, and unauthorised requests must not fill the queue
                outcome = "rejected"
            else:
                if (decision := self.reader.decide(recording)) != "captured":
                    self._observer.decoded(recording, result.summarise(self.reader, recording), decision)
                return decision == "captured"
        self._observer.not_decoded(recording, outcome)
        self._observer.instruments.capture_seconds(perf_counter() - started)
        return False


class SampleMaker:
    """Decodes recordings and makes their samples: in the sampler process, or in a thread while that is unavailable."""

    def __init__(self, reader: Reader, sampler: SamplerClient | None) -> None:
        self.reader = reader
        self._sampler = sampler
        self._outage = Outage(_log)

    async def results(self, recordings: Sequence[Recording]) -> Sequence[CaptureResult]:
        """Return the result of each recording."""
        if self._sampler is not None:
            try:
                results = await self._sampler.capture(recordings)
            except SamplerClientError as error:
                self._outage.begin("the sampler process does not respond (%s): the gateway makes the samples", error)
            else:
                self._outage.end("the sampler process responds again")
                return results
        return await asyncio.to_thread(lambda: [result.capture(self.reader, recording) for recording in recordings])


class QueueSink(Sink[Sample]):
    """Puts samples into the queue, and counts each when it is there or lost."""

    def __init__(self, queue: Queue, observer: CaptureObserver) -> None:
        self._queue = queue
        self._instruments = observer.instruments

    async def send(self, items: Sequence[Sample]) -> None:
        await self._queue.put(items)

    def refuses(self, error: Exception) -> bool:
        return refused(error)

    def sent(self, item: Sample) -> None:
        self._instruments.captured(item)

    def dropped(self, item: Sample, error: Exception | None) -> None:
        self._instruments.outcome(item.app, "error")
        if error is not None:
            _log.warning("the queue refused exchange %s, dropping it: %s", item.id, reason_of(error))

    def failed(self, count: int, error: Exception) -> None:
        self._instruments.hand_off_failed()
        _log.warning("the queue rejected %d samples, retrying: %s: %s", count, type(error).__name__, error)


MAX_OVERFLOWN = 1000
"""Kinds of requests that found no room, until they are counted; the apps of all others count as `_other`."""
_BATCH_MIN, _BATCH_MAX, _BATCH_BYTES = 16, 200, 16 * 1024  # internal bound: size of a batch
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0  # internal bound: time between our own attempts
_COUNTED_AT_ONCE = 16
_SAMPLER_SHARE = 0.4
"""Of the time to shut down, what the sampler process has."""


class Backlog:
    """Recordings that wait for one step of capture, and the batch that the step is working on."""

    def __init__(self) -> None:
        self.batch: deque[Recording] = deque()
        self.bytes = 0
        """Of the recordings that wait."""
        self._waiting: deque[Recording] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, recording: Recording) -> None:
        """Add a recording and wake the step."""
        self.bytes += recording.size
        self._waiting.append(recording)
        self._wake.set()

    def notify(self) -> None:
        """Wake the step."""
        self._wake.set()

    def close(self) -> None:
        """No more recordings will be added."""
        self._closed = True
        self._wake.set()

    async def ready(self, gather_s: float = 0.0) -> bool:
        """Wait until a recording is there, or `notify` is called; False once the backlog is closed and empty.

        After a wait, more recordings gather for `gather_s` seconds.
        """
        if not self._waiting and not self._closed:
            await self._wake.wait()
            if not self._closed:
                await asyncio.sleep(gather_s)
        self._wake.clear()
        return bool(self._waiting) or not self._closed

    def take(self) -> None:
        """Move the next recordings into `batch`: the more are waiting, the more at once.

        Small batches keep the decoding thread from holding the interpreter's lock for long; with a long backlog
        throughput matters more than a few milliseconds.
        """
        size = 0
        most = min(max(_BATCH_MIN, len(self._waiting) // 8), _BATCH_MAX)
        while self._waiting and len(self.batch) < most and size < _BATCH_BYTES * most:
            recording = self._waiting.popleft()
            size += recording.size
            self.batch.append(recording)
        self.bytes -= size

    def drain(self) -> list[Recording]:
        """Remove and return all recordings, those of the batch first."""
        left = [*self.batch, *self._waiting]
        self.batch.clear()
        self._waiting.clear()
        self.bytes = 0
        return left


class OverflowCounter:
    """Requests that found no room, by app, route, status and ending, until `flush` counts them in the instruments."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int, str]] = Counter()

    def add(self, recording: Recording) -> None:
        """Count a recording. Called on the request path."""
        app = recording.app if len(self._counts) < MAX_OVERFLOWN else OVERFLOW
        self._counts[app, recording.route, recording.status, recording.ending] += 1

    def flush(self, instruments: Instruments) -> None:
        """Count in the instruments what was added since the last call."""
        counts, self._counts = self._counts, Counter()
        for (app, route, status, ending), count in counts.items():
            instruments.overflown(app, route, status, ending, count)


class BufferSettings(NamedTuple):
    """Bounds and pace of the capture buffer: exchanges, bytes of their bodies, samples in a batch, seconds."""

    max_items: int = 10_000
    max_bytes: int = 256 * 1024 * 1024
    batch: int = 100
    batch_bytes: int = 1024 * 1024
    """Of the recordings a batch of samples is from: by so much a queue may exceed `queue.max_bytes`."""
    interval_s: float = 0.05
    """How long recordings gather before a batch of them is selected."""
    depth_interval_s: float = EVERY_S
    """How often the queue's depth is read."""


class CaptureBuffer:
    """Selects recordings, has samples made of them, and keeps the samples until the queue accepts them.

    All steps share one capacity; what finds no room is dropped and counted as overflow. Before that happens the capture
    rate is lowered: the fuller the queue or this buffer, the lower. While the queue fails, samples are sent again after
    0.1 s to 5 s, with full jitter. `on_sample` gets each sample with its recording, on the event loop.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        reader: Reader,
        observer: CaptureObserver,
        sampler: SamplerClient | None = None,
        settings: BufferSettings | None = None,
        on_sample: Callable[[Recording, Sample], None] = lambda *_: None,
    ) -> None:
        settings = settings or BufferSettings()
        self._on_sample = on_sample
        self._settings = settings
        self._observer = observer
        self._sampler = sampler
        self._capacity = Capacity(settings.max_items, settings.max_bytes)
        observer.instruments.waiting.set_function(lambda: self._capacity.items)
        self._overflow = OverflowCounter()
        self._intake, self._selected = Backlog(), Backlog()
        self._selector, self._maker = Selector(reader, observer), SampleMaker(reader, sampler)
        self._queue_monitor = QueueMonitor(queue, every_s=settings.depth_interval_s, observer=observer.instruments)
        self._samples = RetryBuffer(
            "capture buffer: samples",
            QueueSink(queue, observer),
            self._capacity,
            Backoff(_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S, random.random),
            batch=settings.batch,
            batch_bytes=settings.batch_bytes,
            gather_s=settings.interval_s,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the background tasks; needs a running event loop."""
        self._tasks = [
            spawn(self._run_selection(), name="capture buffer: selection"),
            spawn(self._run(self._selected, self._make), name="capture buffer: sampling"),
        ]
        self._samples.start()
        self._queue_monitor.start()
        if self._sampler is not None:
            self._sampler.start()

    def use(self, reader: Reader) -> None:
        """Use another reader from now on."""
        self._selector.reader = self._maker.reader = reader

    def offer(self, recording: Recording) -> None:
        """Take a finished recording. Called on the request path: only appends, never blocks, never raises."""
        if recording.too_large and recording.explicit is not None:
            # It will not be captured: the out-of-band contexts must not be held on top of the limit.
            recording.explicit = Explicit(app=recording.explicit.app, capture=recording.explicit.capture)
        if self._capacity.take(recording.size):
            self._intake.add(recording)
        else:
            self._overflow.add(recording)
            self._intake.notify()

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Deliver what is left within `timeout_s` seconds; what cannot be delivered is counted as error."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        self._intake.close()
        await self._queue_monitor.aclose()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s * _SAMPLER_SHARE)
            if late and self._sampler is not None:
                self._sampler.abandon()  # it is too slow, or hangs: what is left is made into samples here
            await asyncio.wait(self._tasks, timeout=deadline - asyncio.get_running_loop().time())
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        if self._sampler is not None:
            await self._sampler.aclose()
        lost = await self._samples.aclose(max(deadline - asyncio.get_running_loop().time(), 0.0))
        self._overflow.flush(self._observer.instruments)
        unmade = self._lose([*self._selected.drain(), *self._intake.drain()])
        if lost:
            _log.error("lost %d captured exchanges: the queue did not accept them before shutdown", lost)
        if unmade:
            _log.error("lost %d captured exchanges: they were not processed before shutdown", unmade)

    async def _run_selection(self) -> None:
        await self._run(self._intake, self._select, gather_s=self._settings.interval_s)
        self._selected.close()

    async def _run(self, backlog: Backlog, step: Callable[[], Awaitable[None]], *, gather_s: float = 0.0) -> None:
        while await backlog.ready(gather_s):
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - a failed batch is counted, and the next one is still taken
                self._lose(backlog.batch)
                backlog.batch.clear()
                self._observer.instruments.hand_off_failed()
                _log.error("a batch was not captured: %s: %s", type(error).__name__, error)
                await asyncio.sleep(self._settings.interval_s)

    async def _select(self) -> None:
        self._overflow.flush(self._observer.instruments)
        factor = capture_factor(max(self._queue_monitor.utilisation, self._utilisation()))
        self._observer.instruments.capture_factor.set(factor)
        self._intake.take()
        if not (batch := self._intake.batch):
            return
        for recording in batch:
            recording.pressure = factor
        # In a thread, and few at a time: decoding must not hold up the event loop, nor its thread the processor.
        selected = await asyncio.to_thread(lambda: [self._selector.select(recording) for recording in batch])
        for recording, becomes_sample in zip(batch, selected, strict=True):
            if becomes_sample:
                self._selected.add(recording)
            else:
                self._capacity.release(recording.size)
        batch.clear()

    async def _make(self) -> None:
        self._selected.take()
        batch = self._selected.batch
        for number, made in enumerate(await self._maker.results(list(batch)), 1):
            recording = batch.popleft()
            sample = self._observer.priced(made) if self._observer.decoded(recording, made) else None
            if sample is not None:
                self._on_sample(recording, sample)
                self._samples.add(sample, recording.size)
            else:
                self._capacity.release(recording.size)
            if number % _COUNTED_AT_ONCE == 0:
                await asyncio.sleep(0)  # a long batch must not hold up requests

    def _utilisation(self) -> float:
        """The share of the capacity that selected recordings and samples use; the rest is about to be released."""
        used, bytes_used = self._capacity.items - len(self._intake), self._capacity.bytes - self._intake.bytes
        return max(used / self._capacity.max_items, bytes_used / self._capacity.max_bytes)

    def _lose(self, recordings: Iterable[Recording]) -> int:
        """Count recordings that were given up; return how many of them might have been captured."""
        lost = 0
        for recording in recordings:
            self._capacity.release(recording.size)
            lost += self._observer.lost(recording)
        return lost
