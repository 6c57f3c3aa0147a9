"""A queue on another machine that cannot be reached for long: samples wait in a file here and go back bit by bit."""

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

from gateway.handoff.backpressure import EASES_AT
from monitors.records import Sample, Supplement
from monitors.runtime.tasks import spawn
from monitors.storage.engines.failures import reason_of, refused
from monitors.storage.erase import Subject
from monitors.storage.queues import Depth, Lease, Queue, QueueFull

Step: TypeAlias = Literal["spilled", "returned"]
AFTER_S = 10.0
"""For so long the queue must have failed: a restart of it is waited for in memory."""
LEASE_S, ATTEMPTS = 30.0, 2**31 - 1
"""What is being brought back is not offered to the other workers meanwhile; it never becomes a dead letter."""
_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S = 1.0, 30.0
_AT_ONCE = 100
_log = logging.getLogger("gaugeway.handoff")


class Spill:
    """A `queue` with a `file` beside it, itself a queue, for the time when the first has failed for `after_s`.

    What comes then goes into the file, as long as that has room, and from there to the queue once it works again: while
    that is less than half full, at most `drain_per_s` samples a second, in steps after pauses drawn at random, so that
    neither the queue nor the judge is run over by all gateways at once. What comes meanwhile does not wait behind it. A
    sample that comes to the queue twice is there once. A queue that is full is no outage: what it refuses is the
    caller's to keep.

    `count` is told how many samples were spilled or returned.
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
        self._failing_since: float | None = None
        self._spilling = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start bringing back what is in the file, also what an earlier process left there."""
        self._task = spawn(self._drain(), name="spill")

    def hurry(self) -> None:
        """Wait for no queue any more: what it does not take at once goes into the file."""
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
            self._tell(spilling=True)
            self._count("spilled", len(samples))
        else:
            self._failing_since = None
            self._tell(spilling=False)

    async def depth(self) -> Depth:
        """The queue's, as full as the file if that is fuller; the file's while the queue does not answer."""
        kept = await self._file.depth()
        try:
            depth = await self._queue.depth()
        except Exception:  # noqa: BLE001 - whatever it is, it is met by spilling
            return kept
        return replace(depth, fill=max(depth.fill, kept.fill))

    async def lease(self, limit: int) -> Sequence[Lease]:
        return await self._queue.lease(limit)

    async def ack(self, sample_ids: Sequence[str]) -> None:
        await self._queue.ack(sample_ids)

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        await self._queue.supply(supplements)

    async def take(self, limit: int) -> Sequence[Supplement]:
        return await self._queue.take(limit)

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        await self._queue.ack_supplies(supplement_ids)

    async def set_aside(self, sample_id: str, reason: str) -> None:
        await self._queue.set_aside(sample_id, reason)

    async def prune(self, before: float) -> int:
        return await self._file.prune(before) + await self._queue.prune(before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        spilled = Counter(await self._file.forget(subject, dry_run=dry_run))
        return spilled + Counter(await self._queue.forget(subject, dry_run=dry_run))

    async def aclose(self) -> None:
        """Stop; what is in the file stays there for the next time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._file.aclose()
        await self._queue.aclose()

    async def drain(self, limit: int) -> int:
        """Bring at most `limit` samples back; return how many. None while the queue has to do with what is new.

        Raises what the queue raises, mostly before anything is taken out: that would be held for a while.
        """
        if (await self._queue.depth()).fill >= EASES_AT:
            return 0
        leases = await self._file.lease(limit)
        if leases:
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
        """Put back one at a time; what the queue refuses becomes a dead letter of the file."""
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
        """Bring back, one sample at first: what is taken out in vain is held for a while."""
        at_once, back_off = 1, _FIRST_BACK_OFF_S
        most = min(_AT_ONCE, math.ceil(self._drain_per_s))
        while True:
            pause_s = self._draw() * back_off
            try:
                returned = await self.drain(at_once)
            except Exception as error:  # noqa: BLE001 - whatever fails, it is tried again
                _log.debug("not brought back yet: %s", type(error).__name__)
                at_once, back_off = 1, min(back_off * 2, _MAX_BACK_OFF_S)
            else:
                at_once, back_off = most, _FIRST_BACK_OFF_S
                if returned:
                    pause_s = returned / self._drain_per_s * (0.5 + self._draw())
            await asyncio.sleep(pause_s)

    def _tell(self, *, spilling: bool) -> None:
        """Say once that it begins, and that it is over."""
        if spilling and not self._spilling:
            _log.warning("queue unreachable: spooling samples to a file")
        elif self._spilling and not spilling:
            _log.warning("queue reachable again: draining the spool file")
        self._spilling = spilling
