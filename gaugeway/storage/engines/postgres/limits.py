"""Limits shared through PostgreSQL: one statement a second for each process, on rows that no crash needs to survive."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence

from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.postgres.connection import Database
from gaugeway.storage.keys.names import stored_name
from gaugeway.storage.limits import SEEN_S, Draw, SharedLevels

_TIDY_EVERY_S = 60.0

# Ordered by name, so that two processes cannot deadlock on each other's rows.
_EXCHANGE = """
    INSERT INTO limit_levels AS known (kind, subject, per_min, burst, used, level, at)
    SELECT kind, subject, per_min, burst, used, least(burst, level) - used, clock_timestamp()
    FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[], $6::float8[])
        AS told (kind, subject, per_min, burst, used, level)
    ORDER BY kind, subject
    ON CONFLICT (kind, subject) DO UPDATE SET
        per_min = excluded.per_min,
        burst = excluded.burst,
        used = excluded.used,
        level = least(
            excluded.burst,
            known.level
                + greatest(extract(epoch FROM excluded.at - known.at)::float8, 0) * excluded.per_min / 60
        ) - excluded.used,
        at = greatest(known.at, excluded.at)
    RETURNING kind, subject, level
"""
_SEE = """
    WITH me AS (
        INSERT INTO limit_processes (id, seen_at) VALUES ($1, clock_timestamp())
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
    )
    SELECT count(*) + 1 FROM limit_processes
    WHERE id <> $1 AND seen_at > clock_timestamp() - make_interval(secs => $2)
"""
# An unknown bucket counts as full, so full ones can be deleted. Locked rows are skipped until the next time.
_TIDY_LEVELS = """
    DELETE FROM limit_levels WHERE (kind, subject) IN (
        SELECT kind, subject FROM limit_levels
        WHERE extract(epoch FROM clock_timestamp() - at) > (burst - level) * 60 / per_min + $1
        FOR UPDATE SKIP LOCKED
    )
"""
_TIDY_PROCESSES = """
    DELETE FROM limit_processes WHERE id IN (
        SELECT id FROM limit_processes WHERE seen_at < clock_timestamp() - make_interval(secs => 2 * $1::float8)
        FOR UPDATE SKIP LOCKED
    )
"""


class LimitLevels:
    """Buckets as rows of unlogged tables: no write-ahead log for what lasts a minute. Raises `EngineError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process = secrets.token_hex(8)
        self._tidied_at = time.monotonic()

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        """Do what `Documents.exchange` does."""
        places = [(draw.kind, stored_name(draw.subject)) for draw in draws]
        told = [
            (*place, draw.per_min, draw.burst, draw.used, draw.level) for place, draw in zip(places, draws, strict=True)
        ]
        async with self._database.transaction() as connection:
            rows = await connection.fetch(_EXCHANGE, *map(list, zip(*told, strict=True))) if told else []
            processes = await connection.fetchval(_SEE, self._process, SEEN_S)
        await self._tidy()
        levels = {(row["kind"], row["subject"]): row["level"] for row in rows}
        return SharedLevels(processes=processes, levels=[levels[place] for place in places])

    async def leave(self) -> None:
        """Leave the processes that share."""
        with contextlib.suppress(EngineError):  # who does not say goodbye is forgotten all the same
            async with self._database.connection() as connection:
                await connection.execute("DELETE FROM limit_processes WHERE id = $1", self._process)

    async def _tidy(self) -> None:
        if time.monotonic() - self._tidied_at < _TIDY_EVERY_S:
            return
        self._tidied_at = time.monotonic()
        with contextlib.suppress(EngineError):  # what was exchanged is exchanged
            async with self._database.connection() as connection:
                await connection.execute(_TIDY_LEVELS, _TIDY_EVERY_S)
                await connection.execute(_TIDY_PROCESSES, SEEN_S)
