"""The spill queue: while the queue is unreachable for long, samples go to a local file and later back to the queue."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from gateway.handoff.backpressure import SHEDS_AT
from gaugeway.records import Sample
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.retry import Backoff
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import reason_of, refused
from gaugeway.storage.erase import Subject
from gaugeway.storage.queues import Depth, Lease, Queue, QueueFull

Step: TypeAlias = Literal["spilled", "returned"]
AFTER_S = 10.0
"""How long the queue must have failed before samples go to the file; a shorter outage is bridged in memory."""
LEASE_S, ATTEMPTS = 30.0, 2**31 - 1
"""Samples being drained from the file are leased: other workers skip them, and they never become dead letters."""
DRAIN_PER_S = 50.0
"""Samples a second that the gateways' processes of one machine return together: a queue that recovers gets its usual
traffic besides, and its database should not be overloaded by what waited."""
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 1.0, 30.0  # internal bound: time between our own attempts
_AT_ONCE = 100
_log = logging.getLogger("gaugeway.handoff")


class Spill:
    """A queue that puts samples into `file`, itself a queue, once `queue` has failed for `after_s` seconds.

    When `queue` works again the file is drained into it: while the queue is less than half full, at most `drain_per_s`
    samples per second, in steps with random pauses, so that many gateways do not overload the queue and the judge
    together. New samples do not wait behind the file. Putting a sample into the queue twice stores it once. A full
    queue is not an outage: the caller keeps what it refuses.

    `count` is called with the number of samples that were spilled or returned.
    """

    def __init__(
        self,
        queue: Queue,
        file: Queue,
        *,
        drain_per_s: float,
        count: Callable[[Step, int], None] = lambda *_: None,
        after_s: float = AFTER_S,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._file = file
        self._drain_per_s = drain_per_s
        self._count = count
        self._after_s = after_s
        self._draw = draw
        self.lease, self.renew, self.ack, self.set_aside = queue.lease, queue.renew, queue.ack, queue.set_aside
        self.supply, self.take, self.ack_supplies = queue.supply, queue.take, queue.ack_supplies
        self._failing_since: float | None = None
        self._outage = Outage(_log)
        self._undrained = Outage(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start draining the file, including samples that an earlier process left there."""
        self._task = spawn(self._drain(), name="spill")

    def hurry(self) -> None:
        """Shut down soon: from now on samples that the queue does not accept at once go to the file."""
        self._after_s = 0.0

    async def put(self, samples: Sequence[Sample]) -> None:
        try:
            await self._queue.put(samples)
        except QueueFull:
            raise
        except Exception as error:
            if refused(error):
                raise
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since < self._after_s:
                raise
            try:
                await self._file.put(samples)
            except QueueFull as full:
                raise error from full
            self._outage.begin("queue unreachable: spooling samples to a file")
            self._count("spilled", len(samples))
        else:
            self._failing_since = None
            self._outage.end("queue reachable again: draining the spool file", level=logging.WARNING)

    async def depth(self) -> Depth:
        """The queue's depth, with the file's utilisation where that is higher; the file's while the queue fails."""
        kept = await self._file.depth()
        try:
            depth = await self._queue.depth()
        except Exception:  # noqa: BLE001 - any failure of any engine; `put` meets it by spilling
            return kept
        return replace(depth, fill=max(depth.fill, kept.fill))

    async def prune(self, before: float) -> int:
        return await self._file.prune(before) + await self._queue.prune(before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        spilled = Counter(await self._file.forget(subject, dry_run=dry_run))
        return spilled + Counter(await self._queue.forget(subject, dry_run=dry_run))

    async def aclose(self) -> None:
        """Stop draining; the samples in the file stay for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._file.aclose()
        await self._queue.aclose()

    async def drain(self, limit: int) -> int:
        """Move at most `limit` samples to the queue; return how many. None while the queue is half full or more.

        Raises what the queue raises, usually before any sample is leased: a leased one is held back for a while.
        """
        if (await self._queue.depth()).fill >= SHEDS_AT:
            return 0
        if leases := await self._file.lease(limit):
            try:
                await self._queue.put([lease.sample for lease in leases])
            except Exception as error:
                if not refused(error):
                    raise
                leases = await self._return_each(leases)
            await self._file.ack([lease.sample.id for lease in leases])
            self._count("returned", len(leases))
        return len(leases)

    async def _return_each(self, leases: Sequence[Lease]) -> list[Lease]:
        """Put one sample at a time; a sample that the queue refuses becomes a dead letter of the file."""
        returned = []
        for lease in leases:
            try:
                await self._queue.put([lease.sample])
            except Exception as error:
                if not refused(error):
                    raise
                _log.warning("the queue refused exchange %s: %s", lease.sample.id, reason_of(error))
                await self._file.set_aside(lease.sample.id, f"refused: {reason_of(error)}")
            else:
                returned.append(lease)
        return returned

    async def _drain(self) -> None:
        """Drain repeatedly, after a failure one sample at first: a sample leased in vain is held back for a while."""
        at_once, backoff = 1, Backoff(_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S, self._draw)
        most = min(_AT_ONCE, math.ceil(self._drain_per_s))
        while True:
            try:
                returned = await self.drain(at_once)
            except Exception as error:  # noqa: BLE001 - any failure of any engine; the attempt is repeated
                self._undrained.begin("spool file not drained yet: %s", type(error).__name__)
                at_once, pause_s = 1, backoff.failed()
            else:
                backoff.reset()
                self._undrained.end("the spool file can be drained again")
                at_once, jitter = most, self._draw()
                pause_s = returned / self._drain_per_s * (0.5 + jitter) if returned else _FIRST_BACK_OFF_S * jitter
            await asyncio.sleep(pause_s)
