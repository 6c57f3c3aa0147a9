"""The capture buffer: bounded, read in batches by a thread, delivered to the queue until it succeeds."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from gateway.exchange import GENERATION_ROUTES, Exchange, Explicit, Recording
from gateway.handoff.backpressure import EVERY_S, QueueWatch, easing
from gateway.handoff.sampler_client import SamplerClient, SamplerClientError
from gateway.http.encoding import EncodingError
from gateway.telemetry.metrics import Instruments
from monitors.records import Sample
from monitors.runtime.label_cap import OVERFLOW
from monitors.runtime.tasks import happens_within, spawn
from monitors.storage.engines.failures import reason_of, refused
from monitors.storage.queues import Queue

_log = logging.getLogger("gaugeway.handoff")
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 0.1, 5.0
_TOO_LARGE = 413
MAX_OVERFLOWN = 1000
"""Kinds of requests that found no room, until they are counted; the apps of all others count as `_other`."""
_READ_AT_ONCE, _READ_AT_MOST, _READ_BYTES = 16, 200, 16 * 1024


class Reader(Protocol):
    """Turns a recording into an exchange, and an exchange into the sample it may become."""

    def read(self, recording: Recording) -> Exchange:
        """Read a recording; raises ValueError when its bodies make no sense."""

    def chosen(self, exchange: Exchange) -> bool:
        """Whether the exchange becomes a sample."""

    def make(self, exchange: Exchange) -> Sample:
        """Make the sample of an exchange that was chosen."""


class CaptureBuffer:
    """Takes recordings from the request path and brings samples to the queue.

    At most `max_items` exchanges and `max_bytes` of their bodies are held; beyond that the newest is dropped and
    counted. Before it comes to that, less is captured: the fuller the queue, or what is held here, the less. Samples
    are made in the process of `offload`, if there is one and it answers. While the queue fails, samples stay here and
    are tried again after random parts of a time that grows from 0.1 s to 5 s: many gateways that lost the same queue
    must not come back all at once.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        reader: Reader,
        instruments: Instruments,
        on_exchange: Callable[[Exchange], None] | None = None,
        offload: SamplerClient | None = None,
        max_items: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        batch: int = 100,
        interval_s: float = 0.05,
        watch_s: float = EVERY_S,
    ) -> None:
        self.reader = reader
        self.offload = offload
        self._complained = False
        self._queue = queue
        self._watch = QueueWatch(queue, every_s=watch_s, on_failure=instruments.hand_off_failed)
        self._instruments = instruments
        self._on_exchange = on_exchange
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._batch = batch
        self._interval_s = interval_s
        self._recordings: deque[Recording] = deque()
        self._reading: list[Recording] = []
        self._chosen: deque[Recording] = deque()
        self._making: list[Recording] = []
        self._maker: asyncio.Task[None] | None = None
        self._overflown: Counter[tuple[str, str, int, str]] = Counter()
        self._samples: deque[tuple[Sample, int]] = deque()
        self._bytes = self._unread_bytes = 0
        self._retry_at, self._back_off = 0.0, _FIRST_BACK_OFF_S
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task; needs a running event loop."""
        self._task = spawn(self._run(), name="hand-off")
        self._watch.start()
        if self.offload is not None:
            self.offload.start()

    def offer(self, recording: Recording) -> None:
        """Take a finished recording. Called on the request path: only appends, never blocks, never raises."""
        if recording.too_large and recording.explicit is not None:
            # It will not be captured: what was said out of band must not be held beside the limit.
            recording.explicit = Explicit(app=recording.explicit.app, capture=recording.explicit.capture)
        if self._held() >= self._max_items or self._bytes + recording.size > self._max_bytes:
            app = _app_of(recording) if len(self._overflown) < MAX_OVERFLOWN else OVERFLOW
            self._overflown[app, recording.route, recording.status, recording.ending] += 1
        else:
            self._bytes += recording.size
            self._unread_bytes += recording.size
            self._recordings.append(recording)
        self._wake.set()

    def _held(self) -> int:
        unmade = len(self._recordings) + len(self._reading) + len(self._chosen) + len(self._making)
        return unmade + len(self._samples)

    def _fill(self) -> float:
        """The share of the room that is taken by what was chosen. What is yet to be read is gone in a moment."""
        held = self._held() - len(self._recordings)
        return max(held / self._max_items, (self._bytes - self._unread_bytes) / self._max_bytes)

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Deliver what is left within `timeout_s`; what cannot be delivered is counted as error."""
        self._closing = True
        self._wake.set()
        await self._watch.aclose()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            tasks = [self._task, *([self._maker] if self._maker is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self.offload is not None:
            await self.offload.aclose()
        self._count_overflown()
        for sample, _ in self._samples:
            self._instruments.outcome(sample.app, "error")
        waiting = (*self._making, *self._chosen, *self._reading, *self._recordings)
        left = [one for one in waiting if one.route in GENERATION_ROUTES]
        for recording in left:
            self._instruments.outcome(_app_of(recording), "error")
        if lost := len(self._samples) + len(left):
            _log.error("lost %d captured exchanges: the queue did not accept them before shutdown", lost)

    async def _run(self) -> None:
        while not (self._closing and not (self._held() or self._overflown)):
            try:
                await self._step()
            except Exception as error:  # noqa: BLE001 - whatever happens to one batch, the next must still be taken
                self._give_up(self._reading)
                self._reading = []
                self._instruments.hand_off_failed()
                _log.error("a batch was not captured: %s: %s", type(error).__name__, error)
                await asyncio.sleep(self._interval_s)

    async def _step(self) -> None:
        """Wait for work, read some, deliver a batch when there is one."""
        if not (self._recordings or self._overflown):
            self._wake.clear()
            waits = max(self._retry_at - time.monotonic(), 0.01) if self._samples else None
            await happens_within(self._wake, waits)
            if not self._closing:
                await asyncio.sleep(self._interval_s)  # lets a batch gather
        await self._read_batch()
        self._keep_making()
        enough = len(self._samples) >= self._batch or not self._recordings
        if self._samples and enough and time.monotonic() >= self._retry_at:
            await self._deliver()
        self._instruments.waiting.set(self._held())

    async def _read_batch(self) -> None:
        self._count_overflown()
        factor = easing(max(self._watch.fill, self._fill()))
        self._instruments.capture_factor.set(factor)
        self._reading = _take(self._recordings)
        if not self._reading:
            return
        for recording in self._reading:
            self._unread_bytes -= recording.size
            recording.pressure = factor
        # In a thread, and few at a time: parsing must not hold up the event loop, nor its thread the processor.
        read = await asyncio.to_thread(lambda batch: [self._read(one) for one in batch], self._reading)
        for recording, chosen in zip(self._reading, read, strict=True):
            if chosen:
                self._chosen.append(recording)
            else:
                self._bytes -= recording.size
        self._reading = []

    def _keep_making(self) -> None:
        """Have samples made of what was chosen, beside reading: counting must not wait for a busy processor."""
        if self._maker is not None and not self._maker.done():
            return
        self._give_up(self._making)  # of a round that ended with an error
        self._making = []
        if self._chosen:
            self._maker = spawn(self._make_batches(), name="making samples")

    async def _make_batches(self) -> None:
        while self._chosen:
            self._making = _take(self._chosen)
            for recording, made in zip(self._making, await self._make(self._making), strict=True):
                if isinstance(made, Sample):
                    self._samples.append((made, recording.size))
                else:
                    self._give_up([recording])
                    _log.warning("exchange %s was not captured: %s", recording.id, made)
            self._making = []
            self._wake.set()

    async def _make(self, chosen: Sequence[Recording]) -> Sequence[Sample | str]:
        """Make samples, in the other process if there is one; what fails has the exception's name in its place."""
        if self.offload is not None:
            try:
                made = await self.offload.samples(chosen)
                self._complained = False
                return made
            except SamplerClientError as error:
                if not self._complained:
                    _log.warning("sampler process unavailable, making samples in the gateway process: %s", error)
                self._complained = True
        return await asyncio.to_thread(lambda: [self._made(recording) for recording in chosen])

    def _made(self, recording: Recording) -> Sample | str:
        try:
            return self.reader.make(self.reader.read(recording))
        except Exception as error:  # noqa: BLE001 - what one odd exchange does must not stop the capture of others
            return type(error).__name__

    def _count_overflown(self) -> None:
        overflown, self._overflown = self._overflown, Counter()
        for (app, route, status, ending), count in overflown.items():
            self._instruments.overflown(app, route, status, ending, count)

    def _give_up(self, recordings: Sequence[Recording]) -> None:
        for recording in recordings:
            self._bytes -= recording.size
            if recording.route in GENERATION_ROUTES:
                self._instruments.outcome(_app_of(recording), "error")

    def _read(self, recording: Recording) -> bool:
        """Count a request; return whether it becomes a sample, otherwise count its outcome.

        "captured" is counted later, when the queue has it.
        """
        start = time.perf_counter()
        if recording.explicit is not None and recording.explicit.dropped_tags:
            self._instruments.tags_dropped(recording.explicit.dropped_tags)
        app, model, stream, outcome, chosen = _app_of(recording), "unknown", False, None, False
        if recording.route in GENERATION_ROUTES:
            outcome = "error"
            try:
                rejected = recording.ending == "rejected"
                if recording.too_large or (rejected and recording.status == _TOO_LARGE):
                    outcome = "too_large"
                elif rejected:  # there is no answer to judge, and strangers must not fill the queue
                    outcome = "rejected"
                else:
                    exchange = self.reader.read(recording)
                    app, model, stream = exchange.app, exchange.model, exchange.stream
                    outcome = self._choose(recording, exchange)
                    chosen = outcome is None
            except Exception as error:  # noqa: BLE001 - what one odd exchange does must not stop the capture of others
                reason = _reason(error)
                self._instruments.unreadable(reason)
                _log.warning("exchange %s was not captured: %s (%s)", recording.id, type(error).__name__, reason)
        self._instruments.request(recording, app=app, model=model, stream=stream)
        if outcome is not None:
            self._instruments.outcome(app, outcome)
        self._instruments.capture_seconds(time.perf_counter() - start)
        return chosen

    def _choose(self, recording: Recording, exchange: Exchange) -> str | None:
        """Return None for an exchange that becomes a sample, otherwise its outcome."""
        if self._on_exchange is not None:
            self._on_exchange(exchange)
        if recording.explicit is not None and not recording.explicit.capture:
            return "opted_out"
        if self.reader.chosen(exchange):
            return None
        eased = exchange.pressure < 1.0 and self.reader.chosen(replace(exchange, pressure=1.0))
        return "back_pressure" if eased else "sampled_out"

    async def _deliver(self) -> None:
        """Bring up to one batch of samples to the queue; when it fails, wait longer before the next try."""
        batch = [self._samples[index] for index in range(min(self._batch, len(self._samples)))]
        try:
            await self._queue.put([sample for sample, _ in batch])
        except Exception as error:  # noqa: BLE001 - any failure of any queue is met by waiting and trying again
            if refused(error):
                await self._deliver_each(len(batch))
            else:
                self._wait_for_queue(len(batch), error)
            return
        self._back_off = _FIRST_BACK_OFF_S
        for _ in batch:
            self._instruments.captured(self._pop())

    async def _deliver_each(self, count: int) -> None:
        """Put samples one at a time, so that only the one that the queue refuses is lost."""
        for _ in range(count):
            sample = self._samples[0][0]
            try:
                await self._queue.put([sample])
            except Exception as error:  # noqa: BLE001 - as above
                if not refused(error):
                    self._wait_for_queue(1, error)
                    return
                _log.warning("the queue refused exchange %s, dropping it: %s", sample.id, reason_of(error))
                self._instruments.outcome(self._pop().app, "error")
            else:
                self._instruments.captured(self._pop())
        self._back_off = _FIRST_BACK_OFF_S

    def _wait_for_queue(self, count: int, error: Exception) -> None:
        self._instruments.hand_off_failed()
        _log.warning("the queue rejected %d samples, retrying: %s: %s", count, type(error).__name__, error)
        self._retry_at = time.monotonic() + self._back_off * random.random()  # noqa: S311 - no secret
        self._back_off = min(self._back_off * 2, _MAX_BACK_OFF_S)

    def _pop(self) -> Sample:
        sample, size = self._samples.popleft()
        self._bytes -= size
        return sample


def _reason(error: Exception) -> str:
    if isinstance(error, EncodingError):
        return error.reason
    return "invalid_json" if isinstance(error, ValueError) else "internal"


def _app_of(recording: Recording) -> str:
    return (recording.explicit.app if recording.explicit else None) or "default"


def _take(waiting: deque[Recording]) -> list[Recording]:
    """Take the next batch out. The more wait, the more at once: then throughput counts more than somebody's ms."""
    taken: list[Recording] = []
    size = 0
    at_once = min(max(_READ_AT_ONCE, len(waiting) // 8), _READ_AT_MOST)
    while waiting and len(taken) < at_once and size < _READ_BYTES * at_once:
        taken.append(waiting.popleft())
        size += taken[-1].size
    return taken
