"""Recordings between the steps of capture, and the count of those that found no room."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import Recording
from gaugeway.runtime.label_cap import OVERFLOW

MAX_OVERFLOWN = 1000
"""Kinds of requests that found no room, until they are counted; the apps of all others count as `_other`."""
_BATCH_MIN, _BATCH_MAX, _BATCH_BYTES = 16, 200, 16 * 1024  # internal bound: size of a batch


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
