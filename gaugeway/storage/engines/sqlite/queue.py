"""The embedded queue: one SQLite file that the gateway and the monitors share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.sqlite.connection import Database, path_from_url
from gaugeway.storage.engines.sqlite.schema import QUEUE
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.queues import Bound, Depth, Lease, PayloadReader, Queue

_PUT = """
    INSERT OR IGNORE INTO samples (id, started_at, payload)
    SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM dead WHERE id = ?)
"""
_LEASE = """
    UPDATE samples SET attempts = attempts + 1, leased_until = :until
    WHERE position IN (
        SELECT position FROM samples WHERE leased_until IS NULL OR leased_until <= :now ORDER BY position LIMIT :limit
    )
    RETURNING position, id, attempts, CAST(payload AS BLOB)
"""
_BURY = """
    INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
    SELECT id, started_at, payload, attempts, 'attempts' FROM samples WHERE leased_until <= :now AND attempts >= :most
"""
_REMOVE_BURIED = "DELETE FROM samples WHERE leased_until <= :now AND attempts >= :most"
_SET_ASIDE = """
    INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
    SELECT id, started_at, payload, attempts, ? FROM samples WHERE position = ?
"""
_REJECT = """
    INSERT OR REPLACE INTO dead (id, started_at, payload, attempts, reason)
    SELECT id, started_at, payload, attempts, ? FROM samples WHERE id = ?
"""
_SUPPLY = "INSERT OR IGNORE INTO supplies (id, received_at, payload) VALUES (?, ?, ?)"
_DEPTH = """
    SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM samples WHERE leased_until > :now),
        (SELECT count(*) FROM dead), (SELECT min(started_at) FROM samples)
"""
_FREE = "FROM supplies WHERE taken_until IS NULL OR taken_until <= :now"
_TAKE = f"""
    UPDATE supplies SET taken_until = :until
    WHERE position IN (SELECT position {_FREE} ORDER BY position LIMIT :limit)
    RETURNING position, id, CAST(payload AS BLOB)
"""  # noqa: S608 - put together from constants
_PRUNE = (
    "DELETE FROM dead WHERE rowid IN (SELECT rowid FROM dead WHERE started_at < :before LIMIT :limit)",
    """
    DELETE FROM samples WHERE position IN (
        SELECT position FROM samples
        WHERE started_at < :before AND (leased_until IS NULL OR leased_until <= :now) LIMIT :limit
    )
    """,
)
_PRUNE_SUPPLIES = """
    DELETE FROM supplies WHERE position IN (
        SELECT position FROM supplies
        WHERE received_at < :before AND (taken_until IS NULL OR taken_until <= :now) LIMIT :limit
    )
"""
_PRUNE_BATCH = 500
_log = logging.getLogger("gaugeway")


class SQLiteQueue(Queue):
    """Samples in a SQLite file, for any number of processes on one machine.

    `clock` gives Unix seconds; leases taken by one process are ended by the clocks of the others. An operation that
    cannot use the file within `busy_timeout_s` raises `EngineError`. The file grows to about `max_bytes`, if given; it
    never shrinks, but the space of removed samples is reused.
    """

    def __init__(
        self,
        path: str | Path,
        lease_s: float = 120.0,
        max_attempts: int = 5,
        clock: Callable[[], float] = time.time,
        busy_timeout_s: float = 5.0,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._clock = clock
        self._bound = Bound(max_bytes)
        self._reader = PayloadReader[int]()
        self._database = Database(path, schema=QUEUE, busy_timeout_s=busy_timeout_s, undo_in_memory=True)

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> SQLiteQueue:
        """Return the queue in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url), lease_s, max_attempts, max_bytes=max_bytes)

    async def put(self, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        rows = [(sample.id, sample.started_at, encoded(sample), sample.id) for sample in samples]
        await self._bound.admit(sum(len(row[2]) for row in rows), lambda: self._database.read(_bytes))
        await self._database.write(lambda connection: connection.executemany(_PUT, rows))

    async def lease(self, limit: int) -> Sequence[Lease]:
        while True:
            claimed, leases = await self._claim(limit)
            if leases or not claimed:
                return leases

    async def set_aside(self, sample_id: str, reason: str) -> None:
        def reject(connection: Connection) -> None:
            connection.execute(_REJECT, (reason, sample_id))
            connection.execute("DELETE FROM samples WHERE id = ?", (sample_id,))

        await self._database.write(reject)

    async def ack(self, sample_ids: Sequence[str]) -> None:
        if not sample_ids:
            return
        rows = [(sample_id,) for sample_id in sample_ids]

        def remove(connection: Connection) -> None:
            connection.executemany("DELETE FROM samples WHERE id = ?", rows)
            connection.executemany("DELETE FROM dead WHERE id = ?", rows)

        await self._database.write(remove)

    async def depth(self) -> Depth:
        def read(connection: Connection) -> tuple[Any, int]:
            now = self._clock()
            self._bury(connection, now)
            return connection.execute(_DEPTH, {"now": now}).fetchone(), _bytes(connection)

        (total, leased, dead, oldest), used = await self._database.write(read)
        return Depth(
            ready=total - leased,
            leased=leased,
            dead=dead,
            oldest_started_at=oldest,
            bytes=used,
            fill=self._bound.fill(used),
        )

    async def supply(self, supplements: Sequence[Supplement]) -> None:
        if not supplements:
            return
        rows = [(supplement.id, supplement.received_at, encoded(supplement)) for supplement in supplements]
        await self._database.write(lambda connection: connection.executemany(_SUPPLY, rows))

    async def take(self, limit: int) -> Sequence[Supplement]:
        while True:
            claimed, taken = await self._claim_supplies(limit)
            if taken or not claimed:
                return taken

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        if not supplement_ids:
            return
        rows = [(supplement_id,) for supplement_id in supplement_ids]
        await self._database.write(lambda connection: connection.executemany("DELETE FROM supplies WHERE id = ?", rows))

    async def prune(self, before: float) -> int:
        """See the port; deletes in batches, so that writers wait only a moment."""
        await self._prune(_PRUNE_SUPPLIES, before)
        return sum([await self._prune(statement, before) for statement in _PRUNE])

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await _forget(self._database, subject, dry_run=dry_run)

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _prune(self, statement: str, before: float) -> int:
        total, removed = 0, _PRUNE_BATCH
        while removed == _PRUNE_BATCH:
            parameters = {"before": before, "now": self._clock(), "limit": _PRUNE_BATCH}
            removed = await self._database.change(statement, parameters)
            total += removed
        return total

    async def _claim_supplies(self, limit: int) -> tuple[int, list[Supplement]]:
        """Take up to `limit` rows; return their number, and the supplements that can be read. The others go."""
        # usually nothing waits, and reading takes no lock
        if limit <= 0 or not await self._database.read(self._any_free):
            return 0, []

        def take(connection: Connection) -> tuple[int, list[Supplement]]:
            now = self._clock()
            parameters = {"now": now, "until": now + self._lease_s, "limit": limit}
            rows = sorted(connection.execute(_TAKE, parameters).fetchall())
            taken, unreadable = self._reader.supplements(rows)
            connection.executemany("DELETE FROM supplies WHERE position = ?", [(position,) for position in unreadable])
            return len(rows), taken

        return await self._database.write(take)

    async def _claim(self, limit: int) -> tuple[int, list[Lease]]:
        """Lease up to `limit` rows; return their number, and the leases of those that can be read."""

        def claim(connection: Connection) -> tuple[int, list[Lease]]:
            now = self._clock()
            self._bury(connection, now)
            parameters = {"now": now, "until": now + self._lease_s, "limit": max(limit, 0)}
            rows = sorted(connection.execute(_LEASE, parameters).fetchall())
            leases, unreadable = self._reader.leases(rows)
            connection.executemany(_SET_ASIDE, [(reason, position) for position, _, reason in unreadable])
            connection.executemany(
                "DELETE FROM samples WHERE position = ?", [(position,) for position, *_ in unreadable]
            )
            return len(rows), leases

        return await self._database.write(claim)

    def _any_free(self, connection: Connection) -> bool:
        statement = f"SELECT 1 {_FREE} LIMIT 1"
        return connection.execute(statement, {"now": self._clock()}).fetchone() is not None

    def _bury(self, connection: Connection, now: float) -> None:
        """Set aside the samples whose last lease has ended."""
        parameters = {"now": now, "most": self._max_attempts}
        connection.execute(_BURY, parameters)
        removed = connection.execute(_REMOVE_BURIED, parameters)
        if removed.rowcount > 0:
            _log.warning(
                "queue: moved %d samples to dead letters after %d attempts", removed.rowcount, self._max_attempts
            )


def _bytes(connection: Connection) -> int:
    """What the file's pages in use take up: a look at its head, however much waits."""
    statement = "SELECT page_size * (page_count - freelist_count) FROM pragma_page_size, pragma_page_count, "
    (used,) = connection.execute(statement + "pragma_freelist_count").fetchone()
    return int(used)


async def _forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

    What a worker holds at this moment it may still bring to the store.
    """

    def remove(connection: Connection) -> dict[str, int]:
        counts, trail = {}, Trail(subject)
        connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
        for kind, table in (("queued samples", "samples"), ("dead letters", "dead")):
            statement = f"SELECT id, CAST(payload AS TEXT) FROM {table}"  # noqa: S608 - constants
            rows = connection.execute(statement).fetchall()
            meant = [row for row in rows if trail.sample(*row)]
            counts[kind] = len(meant)
            if not dry_run:
                statement = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608 - constants
                connection.executemany(statement, [(row[0],) for row in meant])
        rows = connection.execute("SELECT id, CAST(payload AS TEXT) FROM supplies").fetchall()
        said = [(row[0],) for row in rows if trail.supplement(*row)]
        counts["queued supplements"] = len(said)
        if not dry_run:
            connection.executemany("DELETE FROM supplies WHERE id = ?", said)
        return counts

    return await database.write(remove)
