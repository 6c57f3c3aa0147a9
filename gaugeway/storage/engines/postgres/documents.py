"""Documents in PostgreSQL, for gateways on several machines: a table for each collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gaugeway.storage.documents import SPENDING_DAYS, Changes, Collection, Documents, Row, Spending
from gaugeway.storage.engines.document_rows import delete, put, revise, revision_of, select, sizes
from gaugeway.storage.engines.postgres.connection import Database, plain
from gaugeway.storage.engines.postgres.limits import LimitLevels
from gaugeway.storage.keys.names import stored_name
from gaugeway.storage.limits import Draw, SharedLevels

_REVISION = {"keys": "SELECT value FROM key_revision"}
# Older releases change the tables too: what they write waits.
_LOCK = "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"
_SPEND = """
    INSERT INTO spending AS known (day, subject, usd)
    SELECT * FROM unnest($1::integer[], $2::text[], $3::float8[]) AS new (day, subject, usd) ORDER BY day, subject
    ON CONFLICT (day, subject) DO UPDATE SET usd = known.usd + excluded.usd
"""
_FORGET = """
    DELETE FROM spending WHERE (day, subject) IN (
        SELECT day, subject FROM spending WHERE day < $1 FOR UPDATE SKIP LOCKED
    )
"""


class PostgresDocuments(Documents):
    """Keys, templates, spending and levels of limits in tables. Operations raise `EngineError`.

    The tables are made at first use, never again: tables that vanish under a running gateway are a failure, no empty
    list of keys. When the answer to `spend` is lost, what it was about may be counted twice.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url, size=2)
        self._limits: LimitLevels | None = None
        self._odd_names: dict[str, str] = {}
        self._forgotten = -1

    @classmethod
    def from_url(cls, url: str) -> PostgresDocuments:
        """Return those in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def changed(self, collection: Collection, revision: bytes | None) -> tuple[bytes, Sequence[Row] | None]:
        async with self._database.transaction(reading=True) as connection:
            if (statement := _REVISION.get(collection.name)) is not None:
                current = bytes((await connection.fetchval(statement)).bytes)
            else:
                current = revision_of(tuple(row) for row in await connection.fetch(sizes(collection)))
            if current == revision:
                return current, None
            return current, [tuple(row) for row in await connection.fetch(select(collection, collection.columns))]

    async def update(self, collection: Collection, change: Callable[[Sequence[Row]], Changes]) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_LOCK.format(table=collection.name))
            changes = change([tuple(row) for row in await connection.fetch(select(collection, collection.head))])
            for statement, rows in (
                (put, changes.put),
                (revise, changes.revise),
                (delete, changes.delete),
            ):
                await connection.executemany(statement(collection, "$"), _plain(rows))

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        spent: dict[tuple[int, str], float] = {}
        for (day, subject), usd in spending.items():
            name = stored_name(subject)
            if name != subject:
                self._odd_names[name] = subject
            spent[day, name] = usd
        async with self._database.transaction() as connection:
            if spent:
                days, names = zip(*spent, strict=True)
                await connection.execute(_SPEND, days, names, list(spent.values()))
                if self._forgotten != today:
                    await connection.execute(_FORGET, today - SPENDING_DAYS)
            rows = await connection.fetch("SELECT subject, usd FROM spending WHERE day = $1", today)
        self._forgotten = today if spent else self._forgotten
        return {(today, self._odd_names.get(name, name)): usd for name, usd in rows}

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        if self._limits is None:
            self._limits = LimitLevels(self._database)
        return await self._limits.exchange(draws)

    async def aclose(self) -> None:
        if self._limits is not None:
            await self._limits.leave()
            self._limits = None
        await self._database.aclose()


def _plain(rows: Iterable[Row]) -> list[Row]:
    return [tuple(plain(value) if isinstance(value, str) else value for value in row) for row in rows]
