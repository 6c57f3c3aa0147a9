"""The intake of supplements: contexts, feedback and retrieval spans that are sent separately from an exchange."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from gaugeway.records import Sample, Supplement, grouped
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.settings.bounds import bounded, bounded_supplement
from gaugeway.storage.engines.failures import engine_failed
from gaugeway.storage.joining import Address, WaitingRoom, address_of, addresses_of, complete, targets_of
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Store
from monitors.evaluation.persist import Persistence, WorkerObserver

_log = logging.getLogger("gaugeway.worker")
_BATCH = 50
_BATCHES_OPEN = 50


@dataclass(eq=False)
class SupplementIntake:
    """Moves supplements from the queue to the store, and notes which samples they concern.

    `ready` holds the samples that waited in the `room` and need not wait longer; `late` the ids of stored samples that
    a supplement completes, each with a future that the worker resolves: True once the sample is completed, False when
    the worker stops first. A batch is acknowledged when all its samples are completed; else its lease runs out and the
    batch is delivered again.
    """

    queue: Queue
    store: Store
    persistence: Persistence
    _: KW_ONLY
    room: WaitingRoom
    observer: WorkerObserver
    stopping: asyncio.Event
    poll_s: float
    ready: dict[str, Sample] = field(default_factory=dict, init=False)
    late: deque[tuple[str, asyncio.Future[bool]]] = field(default_factory=deque, init=False)
    _batches: int = field(default=0, init=False)
    _unacknowledged: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Move supplements until `stopping` is set."""
        while not self.stopping.is_set():
            if not (taken := await self.persistence.attempt("take", partial(self.queue.take, _BATCH))):
                await happens_within(self.stopping, self.poll_s)
                continue
            batch = [self._bounded(bounded_supplement(supplement)) for supplement in taken]
            if (stored := await self._store_batch(batch)) is None:
                return
            self._batches += 1
            self.ready |= {sample.id: sample for sample in self.room.release(batch, time.monotonic())}
            self._count(batch, stored)
            by_address = _by_address(batch)
            late = [sample.id for sample in stored if complete(sample, _concerning(sample, by_address)) != sample]
            task = spawn(self._acknowledge([supplement.id for supplement in batch], late), name="late supplements")
            self._unacknowledged.add(task)
            task.add_done_callback(self._unacknowledged.discard)
            while len(self._unacknowledged) >= _BATCHES_OPEN:
                await asyncio.wait(self._unacknowledged, return_when=asyncio.FIRST_COMPLETED)

    async def aclose(self) -> None:
        """Give up batches that are not acknowledged yet: their leases run out and they are delivered again."""
        for task in (tasks := list(self._unacknowledged)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def stored_for(self, sample: Sample) -> Sequence[Supplement] | None:
        """Return the stored supplements of a sample; None when the worker is stopped first."""
        return await self.persistence.attempt("join", lambda: self.store.supplements_of(sample), engine_failed)

    async def settled_for(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]] | None:
        """Return the stored supplements of each sample, looked up again while a batch came, so that none is missed.

        The caller may put a sample into the `room` before it awaits anything else. None when the worker is stopped.
        """
        while True:
            batches = self._batches
            found = await self.persistence.attempt(
                "join", lambda: self.store.supplements_of_each(samples), engine_failed
            )
            if found is None or batches == self._batches:
                return found

    def _bounded(self, supplement: Supplement) -> Supplement:
        """Cut a supplement to this release's bounds: a gateway of an earlier one may send more."""
        within, cut = bounded(supplement)
        if cut:
            self.observer.supplement(supplement.source, "cut")
        return within

    async def _store_batch(self, batch: Sequence[Supplement]) -> Sequence[Sample] | None:
        """Store what can be stored; return the stored samples that it concerns, None when stopped first."""

        async def store(some: Sequence[Supplement]) -> Sequence[Sample] | None:
            return await self.persistence.attempt("supplement", lambda: self.store.supplement(some), engine_failed)

        try:
            return await store(batch)
        except Exception as error:  # noqa: BLE001 - one of them is at fault, and it must not stop the others
            self.observer.failed("supplement")
            _log.warning("cannot store a supplement: %s: %s", type(error).__name__, error)
        concerned: dict[str, Sample] = {}
        for supplement in batch:
            with suppress(Exception):  # counted above
                if (some := await store([supplement])) is None:
                    return None
                concerned |= {sample.id: sample for sample in some}
        return list(concerned.values())

    def _count(self, batch: Sequence[Supplement], stored: Sequence[Sample]) -> None:
        """Count the batch; what joins a sample that waited is counted when that sample is stored."""
        reached = {target for sample in stored for target in targets_of(sample)}
        about_to = {target for sample in self.ready.values() for target in targets_of(sample)}
        for supplement in batch:
            target = address_of(supplement), supplement.app
            if target in reached:
                self.observer.supplement(supplement.source, "joined")
            elif target not in about_to and not self.room.holds(supplement):
                self.observer.supplement(supplement.source, "waiting")

    async def _acknowledge(self, supplement_ids: Sequence[str], sample_ids: Sequence[str]) -> None:
        """Wait until these samples are completed, then acknowledge the supplements."""
        loop = asyncio.get_running_loop()
        waiting = [(sample_id, loop.create_future()) for sample_id in sample_ids]
        self.late.extend(waiting)
        if all(await asyncio.gather(*(done for _, done in waiting))):
            await self.persistence.attempt("ack", lambda: self.queue.ack_supplies(supplement_ids))


def _by_address(supplements: Iterable[Supplement]) -> dict[Address, list[Supplement]]:
    return grouped(
        (address, supplement) for supplement in supplements if (address := address_of(supplement)) is not None
    )


def _concerning(sample: Sample, by_address: Mapping[Address, Sequence[Supplement]]) -> list[Supplement]:
    return [supplement for address in addresses_of(sample) for supplement in by_address.get(address, ())]
