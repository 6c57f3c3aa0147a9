"""Judge answers in a SQLite file, so that a restart, or a second run over a data set, does not pay again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from monitors.judges.middleware.cache import Kept
from monitors.storage.engines.failures import FAILURES
from monitors.storage.engines.sqlite import Database, Schema

_log = logging.getLogger("gaugeway.judge")
_SCHEMA = Schema(
    kind="judge cache",
    application_id=0x67776A63,  # "gwjc"
    migrations=(
        """
CREATE TABLE answers (
    key BLOB PRIMARY KEY, answer BLOB NOT NULL, usd REAL NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires);
""",
    ),
)
_PRUNE_EVERY = 256


class AnswerFile:
    """A shelf of at most about `most` answers; the next to expire make room.

    It holds what judges quoted of the samples: keep it as the store is kept. While the file cannot be used, nothing is
    found and nothing is kept, and the log says so once.
    """

    def __init__(self, path: str | Path, *, most: int = 200_000, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, schema=_SCHEMA, busy_timeout_s=5.0)
        self._most = most
        self._clock = clock
        self._puts = 0
        self._complained = False

    async def get(self, key: bytes) -> Kept | None:
        try:
            async with self._database.reading() as connection:
                rows = list(
                    await connection.execute_fetchall("SELECT answer, usd, expires FROM answers WHERE key = ?", (key,))
                )
        except FAILURES as error:
            self._complain(error)
            return None
        return Kept(*rows[0]) if rows else None

    async def put(self, key: bytes, kept: Kept) -> None:
        prune = self._puts % _PRUNE_EVERY == 0
        self._puts += 1
        try:
            async with self._database.writing() as connection:
                row = (key, kept.answer, kept.usd, kept.expires)
                await connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)
                if prune:
                    await connection.execute("DELETE FROM answers WHERE expires < ?", (self._clock(),))
                    await connection.execute(
                        "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY expires "
                        "LIMIT max(0, (SELECT count(*) FROM answers) - ?))",
                        (self._most,),
                    )
        except FAILURES as error:
            self._complain(error)

    async def aclose(self) -> None:
        await self._database.aclose()

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("judge cache file unusable: %s: %s", type(error).__name__, error)
