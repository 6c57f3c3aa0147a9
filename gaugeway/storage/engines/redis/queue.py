"""Queue in Redis or Valkey streams, read by one consumer group; for bursty load."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import VALUE_ERRORS, EngineError, RefusedError, encoded
from gaugeway.storage.engines.redis.connection import Address, Engine, Script, read_url
from gaugeway.storage.engines.scripts import script
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.queues import Bound, Depth, Lease, PayloadReader, Queue

T = TypeVar("T")
Room: TypeAlias = tuple[str, str, str]
_PRUNE_BATCH, _FORGET_BATCH = 500, 200
_COMPLAIN_EVERY_S = 60.0
_log = logging.getLogger("gaugeway")


_COMMON = script("redis/scripts/queue_common.lua")


def _with_common(name: str) -> Script:
    return Script(_COMMON + script(f"redis/scripts/queue_{name}.lua"))


PUT, LEASE, RENEW, ACK, DISCARD = map(_with_common, ("put", "lease", "renew", "ack", "discard"))
SET_ASIDE, REJECT, DEPTH, PRUNE = map(_with_common, ("set_aside", "reject", "depth", "prune"))
READ = Script(script("redis/scripts/queue_read.lua"))


class RedisQueue(Queue):
    """Samples in streams, for any number of processes on any number of machines.

    `shards` of the address spread them by their ids; each has keys of one hash tag, so that every step is on one node
    of a cluster. Order, and all or none of a `put`, hold within a shard; to put again what was put in part is harmless.
    At most `max_waiting` of the address wait; beyond that the oldest go and are counted (`Depth.trimmed`).

    Leases are ended by the engine's clock, so that no machine's own needs to be right; `clock`, Unix seconds, takes its
    place in tests. An operation that cannot be done raises `EngineError`.
    """

    def __init__(
        self,
        address: Address,
        lease_s: float = 120.0,
        max_attempts: int = 5,
        clock: Callable[[], float] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._bound = Bound(max_bytes)
        self._engine = Engine(address)
        self._shards = [Shard(address.prefix, number) for number in range(address.shards)]
        self._most = math.ceil(address.max_waiting / address.shards)
        self._lease_ms = math.ceil(lease_s * 1000)
        self._max_attempts = max_attempts
        self._clock = clock
        self._reader = PayloadReader[bytes](stored=str.encode)
        self._turn = 0
        self._trimmed = 0
        self._complain_at = 0.0

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> RedisQueue:
        """Return the queue in the engine that `url` names. Raises ValueError."""
        return cls(read_url(url), lease_s, max_attempts, max_bytes=max_bytes)

    async def put(self, samples: Sequence[Sample]) -> None:
        if rows := [(_bytes(sample.id), _age(sample.started_at), encoded(sample)) for sample in samples]:
            await self._bound.admit(sum(len(row[2]) for row in rows), self._used)
        for shard, some in self._spread(rows):
            keys = (*shard.waiting, *shard.dead, shard.counts)
            self._complain("samples", await self._add(keys, "samples", some))

    async def lease(self, limit: int) -> Sequence[Lease]:
        return await self._gather(limit, self._claim)

    async def set_aside(self, sample_id: str, reason: str) -> None:
        for shard, _ in self._spread([(_bytes(sample_id),)]):
            await self._engine.run(REJECT, (*shard.waiting, *shard.dead, shard.counts), (self._most, sample_id, reason))

    async def renew(self, sample_ids: Sequence[str]) -> None:
        for shard, some in self._spread([(_bytes(sample_id),) for sample_id in sample_ids]):
            await self._engine.run(RENEW, shard.waiting, (self._now(), *(sample_id for (sample_id,) in some)))

    async def ack(self, sample_ids: Sequence[str]) -> None:
        for shard, some in self._spread([(_bytes(sample_id),) for sample_id in sample_ids]):
            await self._engine.run(ACK, (*shard.waiting, *shard.dead), [sample_id for (sample_id,) in some])

    async def depth(self) -> Depth:
        arguments = (self._lease_ms, self._max_attempts, self._now(), self._most)
        rows = [
            await self._engine.run(DEPTH, (*shard.waiting, *shard.dead, shard.counts), arguments)
            for shard in self._shards
        ]
        buried, waiting, leased, dead = (sum(row[place] for row in rows) for place in range(4))
        used = sum(row[7] for row in rows)
        self._report_buried(buried)
        return Depth(
            ready=max(0, waiting - leased),
            leased=leased,
            dead=dead,
            oldest_started_at=min((float(row[4]) for row in rows if row[4]), default=None),
            trimmed=sum(row[5] + row[6] for row in rows),
            bytes=used,
            fill=max(self._bound.fill(used), max(row[1] for row in rows) / self._most),
        )

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        rows = [
            (_bytes(supplement.id), _age(supplement.received_at), encoded(supplement)) for supplement in supplements
        ]
        for shard, some in self._spread(rows):
            self._complain("supplements", await self._add((*shard.supplies, shard.counts), "supplements", some))

    async def take(self, limit: int) -> Sequence[Supplement]:
        return await self._gather(limit, self._claim_supplies)

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        for shard, some in self._spread([(_bytes(supplement_id),) for supplement_id in supplement_ids]):
            await self._engine.run(ACK, shard.supplies, [supplement_id for (supplement_id,) in some])

    async def prune(self, before: float) -> int:
        """See the port; deletes in batches."""
        total = 0
        for shard in self._shards:
            await self._prune(shard.supplies, before, held=True)
            total += await self._prune(shard.dead, before, held=False)
            total += await self._prune(shard.waiting, before, held=True)
        return total

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

        Of every shard first what waits, then the dead letters, as what is set aside meanwhile is found there;
        supplements last, which may be in another shard than the sample they are about. What a worker holds at this
        moment it may still bring to the store.
        """
        trail = Trail(subject)
        counts = dict.fromkeys(("queued samples", "dead letters", "queued supplements"), 0)
        for shard in self._shards:
            counts["queued samples"] += await self._forget(shard.waiting, trail.sample, dry_run=dry_run)
        for shard in self._shards:
            counts["dead letters"] += await self._forget(shard.dead, trail.sample, dry_run=dry_run)
        for shard in self._shards:
            counts["queued supplements"] += await self._forget(shard.supplies, trail.supplement, dry_run=dry_run)
        return counts

    async def _forget(self, room: Room, is_meant: Callable[[str, str], bool], *, dry_run: bool) -> int:
        total, after, seen = 0, "-", _FORGET_BATCH
        while seen == _FORGET_BATCH:
            rows = await self._engine.run(READ, room[:1], (after, _FORGET_BATCH))
            # bytes that are no text are searched as well as they can be
            meant = [
                entry
                for entry, name, body in rows
                if is_meant(name.decode(errors="replace"), body.decode(errors="replace"))
            ]
            if meant and not dry_run:
                await self._engine.run(DISCARD, room, meant)
            total += len(meant)
            seen = len(rows)
            after = f"({rows[-1][0].decode()}" if rows else after
            await asyncio.sleep(0)
        return total

    async def aclose(self) -> None:
        await self._engine.aclose()

    async def _used(self) -> int:
        return (await self.depth()).bytes

    def _now(self) -> str:
        """The time by the clock that tests turn; empty stands for the engine's own."""
        return str(round(self._clock() * 1000)) if self._clock is not None else ""

    def _spread(
        self, rows: Iterable[tuple[bytes, *tuple[bytes, ...]]]
    ) -> Iterable[tuple[Shard, list[tuple[bytes, ...]]]]:
        """Sort rows, which begin with an id, by shard."""
        found: dict[int, list[tuple[bytes, ...]]] = {}
        for row in rows:
            found.setdefault(zlib.crc32(row[0]) % len(self._shards), []).append(row)
        return [(self._shards[number], some) for number, some in found.items()]

    def _in_turn(self) -> list[Shard]:
        """All shards, each time beginning with another one: none is to wait for the others to be empty."""
        self._turn = (self._turn + 1) % len(self._shards)
        return self._shards[self._turn :] + self._shards[: self._turn]

    async def _gather(self, limit: int, claim: Callable[[Shard, int], Awaitable[tuple[bool, list[T]]]]) -> list[T]:
        """Claim from one shard after the other. One that fails does not take away what others gave: it is held now."""
        found: list[T] = []
        failure: EngineError | None = None
        for shard in self._in_turn():
            claimed = True
            try:
                while claimed and len(found) < limit:
                    claimed, some = await claim(shard, limit - len(found))
                    found += some
            except EngineError as error:
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    async def _add(self, keys: Sequence[str], field: str, rows: Sequence[tuple[bytes, ...]]) -> int:
        arguments: list[bytes | int] = [self._most, field.encode()]
        for row in rows:
            arguments += row
        gone: int = await self._engine.run(PUT, keys, arguments)
        return gone

    async def _claim(self, shard: Shard, limit: int) -> tuple[bool, list[Lease]]:
        """Lease up to `limit` entries; return whether there were any, and the leases of those that can be read."""
        keys = (*shard.waiting, *shard.dead, shard.counts)
        wish = (self._lease_ms, limit, self._max_attempts, self._now(), self._most)
        buried, rows = await self._engine.run(LEASE, keys, wish)
        self._report_buried(buried)
        leases, unreadable = self._reader.leases((*row,) for row in rows)
        if unreadable:
            arguments: list[bytes | int | str] = [self._most]
            for row in unreadable:
                arguments += row
            with contextlib.suppress(EngineError):  # they come again
                await self._engine.run(SET_ASIDE, keys, arguments)
        return bool(rows), leases

    async def _claim_supplies(self, shard: Shard, limit: int) -> tuple[bool, list[Supplement]]:
        """Take up to `limit` entries; return whether there were any, and those that can be read. The others go."""
        _, rows = await self._engine.run(LEASE, shard.supplies, (self._lease_ms, limit, 0, self._now(), 0))
        taken, unreadable = self._reader.supplements((entry, name, body) for entry, name, _, body in rows)
        if unreadable:
            with contextlib.suppress(EngineError):  # they come again
                await self._engine.run(DISCARD, shard.supplies, unreadable)
        return bool(rows), taken

    async def _prune(self, room: tuple[str, ...], before: float, *, held: bool) -> int:
        total, passed, seen = 0, 0, _PRUNE_BATCH
        while seen == _PRUNE_BATCH:
            lease_ms: int | str = self._lease_ms if held else ""
            arguments = (_age(before), passed, _PRUNE_BATCH, lease_ms, self._now())
            seen, gone = await self._engine.run(PRUNE, room, arguments)
            passed += seen - gone
            total += gone
            await asyncio.sleep(0)
        return total

    def _report_buried(self, buried: int) -> None:
        if buried:
            _log.warning("queue: moved %d samples to dead letters after %d attempts", buried, self._max_attempts)

    def _complain(self, what: str, gone: int) -> None:
        """Say that the queue is full, but not at every put while it is."""
        self._trimmed += gone
        if self._trimmed and time.monotonic() >= self._complain_at:
            self._complain_at = time.monotonic() + _COMPLAIN_EVERY_S
            _log.warning("queue full: dropped the %d oldest samples unevaluated (last: %s)", self._trimmed, what)
            self._trimmed = 0


class Shard:
    """The keys of one shard. The part in braces decides on which node of a cluster they are: one for all of them.

    A room is three keys: a stream (who waits, in what order, who is held since when and for which time), a hash from id
    to stream entry (so that an id waits once, and goes by its id), and a sorted set of ids by age. Entries are
    `id, at, body` and, of dead letters, `attempts, reason`. A script may write nothing before what the engine refuses
    when its memory is full (adding), or a step would happen half.
    """

    def __init__(self, prefix: str, number: int) -> None:
        tag = f"{{{prefix}:q:{number}}}"
        self.waiting = _room(f"{tag}:waiting")
        self.dead = _room(f"{tag}:dead")
        self.supplies = _room(f"{tag}:supplies")
        self.counts = f"{tag}:counts"

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.waiting, *self.dead, *self.supplies, self.counts)


def _room(stream: str) -> Room:
    return stream, f"{stream}:ids", f"{stream}:since"


def _bytes(name: str) -> bytes:
    """The id as Redis takes it. Raises RefusedError for one with lone surrogates."""
    try:
        return name.encode()
    except VALUE_ERRORS as error:
        raise RefusedError(type(error).__name__) from error


def _age(seconds: float) -> bytes:
    """The number as a sorted set takes it; it knows none that is not one."""
    return repr(0.0 if math.isnan(seconds) else float(seconds)).encode()
