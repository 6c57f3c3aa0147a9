"""The steps of capture: select the recordings that become samples, make the samples, send them to the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

from gateway.capture import result
from gateway.capture.exchange_reader import Decision
from gateway.capture.result import CaptureResult, Decoder
from gateway.handoff.observer import CaptureObserver
from gateway.handoff.sampler_client import SamplerClient, SamplerClientError
from gaugeway.exchange import GENERATION_ROUTES, Recording
from gaugeway.records import Sample
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.retry import Sink
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
                decision = self.reader.decide(recording)
                if decision != "captured":
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
