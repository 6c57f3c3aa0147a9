"""Back-pressure on capture: the utilisation of the queue, and the capture rate it allows."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.queues import Queue

SHEDS_AT, FLOOR_AT, FLOOR = 0.5, 0.9, 0.05
"""Utilisation at which the capture rate starts to fall, and at which it reaches its floor; the factor at the floor."""
EVERY_S = 5.0
_PAUSE = 9
"""Pause after a read, as a multiple of the time the read took."""
_log = logging.getLogger("gaugeway.handoff")


def capture_factor(utilisation: float) -> float:
    """Return the factor of the capture rate at a utilisation (0 to 1): 1 up to a half, then falling linearly to 0.05.

    It depends on what is held already, not on the new exchange, and is part of the sample's rate, so that weights of
    1/rate stay unbiased. It is never 0; an exchange that finds no room is counted as overflow.

    >>> [round(capture_factor(utilisation), 3) for utilisation in (0.0, 0.5, 0.7, 0.9, 1.0)]
    [1.0, 1.0, 0.525, 0.05, 0.05]
    """
    part = (min(max(utilisation, SHEDS_AT), FLOOR_AT) - SHEDS_AT) / (FLOOR_AT - SHEDS_AT)
    return 1.0 - part * (1.0 - FLOOR)


class Failures(Protocol):
    """Counts failed attempts to reach the queue."""

    def hand_off_failed(self) -> None:
        """Count one failed attempt."""


class QueueMonitor:
    """Reads a queue's utilisation about every `every_s` seconds, with jitter so that gateways do not ask all at once.

    While the queue does not answer, `utilisation` is 0: it is unknown, and the capture buffer fills up anyway. A slow
    queue is read less often, so that reading takes a tenth of the time at most.
    """

    def __init__(
        self, queue: Queue, *, every_s: float = EVERY_S, draw: Callable[[], float] = random.random, observer: Failures
    ) -> None:
        self.utilisation = 0.0
        self._queue = queue
        self._every_s = every_s
        self._draw = draw
        self._observer = observer
        self._outage = Outage(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start reading in the background; needs a running event loop."""
        self._task = spawn(self._run(), name="queue monitor")

    async def aclose(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            self.utilisation = (await self._queue.depth()).fill
            self._outage.end("the queue depth can be read again")
        except Exception as error:  # noqa: BLE001 - any failure of any engine is counted, and the depth is read again
            self._observer.hand_off_failed()
            self.utilisation = 0.0
            self._outage.begin("cannot read the queue depth: %s: %s", type(error).__name__, error)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self._read()
            await asyncio.sleep(max(self._every_s * (0.5 + self._draw()), _PAUSE * (time.monotonic() - began)))
