"""Partitions of one UTC day each: made before they are needed, dropped when their last sample is old enough."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gaugeway.storage.engines.conditions import DAY_S
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.postgres.connection import Database

if TYPE_CHECKING:
    from gaugeway.storage.engines.postgres.connection import Connection

AHEAD = 3
_TABLES = "evaluations", "samples"
_LOCK = 0x67776479  # "gwdy": one process at a time changes what partitions there are
# Waiting to change a table makes everybody else wait behind us, and after a second PostgreSQL looks for somebody to
# abort: rather try again.
_PATIENCE = "SET LOCAL lock_timeout = '800ms'"
_TRIES, _PAUSE_S = 5, 1.0
_DAYS = """
    SELECT substring(relname FROM '-?[0-9]+$')::integer AS day
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'samples'::regclass
"""
_FORGET_SUMS = "DELETE FROM sums WHERE start >= $1 AND start < $2"
_log = logging.getLogger("gaugeway")


class Days:
    """The days that this process knows to have partitions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[int] = set()
        self._changing = asyncio.Lock()

    async def ensure(self, *days: int) -> None:
        """Make the partitions of these days, where they are missing."""
        if self._known.issuperset(days):
            return
        async with self._changing, self._database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            there = await self._there(connection)
            for day in sorted(set(days) - there):
                await _make(connection, day)
            found = there | set(days)
        self._known = found

    def forget(self) -> None:
        """Another process dropped what this one thought was there."""
        self._known.clear()

    async def drop(self, before: float) -> int:
        """Drop the days that were over before `before`, with all samples in them; return how many samples."""
        async with self._database.connection() as connection:
            over = sorted(day for day in await self._there(connection) if (day + 1) * DAY_S <= before)
        removed = 0
        for day in over:
            for tries_left in reversed(range(_TRIES)):
                try:
                    removed += await self._drop(day)
                    break
                except EngineError:  # most likely somebody reads for long
                    if not tries_left:
                        raise
                    await asyncio.sleep(_PAUSE_S)
        return removed

    async def _drop(self, day: int) -> int:
        async with self._changing, self._database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if day not in await self._there(connection):
                return 0
            count = await connection.fetchval(f"SELECT count(*) FROM {_name('samples', day)}")  # noqa: S608 - a number
            await connection.execute(_PATIENCE)
            await connection.execute("LOCK TABLE ONLY evaluations, ONLY samples IN ACCESS EXCLUSIVE MODE")
            for table in _TABLES:
                await connection.execute(f"DROP TABLE {_name(table, day)}")
            await connection.execute(_FORGET_SUMS, int(day * DAY_S), int((day + 1) * DAY_S))
        self._known.discard(day)
        _log.info("store: dropped the %d samples of day %d", count, day)
        return int(count)

    async def _there(self, connection: Connection) -> set[int]:
        return {row["day"] for row in await connection.fetch(_DAYS)}


async def _make(connection: Connection, day: int) -> None:
    """Make a day apart and attach it: that locks nobody out, as making it in place would."""
    for table in _TABLES:
        name = _name(table, day)
        await connection.execute(
            f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, "
            f"CHECK (day = {day:d}))"
        )
        await connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({day:d})")


def _name(table: str, day: int) -> str:
    return f'"{table}_{day:d}"'
