"""What the queues in SQL tables do alike: samples that wait, dead letters, and supplements are a table each."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.queues import Bound, Depth, Lease, PayloadReader, Queue

Table: TypeAlias = Literal["waiting", "dead", "supplies"]
Row: TypeAlias = tuple[str, float, bytes]
"""Id, time and payload."""
_PRUNE_BATCH, _FORGET_BATCH = 500, 200
_log = logging.getLogger("gaugeway")


class SqlQueue(Queue):
    """Runs the statements `sql` of an engine.

    `clock` gives Unix seconds, None stands for the engine's own clock; `stored` gives a text as the engine stores it.
    """

    sql: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        lease_s: float,
        max_attempts: int,
        clock: Callable[[], float] | None,
        max_bytes: int | None,
        stored: Callable[[str], str] = str,
    ) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._bound = Bound(max_bytes)
        self._stored = stored
        self._reader = PayloadReader[int](stored)

    @abstractmethod
    async def _add(self, name: Literal["put", "supply"], rows: Sequence[Row]) -> None:
        """Run a statement that adds rows."""

    @abstractmethod
    async def _used(self) -> int:
        """Return how many bytes the queue takes up."""

    @abstractmethod
    async def _counts(self) -> tuple[int, int, int, float | None, int]:
        """Set aside the samples whose last lease has ended.

        Return how many wait, are leased and dead, the oldest `started_at`, and the bytes.
        """

    @abstractmethod
    async def _claim(self, limit: int) -> tuple[int, list[Lease]]:
        """Lease up to `limit` rows; return their number, and the leases of those that can be read."""

    @abstractmethod
    async def _claim_supplies(self, limit: int) -> tuple[int, list[Supplement]]:
        """Take up to `limit` rows; return their number, and the supplements that can be read. The others go."""

    @abstractmethod
    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement."""

    @abstractmethod
    async def _change(self, statement: str, *values: Any) -> int:
        """Run a statement that writes; return how many rows it changed."""

    @abstractmethod
    async def _delete(self, table: Table, keys: Sequence[Any]) -> int:
        """Delete rows by the keys of `page_of_TABLE`, and their bytes; return how many there were."""

    async def put(self, samples: Sequence[Sample]) -> None:
        if rows := [(self._stored(sample.id), float(sample.started_at), encoded(sample)) for sample in samples]:
            await self._bound.admit(sum(len(row[2]) for row in rows), self._used)
            await self._add("put", rows)

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        rows = [
            (self._stored(supplement.id), float(supplement.received_at), encoded(supplement))
            for supplement in supplements
        ]
        if rows:
            await self._add("supply", rows)

    async def lease(self, limit: int) -> Sequence[Lease]:
        while limit > 0:
            claimed, leases = await self._claim(limit)
            if leases or not claimed:
                return leases
        return []

    async def take(self, limit: int) -> Sequence[Supplement]:
        while limit > 0:
            claimed, taken = await self._claim_supplies(limit)
            if taken or not claimed:
                return taken
        return []

    async def depth(self) -> Depth:
        total, leased, dead, oldest, used = await self._counts()
        return Depth(
            ready=total - leased,
            leased=leased,
            dead=dead,
            oldest_started_at=oldest,
            bytes=used,
            fill=self._bound.fill(used),
        )

    async def prune(self, before: float) -> int:
        """See the port; deletes in batches, so that writers wait only a moment."""
        await self._prune("supplies", before, self._now())
        return await self._prune("dead", before) + await self._prune("waiting", before, self._now())

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

        Dead letters after those that wait: what is set aside meanwhile is found there. What a worker holds at this
        moment it may still bring to the store.
        """
        trail = Trail(subject)
        return {
            "queued samples": await self._forget("waiting", -1, trail.sample, dry_run=dry_run),
            "dead letters": await self._forget("dead", self._before_dead, trail.sample, dry_run=dry_run),
            "queued supplements": await self._forget("supplies", -1, trail.supplement, dry_run=dry_run),
        }

    _before_dead: ClassVar[int | str] = -1
    """What is less than the key of a dead letter."""

    async def _forget(
        self, table: Table, after: int | str, is_meant: Callable[[str, str], bool], *, dry_run: bool
    ) -> int:
        total = 0
        while rows := await self._fetch(self.sql[f"page_of_{table}"], after, _FORGET_BATCH):
            after = rows[-1][0]
            # bytes that are no text are searched as well as they can be
            meant = [key for key, name, payload in rows if is_meant(name, payload.decode(errors="replace"))]
            total += len(meant) if dry_run or not meant else await self._delete(table, meant)
        return total

    async def _prune(self, table: Table, *values: float | None) -> int:
        before, *now = values
        total, removed = 0, _PRUNE_BATCH
        while removed == _PRUNE_BATCH:
            removed = await self._change(self.sql[f"prune_{table}"], before, _PRUNE_BATCH, *now)
            total += removed
        return total

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _report_buried(self, buried: int) -> None:
        if buried > 0:
            _log.warning("queue: moved %d samples to dead letters after %d attempts", buried, self._max_attempts)
