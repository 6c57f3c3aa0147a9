"""DATA_DIR/keys.db: the keys, and what was spent. The running gateway reads and writes it in the background only."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gateway.keys import PREFIX, SECRET_BYTES, Keyring, Quota, VirtualKey, digest
from gateway.limits import Gate
from gateway.prices import Spending
from monitors.sqlite import Database, Schema
from monitors.tasks import spawn

FILE = "keys.db"
SPENDING_DAYS = 35

# A new revision tells the running gateways that the keys are to be read again.
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

_COLUMNS = "id, digest, app, models, created_at, expires_at, revoked_at, requests_per_min, tokens_per_min, usd_per_day"
_INSERT = f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own words
_SELECT = f"SELECT {_COLUMNS} FROM keys ORDER BY created_at, id"  # noqa: S608 - our own words
_SPEND = """
    INSERT INTO spending (day, subject, usd) VALUES (?, ?, ?)
    ON CONFLICT (day, subject) DO UPDATE SET usd = usd + excluded.usd
"""
_SPENT_TODAY = "SELECT day, subject, usd FROM spending WHERE day = ?"
_log = logging.getLogger("gaugeway")


class Created(NamedTuple):
    """A new key, and the only copy of its secret."""

    key: VirtualKey
    secret: str


class KeyStore:
    """The file. Operations raise `sqlite3.Error` or `OSError` when it cannot be used within `busy_timeout_s`."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = path
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
        """Make a key."""
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        key = VirtualKey(
            id=f"key_{secrets.token_hex(6)}",
            digest=digest(secret.encode()),
            app=app,
            models=models,
            created_at=now,
            expires_at=expires_at,
            quota=quota or Quota(),
        )
        quota = key.quota
        limits = (quota.requests_per_min, quota.tokens_per_min, quota.usd_per_day)
        row = (key.id, key.digest, app, json.dumps(models), now, expires_at, None, *limits)
        async with self._database.writing() as connection:
            await connection.execute(_INSERT, row)
        return Created(key, secret)

    async def revoke(self, key_id: str, now: float) -> bool:
        """End a key; False when there is none of this id. One that was revoked before keeps the time of that."""
        async with self._database.writing() as connection:
            await connection.execute(
                "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, key_id)
            )
            return bool(await connection.execute_fetchall("SELECT 1 FROM keys WHERE id = ?", (key_id,)))

    async def keys(self) -> list[VirtualKey]:
        """Return all keys, the oldest first."""
        return (await self.changed(None))[1] or []

    async def changed(self, revision: bytes | None) -> tuple[bytes, list[VirtualKey] | None]:
        """Return the file's revision and, if it is not the one given, all keys."""
        async with self._database.reading() as connection:
            ((current,),) = await connection.execute_fetchall("SELECT value FROM revision")
            if current == revision:
                return current, None
            rows = list(await connection.execute_fetchall(_SELECT))
        # In a thread: thousands of keys must not hold up the requests.
        return current, await asyncio.to_thread(lambda: [_read(tuple(row)) for row in rows])

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        """Add what was spent, all or nothing; return what all processes together have spent today."""
        transaction = self._database.writing() if spending else self._database.reading()
        async with transaction as connection:
            if spending:
                await connection.executemany(_SPEND, [(*entry, usd) for entry, usd in spending.items()])
                await connection.execute("DELETE FROM spending WHERE day < ?", (today - SPENDING_DAYS,))
            rows = await connection.execute_fetchall(_SPENT_TODAY, (today,))
        return {(day, subject): usd for day, subject, usd in rows}

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()


class Keeper:
    """Brings the file's keys to a gate, and the gate's spending to the file, every `every_s` seconds.

    While the file is locked, damaged or gone, the gate goes on with the keys it knows and with its own count of the
    spending, which is written once that works again.
    """

    def __init__(self, store: KeyStore, gate: Gate, *, every_s: float) -> None:
        self._store = store
        self._gate = gate
        self._every_s = every_s
        self._revision: bytes | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened = False
        self._failing = False

    async def start(self) -> None:
        """Read the file once (which makes it, if need be), then go on in the background."""
        await self.sync()
        self._task = spawn(self._run(), name="keys")

    async def sync(self) -> bool:
        """Read and write the file once; False, and a warning the first time, when that fails."""
        try:
            await self._sync()
        except (sqlite3.Error, OSError, ValueError) as error:
            if not self._failing:
                _log.warning("keys: %s: %s; the last state known stays in use", type(error).__name__, error)
            self._failing = True
            return False
        if self._failing:
            _log.info("keys: the file can be used again")
        self._failing = False
        return True

    async def aclose(self) -> None:
        """Write what was spent, and close the file."""
        self._closing.set()
        if self._task is not None:
            await self._task
        await self.sync()
        await self._store.aclose()

    async def _run(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._closing.wait()
                return
            await self.sync()

    async def _sync(self) -> None:
        if self._opened and not self._store.path.exists():
            # Opening would make an empty one, and an empty one shuts everybody out.
            raise FileNotFoundError(f"{self._store.path} is gone")
        revision, keys = await self._store.changed(self._revision)
        self._opened = True
        if keys is not None:
            self._gate.use_keys(Keyring(keys))
            self._revision = revision
        unsaved = self._gate.unsaved()
        self._gate.saved(unsaved, await self._store.spend(unsaved, self._gate.today()))


def _read(row: Sequence[Any]) -> VirtualKey:
    """Make a key from its row. Raises ValueError for models that are no JSON."""
    key_id, key_digest, app, models, created_at, expires_at, revoked_at, requests, tokens, usd = row
    return VirtualKey(
        id=key_id,
        digest=key_digest,
        app=app,
        models=tuple(json.loads(models)),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        quota=Quota(requests_per_min=requests, tokens_per_min=tokens, usd_per_day=usd),
    )
