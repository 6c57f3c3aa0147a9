"""Queue in PostgreSQL tables: workers lease rows with SKIP LOCKED."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.postgres.connection import Database, count_of, plain, remove
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.queues import Bound, Depth, Lease, PayloadReader, Queue

if TYPE_CHECKING:
    from gaugeway.storage.engines.postgres.connection import Connection

_NOW = "coalesce($1::float8, extract(epoch FROM clock_timestamp())::float8)"
_PUT = """
    INSERT INTO waiting (id, started_at, payload)
    SELECT new.id, new.started_at, new.payload
    FROM unnest($1::text[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS new (id, started_at, payload, place)
    WHERE NOT EXISTS (SELECT 1 FROM dead WHERE dead.id = new.id)
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
"""
_LEASE = f"""
    WITH free AS MATERIALIZED (
        SELECT position FROM waiting WHERE leased_until IS NULL OR (leased_until <= {_NOW} AND attempts < $4)
        ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    UPDATE waiting SET attempts = attempts + 1, leased_until = {_NOW} + $2
    FROM free WHERE waiting.position = free.position
    RETURNING waiting.position, id, attempts, payload
"""  # noqa: S608 - put together from constants
_KEEP_DEAD = """
    INSERT INTO dead (id, started_at, payload, attempts, reason) SELECT * FROM gone
    ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, reason = excluded.reason
"""
_BURY = f"""
    WITH over AS MATERIALIZED (
        SELECT position FROM waiting WHERE leased_until <= {_NOW} AND attempts >= $2 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM waiting USING over WHERE waiting.position = over.position
        RETURNING id, started_at, payload, attempts, 'attempts'
    )
    {_KEEP_DEAD}
"""  # noqa: S608 - put together from constants
_SET_ASIDE = f"""
    WITH gone AS (DELETE FROM waiting WHERE position = $1 RETURNING id, started_at, payload, attempts, $2::text)
    {_KEEP_DEAD}
"""  # noqa: S608 - put together from constants
_REJECT = f"""
    WITH gone AS (DELETE FROM waiting WHERE id = $1 RETURNING id, started_at, payload, attempts, $2::text)
    {_KEEP_DEAD}
"""  # noqa: S608 - put together from constants
_DEPTH = f"""
    SELECT (SELECT count(*) FROM waiting), (SELECT count(*) FROM waiting WHERE leased_until > {_NOW}),
        (SELECT count(*) FROM dead), (SELECT min(started_at) FROM waiting),
        (SELECT count(*) FROM waiting) * coalesce((SELECT avg(pg_column_size(payload)) FROM (
            SELECT payload FROM waiting ORDER BY position DESC LIMIT 200
        ) AS youngest), 0)::bigint
"""  # noqa: S608 - put together from constants; to add up all would read the whole table
_SUPPLY = """
    INSERT INTO supplies (id, received_at, payload)
    SELECT new.id, new.received_at, new.payload
    FROM unnest($1::text[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS new (id, received_at, payload, place)
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
"""
_TAKE = f"""
    WITH free AS MATERIALIZED (
        SELECT position FROM supplies WHERE taken_until IS NULL OR taken_until <= {_NOW}
        ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    UPDATE supplies SET taken_until = {_NOW} + $2 FROM free WHERE supplies.position = free.position
    RETURNING supplies.position, id, payload
"""  # noqa: S608 - put together from constants
_PRUNE = f"""
    DELETE FROM {{table}} WHERE position IN (
        SELECT position FROM {{table}}
        WHERE {{began}} < $2 AND ({{held}} IS NULL OR {{held}} <= {_NOW}) LIMIT $3 FOR UPDATE SKIP LOCKED
    )
"""  # noqa: S608 - put together from constants
_PRUNE_WAITING = _PRUNE.format(table="waiting", began="started_at", held="leased_until")
_PRUNE_SUPPLIES = _PRUNE.format(table="supplies", began="received_at", held="taken_until")
_PRUNE_DEAD = "DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE started_at < $1 LIMIT $2)"
_PRUNE_BATCH = 1000
_AFTER = "SELECT {key}, id, payload FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2"
_LOCKED = "SELECT {key} FROM {table} WHERE {key} = ANY($1) ORDER BY {key} FOR UPDATE"
_DELETE = "DELETE FROM {table} WHERE {key} = ANY($1)"
_FORGET_BATCH = 200
_BURY_EVERY_S = 1.0
_log = logging.getLogger("gaugeway")


class PostgresQueue(Queue):
    """Samples in a PostgreSQL database, for any number of processes on any number of machines.

    Leases are ended by the database's clock, so that no machine's own needs to be right; `clock`, Unix seconds, takes
    its place in tests. An operation that cannot be done raises `EngineError`.
    """

    def __init__(
        self,
        url: str,
        lease_s: float = 120.0,
        max_attempts: int = 5,
        clock: Callable[[], float] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._bound = Bound(max_bytes)
        self.url = url
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._clock = clock
        self._bury_at = 0.0
        self._reader = PayloadReader[int](stored=plain)
        self._database = Database(url)

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> PostgresQueue:
        """Return the queue in the database that `url` names. Raises ValueError."""
        return cls(url, lease_s, max_attempts, max_bytes=max_bytes)

    async def put(self, samples: Sequence[Sample]) -> None:
        rows = [(plain(sample.id), float(sample.started_at), encoded(sample)) for sample in samples]
        if rows:
            await self._bound.admit(sum(len(row[2]) for row in rows), self._used)
            async with self._database.connection() as connection:
                await connection.execute(_PUT, *map(list, zip(*rows, strict=True)))

    async def lease(self, limit: int) -> Sequence[Lease]:
        while limit > 0:
            claimed, leases = await self._claim(limit)
            if leases or not claimed:
                return leases
        return []

    async def set_aside(self, sample_id: str, reason: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_REJECT, plain(sample_id), plain(reason))

    async def ack(self, sample_ids: Sequence[str]) -> None:
        if not sample_ids:
            return
        async with self._database.connection() as connection:
            await remove(connection, sample_ids)

    async def depth(self) -> Depth:
        async with self._database.connection() as connection:
            await self._bury(connection)
            total, leased, dead, oldest, used = await connection.fetchrow(_DEPTH, self._now()) or (0, 0, 0, None, 0)
        return Depth(
            ready=total - leased,
            leased=leased,
            dead=dead,
            oldest_started_at=oldest,
            bytes=used,
            fill=self._bound.fill(used),
        )

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        rows = [
            (plain(supplement.id), float(supplement.received_at), encoded(supplement)) for supplement in supplements
        ]
        if rows:
            async with self._database.connection() as connection:
                await connection.execute(_SUPPLY, *map(list, zip(*rows, strict=True)))

    async def take(self, limit: int) -> Sequence[Supplement]:
        while limit > 0:
            claimed, taken = await self._claim_supplies(limit)
            if taken or not claimed:
                return taken
        return []

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        if not supplement_ids:
            return
        async with self._database.connection() as connection:
            await connection.execute(
                "DELETE FROM supplies WHERE id = ANY($1::text[])", list(map(plain, supplement_ids))
            )

    async def prune(self, before: float) -> int:
        """See the port; deletes in batches."""
        await self._prune(_PRUNE_SUPPLIES, self._now(), before)
        return await self._prune(_PRUNE_DEAD, before) + await self._prune(_PRUNE_WAITING, self._now(), before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await _forget(self._database, subject, dry_run=dry_run)

    async def aclose(self) -> None:
        await self._database.aclose()

    def _now(self) -> float | None:
        """The time by the clock that tests turn; None stands for the database's own."""
        return self._clock() if self._clock is not None else None

    async def _used(self) -> int:
        return (await self.depth()).bytes

    async def _prune(self, statement: str, *parameters: float | None) -> int:
        total, removed = 0, _PRUNE_BATCH
        while removed == _PRUNE_BATCH:
            async with self._database.connection() as connection:
                removed = count_of(await connection.execute(statement, *parameters, _PRUNE_BATCH))
            total += removed
        return total

    async def _bury(self, connection: Connection) -> None:
        """Set aside the samples whose last lease has ended."""
        self._bury_at = time.monotonic() + _BURY_EVERY_S
        buried = count_of(await connection.execute(_BURY, self._now(), self._max_attempts))
        if buried:
            _log.warning("queue: moved %d samples to dead letters after %d attempts", buried, self._max_attempts)

    async def _claim(self, limit: int) -> tuple[int, list[Lease]]:
        """Lease up to `limit` rows; return their number, and the leases of those that can be read."""
        async with self._database.connection() as connection:
            if time.monotonic() >= self._bury_at:  # none of those is leased; to set them aside may wait a little
                await self._bury(connection)
            rows = await connection.fetch(_LEASE, self._now(), self._lease_s, limit, self._max_attempts)
            leases, unreadable = self._reader.leases(sorted((*row,) for row in rows))
            if unreadable:
                reasons = [(position, plain(reason)) for position, _, reason in unreadable]
                await connection.executemany(_SET_ASIDE, reasons)
        return len(rows), leases

    async def _claim_supplies(self, limit: int) -> tuple[int, list[Supplement]]:
        """Take up to `limit` rows; return their number, and the supplements that can be read. The others go."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_TAKE, self._now(), self._lease_s, limit)
            taken, unreadable = self._reader.supplements(sorted((*row,) for row in rows))
            if unreadable:
                await connection.execute("DELETE FROM supplies WHERE position = ANY($1::bigint[])", unreadable)
        return len(rows), taken


async def _forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

    Dead letters after those that wait: what is set aside meanwhile is found there. What a worker holds at this moment
    it may still bring to the store.
    """
    trail = Trail(subject)
    return {
        "queued samples": await _forget_in(database, "waiting", "position", -1, trail.sample, dry_run=dry_run),
        "dead letters": await _forget_in(database, "dead", "id", "", trail.sample, dry_run=dry_run),
        "queued supplements": await _forget_in(database, "supplies", "position", -1, trail.supplement, dry_run=dry_run),
    }


async def _forget_in(
    database: Database, table: str, key: str, after: int | str, is_meant: Callable[[str, str], bool], *, dry_run: bool
) -> int:
    names = {"table": table, "key": key}
    total = 0
    while True:
        async with database.transaction() as connection:
            rows = await connection.fetch(_AFTER.format(**names), after, _FORGET_BATCH)
            if not rows:
                return total
            after = rows[-1][key]
            # bytes that are no text are searched as well as they can be
            meant: list[Any] = [
                row[key] for row in rows if is_meant(row["id"], row["payload"].decode(errors="replace"))
            ]
            if dry_run or not meant:
                total += len(meant)
                continue
            await connection.execute(_LOCKED.format(**names), meant)  # in one order, so that two of these cannot block
            total += count_of(await connection.execute(_DELETE.format(**names), meant))
