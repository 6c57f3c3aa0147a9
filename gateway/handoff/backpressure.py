"""A queue that fills up: how full it is, asked beside the traffic, and by which factor less is captured for it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from monitors.runtime.tasks import spawn
from monitors.storage.queues import Queue

EASES_AT, FLOOR_AT, FLOOR = 0.5, 0.9, 0.05
EVERY_S = 5.0
_PAUSE = 9
_log = logging.getLogger("gaugeway.handoff")


def easing(fill: float) -> float:
    """The factor for the capture rate when a share `fill` of the room is used: 1 up to a half, then less and less.

    It is a function of what is there already, not of the exchange that comes, and goes into the sample's rate: so
    weighting by 1/rate stays unbiased. It never is 0; what does not fit in the end is counted where it is lost.

    >>> [round(easing(fill), 3) for fill in (0.0, 0.5, 0.7, 0.9, 1.0)]
    [1.0, 1.0, 0.525, 0.05, 0.05]
    """
    part = (min(max(fill, EASES_AT), FLOOR_AT) - EASES_AT) / (FLOOR_AT - EASES_AT)
    return 1.0 - part * (1.0 - FLOOR)


class QueueWatch:
    """Asks a queue every `every_s` seconds, give or take a half, how full it is; gateways do not ask all at once.

    A queue that does not answer is `fill` 0: how full it is is unknown, and what piles up here says enough. Where the
    answer takes long it is asked for less often: a tenth of the time at most. `on_failure` counts failed attempts.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        every_s: float = EVERY_S,
        draw: Callable[[], float] = random.random,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.fill = 0.0
        self._queue = queue
        self._every_s = every_s
        self._draw = draw
        self._on_failure = on_failure
        self._silent = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start asking; needs a running event loop."""
        self._task = spawn(self._run(), name="queue's fill")

    async def aclose(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> None:
        """Ask once."""
        try:
            self.fill = (await self._queue.depth()).fill
            self._silent = False
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, it is counted and asked again
            self._on_failure()
            self.fill = 0.0
            if not self._silent:
                _log.warning("cannot read the queue depth: %s: %s", type(error).__name__, error)
            self._silent = True

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(self._every_s * (0.5 + self._draw()), _PAUSE * (time.monotonic() - began)))
