"""The embedded queue: one SQLite file that the gateway and the monitors share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal

from gaugeway.records import Supplement
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.engines.sql_queue import Row, SqlQueue, Table
from gaugeway.storage.engines.sqlite.connection import QUEUE, Database, path_from_url
from gaugeway.storage.queues import Lease

_SQL = statements("sqlite/queue.sql")


class SQLiteQueue(SqlQueue):
    """Samples in a SQLite file, for any number of processes on one machine.

    `clock` gives Unix seconds; leases taken by one process are ended by the clocks of the others. An operation that
    cannot use the file within `busy_timeout_s` raises `EngineError`. The file grows to about `max_bytes`, if given; it
    never shrinks, but the space of removed samples is reused.
    """

    sql = _SQL

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
        super().__init__(lease_s, max_attempts, clock, max_bytes)
        self._time = clock
        self._database = Database(path, schema=QUEUE, busy_timeout_s=busy_timeout_s, undo_in_memory=True)

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> SQLiteQueue:
        """Return the queue in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url), lease_s, max_attempts, max_bytes=max_bytes)

    async def _add(self, name: Literal["put", "supply"], rows: Sequence[Row]) -> None:
        await self._database.write(lambda connection: connection.executemany(_SQL[name], rows))

    async def set_aside(self, sample_id: str, reason: str) -> None:
        def reject(connection: Connection) -> None:
            connection.execute(_SQL["set_aside"], (sample_id, reason))
            connection.execute(_SQL["remove"], (sample_id,))

        await self._database.write(reject)

    async def renew(self, sample_ids: Sequence[str]) -> None:
        rows = [(name, self._time() + self._lease_s) for name in sample_ids]
        await self._database.write(lambda connection: connection.executemany(_SQL["renew"], rows))

    async def ack(self, sample_ids: Sequence[str]) -> None:
        await self._remove(("remove", "remove_dead"), sample_ids)

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        await self._remove(("remove_supply",), supplement_ids)

    async def _remove(self, names: Sequence[str], ids: Sequence[str]) -> None:
        if not ids:
            return
        rows = [(name,) for name in ids]

        def remove(connection: Connection) -> None:
            for name in names:
                connection.executemany(_SQL[name], rows)

        await self._database.write(remove)

    async def _used(self) -> int:
        return await self._database.read(_bytes)

    async def _counts(self) -> tuple[int, int, int, float | None, int]:
        def read(connection: Connection) -> tuple[int, int, int, float | None, int]:
            now = self._time()
            self._bury(connection, now)
            total, leased, dead, oldest = connection.execute(_SQL["depth"], (now,)).fetchone()
            return total, leased, dead, oldest, _bytes(connection)

        return await self._database.write(read)

    async def _claim(self, limit: int) -> tuple[int, list[Lease]]:
        def claim(connection: Connection) -> tuple[int, list[Lease]]:
            now = self._time()
            self._bury(connection, now)
            rows = sorted(connection.execute(_SQL["lease"], (now, now + self._lease_s, limit)).fetchall())
            leases, unreadable = self._reader.leases(rows)
            reasons = [(position, reason) for position, _, reason in unreadable]
            connection.executemany(_SQL["set_unreadable_aside"], reasons)
            connection.executemany(_SQL["delete_waiting"], [(position,) for position, _ in reasons])
            return len(rows), leases

        return await self._database.write(claim)

    async def _claim_supplies(self, limit: int) -> tuple[int, list[Supplement]]:
        # usually nothing waits, and reading takes no lock
        if not await self._database.fetch(_SQL["any_supply"], (self._time(),)):
            return 0, []

        def take(connection: Connection) -> tuple[int, list[Supplement]]:
            now = self._time()
            rows = sorted(connection.execute(_SQL["take"], (now, now + self._lease_s, limit)).fetchall())
            taken, unreadable = self._reader.supplements(rows)
            connection.executemany(_SQL["delete_supplies"], [(position,) for position in unreadable])
            return len(rows), taken

        return await self._database.write(take)

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        return await self._database.fetch(statement, values)

    async def _change(self, statement: str, *values: Any) -> int:
        return await self._database.change(statement, values)

    async def _delete(self, table: Table, keys: Sequence[Any]) -> int:
        def delete(connection: Connection) -> int:
            connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
            return connection.executemany(_SQL[f"delete_{table}"], [(key,) for key in keys]).rowcount

        return await self._database.write(delete)

    async def aclose(self) -> None:
        await self._database.aclose()

    def _bury(self, connection: Connection, now: float) -> None:
        """Set aside the samples whose last lease has ended."""
        connection.execute(_SQL["bury"], (now, self._max_attempts))
        self._report_buried(connection.execute(_SQL["remove_buried"], (now, self._max_attempts)).rowcount)


def _bytes(connection: Connection) -> int:
    return int(connection.execute(_SQL["bytes"]).fetchone()[0])
