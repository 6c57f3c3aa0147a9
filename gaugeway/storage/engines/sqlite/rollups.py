"""Where the embedded store keeps its sums: a table of its file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gaugeway.storage.engines.sqlite.connection import Database
from gaugeway.storage.stores.rollup_windows import Span

_BOUNDS = """
    SELECT min(first), max(last) FROM (
        SELECT (SELECT min(started_at) FROM evaluations) AS first, (SELECT max(started_at) FROM evaluations) AS last
        UNION ALL SELECT (SELECT min(started_at) FROM signals), (SELECT max(started_at) FROM signals)
    )
"""
_KNOWN = "SELECT start, seconds, sums FROM sums WHERE kind = ? AND start >= ? AND start < ?"
_ANNOUNCE = "INSERT OR REPLACE INTO sums (start, seconds, kind, sums) VALUES (?, ?, ?, ?)"
_KEEP = "UPDATE sums SET sums = ? WHERE start = ? AND seconds = ? AND kind = ? AND sums = ?"


class SQLiteKept:
    """Sums in the table `sums`."""

    def __init__(self, writer: Database, reader: Database) -> None:
        self._writer = writer
        self._reader = reader

    async def bounds(self) -> tuple[Any, Any]:
        ((first, last),) = await self._reader.fetch(_BOUNDS)
        return first, last

    async def known(self, kind: str, first: int, last: int) -> Iterable[Sequence[Any]]:
        return await self._reader.fetch(_KNOWN, (kind, first, last))

    async def announce(self, span: Span, kind: str, mark: str) -> None:
        await self._writer.change(_ANNOUNCE, (span.start, span.seconds, kind, mark))

    async def keep(self, span: Span, kind: str, mark: str, sums: str) -> None:
        await self._writer.change(_KEEP, (sums, span.start, span.seconds, kind, mark))
