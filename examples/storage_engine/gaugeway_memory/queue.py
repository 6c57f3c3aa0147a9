"""Queue in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.queues import Depth, Lease, Queue, QueueFull

from .named import shared


@dataclass(slots=True)
class _Waiting:
    sample: Sample
    size: int = 0
    attempts: int = 0
    leased_until: float | None = None


@dataclass(slots=True)
class _Supply:
    supplement: Supplement
    taken_until: float | None = None


class MemoryQueue(Queue):
    """Samples and supplements in dicts, oldest first; lost when the process ends."""

    def __init__(
        self,
        lease_s: float = 120.0,
        max_attempts: int = 5,
        clock: Callable[[], float] = time.time,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        self._dead: dict[str, Sample] = {}
        self._supplies: dict[str, _Supply] = {}

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> MemoryQueue:
        """Return the queue at this URL."""
        return shared(url, cls, lambda: cls(lease_s, max_attempts, max_bytes=max_bytes))

    async def put(self, samples: Sequence[Sample]) -> None:
        new: dict[str, _Waiting] = {}
        for sample in samples:
            if sample.id not in self._waiting and sample.id not in self._dead:
                new.setdefault(sample.id, _Waiting(sample, len(repr(sample))))
        if new and self._max_bytes is not None and (used := self._bytes()) >= self._max_bytes:
            raise QueueFull(f"{used} of {self._max_bytes} bytes are taken")
        self._waiting.update(new)

    async def lease(self, limit: int) -> Sequence[Lease]:
        now = self._clock()
        self._bury(now)
        free = (
            waiting for waiting in self._waiting.values() if waiting.leased_until is None or waiting.leased_until <= now
        )
        leases = []
        for waiting in islice(free, max(limit, 0)):
            waiting.attempts += 1
            waiting.leased_until = now + self._lease_s
            leases.append(Lease(sample=waiting.sample, attempt=waiting.attempts))
        return leases

    async def set_aside(self, sample_id: str, reason: str) -> None:  # noqa: ARG002 - the port's shape
        if (waiting := self._waiting.pop(sample_id, None)) is not None:
            self._dead[sample_id] = waiting.sample

    async def renew(self, sample_ids: Sequence[str]) -> None:
        for sample_id in sample_ids:
            if (waiting := self._waiting.get(sample_id)) is not None and waiting.leased_until is not None:
                waiting.leased_until = self._clock() + self._lease_s

    async def ack(self, sample_ids: Sequence[str]) -> None:
        for sample_id in sample_ids:
            self._waiting.pop(sample_id, None)
            self._dead.pop(sample_id, None)

    async def depth(self) -> Depth:
        now = self._clock()
        self._bury(now)
        leased = sum(
            waiting.leased_until is not None and waiting.leased_until > now for waiting in self._waiting.values()
        )
        return Depth(
            ready=len(self._waiting) - leased,
            leased=leased,
            dead=len(self._dead),
            oldest_started_at=min((waiting.sample.started_at for waiting in self._waiting.values()), default=None),
            bytes=self._bytes(),
            fill=self._bytes() / self._max_bytes if self._max_bytes is not None else 0.0,
        )

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        new: dict[str, _Supply] = {}
        for supplement in supplements:
            if supplement.id not in self._supplies:
                new.setdefault(supplement.id, _Supply(supplement))
        self._supplies.update(new)

    async def take(self, limit: int) -> Sequence[Supplement]:
        now = self._clock()
        free = (supply for supply in self._supplies.values() if supply.taken_until is None or supply.taken_until <= now)
        taken = []
        for supply in islice(free, max(limit, 0)):
            supply.taken_until = now + self._lease_s
            taken.append(supply.supplement)
        return taken

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        for supplement_id in supplement_ids:
            self._supplies.pop(supplement_id, None)

    async def prune(self, before: float) -> int:
        now = self._clock()
        old = [
            sample_id
            for sample_id, waiting in self._waiting.items()
            if waiting.sample.started_at < before and (waiting.leased_until is None or waiting.leased_until <= now)
        ]
        dead = [sample_id for sample_id, sample in self._dead.items() if sample.started_at < before]
        said = [
            supplement_id
            for supplement_id, supply in self._supplies.items()
            if supply.supplement.received_at < before and (supply.taken_until is None or supply.taken_until <= now)
        ]
        await self.ack([*old, *dead])
        await self.ack_supplies(said)
        return len(old) + len(dead)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        trail = Trail(subject)
        waiting = [
            held.sample.id for held in self._waiting.values() if trail.sample(held.sample.id, _json(held.sample))
        ]
        dead = [sample.id for sample in self._dead.values() if trail.sample(sample.id, _json(sample))]
        said = [name for name, supply in self._supplies.items() if trail.supplement(name, _json(supply.supplement))]
        if not dry_run:
            await self.ack([*waiting, *dead])
            await self.ack_supplies(said)
        return {"queued samples": len(waiting), "dead letters": len(dead), "queued supplements": len(said)}

    async def aclose(self) -> None:
        """Nothing to release."""

    def _bytes(self) -> int:
        return sum(waiting.size for waiting in self._waiting.values())

    def _bury(self, now: float) -> None:
        """Set aside the samples whose last lease has ended."""
        spent = [
            sample_id
            for sample_id, waiting in self._waiting.items()
            if waiting.attempts >= self._max_attempts
            and waiting.leased_until is not None
            and waiting.leased_until <= now
        ]
        for sample_id in spent:
            self._dead[sample_id] = self._waiting.pop(sample_id).sample


def _json(record: Sample | Supplement) -> str:
    return encoded(record).decode()
