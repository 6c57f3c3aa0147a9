"""Where the PostgreSQL store keeps its sums: a table, and locks for those who write into an hour that is added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gaugeway.storage.engines.postgres.connection import Database
from gaugeway.storage.stores.rollup_windows import HOUR_S, Span

_LOCKS = 1735878515
"""As in the migration that made the triggers."""
# The days have partitions, so that the first and the last row are found in the first and the last of them.
_BOUNDS = """
    SELECT (SELECT started_at FROM samples ORDER BY started_at LIMIT 1),
        (SELECT started_at FROM samples ORDER BY started_at DESC LIMIT 1)
"""
_KNOWN = "SELECT start, seconds, sums FROM sums WHERE kind = $1 AND start >= $2 AND start < $3"
_WAIT = "SELECT pg_advisory_xact_lock($1::integer, hour) FROM unnest($2::integer[]) WITH ORDINALITY AS a (hour, place)"
_ANNOUNCE = """
    INSERT INTO sums (start, seconds, kind, sums) VALUES ($1, $2, $3, $4)
    ON CONFLICT (start, seconds, kind) DO UPDATE SET sums = excluded.sums
"""
_KEEP = "UPDATE sums SET sums = $4 WHERE start = $1 AND seconds = $2 AND kind = $3 AND sums = $5"


class PostgresKept:
    """Sums in the table `sums`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def bounds(self) -> tuple[Any, Any]:
        async with self._database.connection() as connection:
            first, last = await connection.fetchrow(_BOUNDS) or (None, None)
        return first, last

    async def known(self, kind: str, first: int, last: int) -> Iterable[Sequence[Any]]:
        async with self._database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(_KNOWN, kind, first, last)]

    async def announce(self, span: Span, kind: str, mark: str) -> None:
        """Wait for those who write into the span; who comes later finds the mark and removes it."""
        hours = [int(since) // HOUR_S % 1_000_000_000 for since, _ in span.hours]
        async with self._database.transaction() as connection:
            await connection.execute(_WAIT, _LOCKS, hours)
            await connection.execute(_ANNOUNCE, span.start, span.seconds, kind, mark)

    async def keep(self, span: Span, kind: str, mark: str, sums: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_KEEP, span.start, span.seconds, kind, sums, mark)
