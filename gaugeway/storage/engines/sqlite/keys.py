"""Key store in SQLite, `DATA_DIR/keys.db`; the running gateway uses it only in the key sync."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.connection import Database, Schema
from gaugeway.storage.keys import SPENDING_DAYS, Created, new_key
from gaugeway.storage.keys.rows import COLUMNS, read_key, row_of
from gaugeway.storage.keys.virtual_key import Quota, Spending, VirtualKey

FILE = "keys.db"

# A new revision makes the running gateways read the keys again.
SCHEMA = Schema(
    kind="key file",
    application_id=0x67776B79,  # "gwky"
    migrations=(
        """
        CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            digest BLOB NOT NULL UNIQUE,
            app TEXT NOT NULL,
            models TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            revoked_at REAL,
            requests_per_min REAL,
            tokens_per_min REAL,
            usd_per_day REAL
        );
        CREATE TABLE revision (value BLOB NOT NULL);
        INSERT INTO revision VALUES (randomblob(16));
        CREATE TRIGGER keys_added AFTER INSERT ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
        CREATE TRIGGER keys_changed AFTER UPDATE ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
        CREATE TRIGGER keys_removed AFTER DELETE ON keys BEGIN UPDATE revision SET value = randomblob(16); END;
        CREATE TABLE spending (
            day INTEGER NOT NULL,
            subject TEXT NOT NULL,
            usd REAL NOT NULL,
            PRIMARY KEY (day, subject)
        ) WITHOUT ROWID;
        """,
    ),
)

_INSERT = f"INSERT INTO keys ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own words
_SELECT = f"SELECT {COLUMNS} FROM keys ORDER BY created_at, id"  # noqa: S608 - our own words
_SPEND = """
    INSERT INTO spending (day, subject, usd) VALUES (?, ?, ?)
    ON CONFLICT (day, subject) DO UPDATE SET usd = usd + excluded.usd
"""
_SPENT_TODAY = "SELECT day, subject, usd FROM spending WHERE day = ?"


class KeyStore:
    """Keys in one file. Operations raise `EngineError` when it cannot be used within `busy_timeout_s`."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = path
        self._known = False
        self._database = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)

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
        await self._database.change(_INSERT, row_of(made.key))
        return made

    async def revoke(self, key_id: str, now: float) -> bool:
        def revoke(connection: Connection) -> bool:
            connection.execute("UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, key_id))
            return connection.execute("SELECT 1 FROM keys WHERE id = ?", (key_id,)).fetchone() is not None

        return await self._database.write(revoke)

    async def keys(self) -> list[VirtualKey]:
        return (await self.changed(None))[1] or []

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[VirtualKey] | None]:
        if self._known and not self.path.exists():
            # Opening would create an empty file, and without keys every request is rejected.
            raise EngineError(f"{self.path} is gone")

        def read(connection: Connection) -> tuple[bytes, list[Any]]:
            (current,) = connection.execute("SELECT value FROM revision").fetchone()
            return current, [] if current == revision else connection.execute(_SELECT).fetchall()

        current, rows = await self._database.read(read)
        self._known = True
        if current == revision:
            return current, None
        # In a thread: decoding thousands of keys must not delay requests.
        return current, await asyncio.to_thread(lambda: [read_key(tuple(row)) for row in rows])

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        entries = [(*entry, usd) for entry, usd in spending.items()]

        def spend(connection: Connection) -> list[Any]:
            if entries:
                connection.executemany(_SPEND, entries)
                connection.execute("DELETE FROM spending WHERE day < ?", (today - SPENDING_DAYS,))
            found: list[Any] = connection.execute(_SPENT_TODAY, (today,)).fetchall()
            return found

        rows = await (self._database.write(spend) if entries else self._database.read(spend))
        return {(day, subject): usd for day, subject, usd in rows}

    async def aclose(self) -> None:
        await self._database.aclose()
