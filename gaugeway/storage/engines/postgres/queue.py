"""Queue in PostgreSQL tables: workers lease rows with SKIP LOCKED."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gaugeway.records import Supplement
from gaugeway.storage.engines.postgres.connection import Database, count_of, plain, plain_values, remove
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.engines.sql_queue import Row, SqlQueue, Table
from gaugeway.storage.queues import Lease

if TYPE_CHECKING:
    from gaugeway.storage.engines.postgres.connection import Connection

_SQL = statements("postgres/queue.sql")
_BURY_EVERY_S = 1.0


class PostgresQueue(SqlQueue):
    """Samples in a PostgreSQL database, for any number of processes on any number of machines.

    Leases are ended by the database's clock, so that no machine's own needs to be right; `clock`, Unix seconds, takes
    its place in tests. An operation that cannot be done raises `EngineError`.
    """

    sql = _SQL
    _before_dead = ""

    def __init__(
        self,
        url: str,
        lease_s: float = 120.0,
        max_attempts: int = 5,
        clock: Callable[[], float] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(lease_s, max_attempts, clock, max_bytes, stored=plain)
        self.url = url
        self._bury_at = 0.0
        self._database = Database(url)

    @classmethod
    def from_url(cls, url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> PostgresQueue:
        """Return the queue in the database that `url` names. Raises ValueError."""
        return cls(url, lease_s, max_attempts, max_bytes=max_bytes)

    async def _add(self, name: Literal["put", "supply"], rows: Sequence[Row]) -> None:
        await self._change(_SQL[name], *map(list, zip(*rows, strict=True)))

    async def set_aside(self, sample_id: str, reason: str) -> None:
        await self._change(_SQL["set_aside"], plain(sample_id), plain(reason))

    async def renew(self, sample_ids: Sequence[str]) -> None:
        await self._change(_SQL["renew"], self._now(), self._lease_s, plain_values(sample_ids))

    async def ack(self, sample_ids: Sequence[str]) -> None:
        if not sample_ids:
            return
        async with self._database.connection() as connection:
            await remove(connection, sample_ids)

    async def ack_supplies(self, supplement_ids: Sequence[str]) -> None:
        if supplement_ids:
            await self._change(_SQL["remove_supplies"], plain_values(supplement_ids))

    async def _used(self) -> int:
        return (await self.depth()).bytes

    async def _counts(self) -> tuple[int, int, int, float | None, int]:
        async with self._database.connection() as connection:
            await self._bury(connection)
            total, leased, dead, oldest, used = (await connection.fetch(_SQL["depth"], self._now()))[0]
        return total, leased, dead, oldest, used

    async def _claim(self, limit: int) -> tuple[int, list[Lease]]:
        async with self._database.connection() as connection:
            if time.monotonic() >= self._bury_at:  # none of those is leased; to set them aside may wait a little
                await self._bury(connection)
            rows = await connection.fetch(_SQL["lease"], self._now(), self._lease_s, limit, self._max_attempts)
            leases, unreadable = self._reader.leases(sorted((*row,) for row in rows))
            if unreadable:
                reasons = [(position, plain(reason)) for position, _, reason in unreadable]
                await connection.executemany(_SQL["set_unreadable_aside"], reasons)
        return len(rows), leases

    async def _claim_supplies(self, limit: int) -> tuple[int, list[Supplement]]:
        rows = await self._fetch(_SQL["take"], self._now(), self._lease_s, limit)
        taken, unreadable = self._reader.supplements(sorted((*row,) for row in rows))
        if unreadable:
            await self._delete("supplies", unreadable)
        return len(rows), taken

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        async with self._database.connection() as connection:
            return await connection.fetch(statement, *values)

    async def _change(self, statement: str, *values: Any) -> int:
        async with self._database.connection() as connection:
            return count_of(await connection.execute(statement, *values))

    async def _delete(self, table: Table, keys: Sequence[Any]) -> int:
        return await self._change(_SQL[f"delete_{table}"], keys)

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _bury(self, connection: Connection) -> None:
        """Set aside the samples whose last lease has ended."""
        self._bury_at = time.monotonic() + _BURY_EVERY_S
        self._report_buried(count_of(await connection.execute(_SQL["bury"], self._now(), self._max_attempts)))
