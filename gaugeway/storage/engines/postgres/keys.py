"""Key store in PostgreSQL, for gateways on several machines; used only by the key sync."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gaugeway.storage.engines.postgres.connection import Database
from gaugeway.storage.keys import SPENDING_DAYS, Created, new_key
from gaugeway.storage.keys.names import stored_name
from gaugeway.storage.keys.rows import COLUMNS, read_key, row_of
from gaugeway.storage.keys.virtual_key import Quota, Spending, VirtualKey

_INSERT = f"INSERT INTO keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"  # noqa: S608 - ours
_SELECT = f"SELECT {COLUMNS} FROM keys ORDER BY created_at, id"  # noqa: S608 - our own words
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


class PostgresKeyStore:
    """The tables `keys` and `spending`. Operations raise `EngineError`.

    The tables are made when the store is first used, never again: tables that vanish under a running gateway are a
    failure, no empty list of keys. When the answer to `spend` is lost, what it was about may be counted twice.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url, size=2)
        self._odd_names: dict[str, str] = {}
        self._forgotten = -1

    @classmethod
    def from_url(cls, url: str) -> PostgresKeyStore:
        """Return the store in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def create(
        self,
        *,
        app: str,
        now: float,
        models: tuple[str, ...] = ("*",),
        expires_at: float | None = None,
        quota: Quota | None = None,
    ) -> Created:
        made = new_key(app=app, now=now, models=models, expires_at=expires_at, quota=quota)
        async with self._database.connection() as connection:
            await connection.execute(_INSERT, *row_of(made.key))
        return made

    async def revoke(self, key_id: str, now: float) -> bool:
        async with self._database.transaction() as connection:
            await connection.execute(
                "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL", key_id, now
            )
            return bool(await connection.fetchval("SELECT EXISTS (SELECT 1 FROM keys WHERE id = $1)", key_id))

    async def keys(self) -> list[VirtualKey]:
        return (await self.changed(None))[1] or []

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[VirtualKey] | None]:
        async with self._database.transaction(reading=True) as connection:
            current = bytes((await connection.fetchval("SELECT value FROM key_revision")).bytes)
            if current == revision:
                return current, None
            rows = await connection.fetch(_SELECT)
        # In a thread: decoding thousands of keys must not delay requests.
        return current, await asyncio.to_thread(lambda: [read_key(tuple(row)) for row in rows])

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        told: dict[tuple[int, str], float] = {}
        for (day, subject), usd in spending.items():
            name = stored_name(subject)
            if name != subject:
                self._odd_names[name] = subject
            told[day, name] = usd
        async with self._database.transaction() as connection:
            if told:
                days, names = zip(*told, strict=True)
                await connection.execute(_SPEND, days, names, list(told.values()))
                if self._forgotten != today:
                    await connection.execute(_FORGET, today - SPENDING_DAYS)
            rows = await connection.fetch("SELECT subject, usd FROM spending WHERE day = $1", today)
        self._forgotten = today if told else self._forgotten
        return {(today, self._odd_names.get(name, name)): usd for name, usd in rows}

    async def aclose(self) -> None:
        await self._database.aclose()
