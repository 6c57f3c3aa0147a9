"""What joins exchanges to conversations, in the embedded store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sqlite3 import Connection
from typing import Any

from gaugeway.storage.conversations import MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.engines.sqlite.connection import Database

_ADD = "INSERT OR IGNORE INTO links (id, started_at, before, payload) VALUES (?, ?, ?, ?)"
_ADD_KEY = "INSERT OR IGNORE INTO link_keys (app, key, started_at, id) VALUES (?, ?, ?, ?)"
_THESE = "SELECT payload FROM links WHERE id IN (SELECT value FROM json_each(?))"
_FOUND = f"""
    SELECT payload FROM link_keys JOIN links USING (id)
    WHERE app = ? AND key = ? AND link_keys.started_at >= ? AND link_keys.started_at <= ?
    ORDER BY link_keys.started_at DESC, id DESC LIMIT {MOST_CANDIDATES + 1}
"""  # noqa: S608 - constants
_MOVE = """
    UPDATE links SET before = moved.before, payload = moved.payload FROM (
        SELECT value ->> 0 AS id, value ->> 1 AS before, value ->> 2 AS payload, value ->> 3 AS expected
        FROM json_each(?)
    ) AS moved WHERE links.id = moved.id AND links.before IS moved.expected RETURNING links.id
"""
_MOVE_SAMPLE = "UPDATE samples SET conversation = ?, turn = ?, hop = ? WHERE id = ?"
_MOVE_SCORES = (
    "UPDATE evaluations SET cluster = ?2 WHERE sample_id = ?1",
    f"UPDATE signals SET cluster = ?2 WHERE {signal_rows.OF_SAMPLE}",  # noqa: S608 - a constant
)
_PRUNE = (
    "DELETE FROM links WHERE rowid IN (SELECT rowid FROM links WHERE started_at < ? LIMIT ?)",
    """
    DELETE FROM link_keys WHERE (app, key, started_at, id) IN (
        SELECT app, key, started_at, id FROM link_keys WHERE started_at < ? LIMIT ?
    )
    """,
)


class SQLiteLinks:
    """The tables `links` and `link_keys`."""

    def __init__(self, writer: Database, reader: Database) -> None:
        self._writer = writer
        self._reader = reader

    async def link(self, some: Sequence[Linked]) -> Iterable[Any]:
        """Do what `LinkTables.link` does."""
        rows = [
            (exchange.id, exchange.started_at, exchange.place.before, encoded(exchange).decode()) for exchange in some
        ]
        keys = [(exchange.app, key, exchange.started_at, exchange.id) for exchange in some for key in keys_of(exchange)]
        names = encoded([row[0] for row in rows]).decode()

        def add(connection: Connection) -> list[Any]:
            new = connection.executemany(_ADD, rows).rowcount == len(rows)
            connection.executemany(_ADD_KEY, keys)
            return [] if new else connection.execute(_THESE, (names,)).fetchall()

        return await self._writer.write(add)

    async def links(self, sample_ids: Sequence[str]) -> Iterable[Any]:
        """Do what `LinkTables.links` does."""
        return await self._reader.fetch(_THESE, (encoded(list(sample_ids)).decode(),), short=True)

    async def look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        """Do what `LinkTables.look_up` does."""

        def read(connection: Connection) -> list[tuple[int, str]]:
            return [
                (place, payload)
                for place, lookup in enumerate(wanted)
                for (payload,) in connection.execute(_FOUND, lookup)
            ]

        return await self._reader.read(read, short=True)

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        """Do what `LinkTables.place` does."""
        wanted = encoded(
            [(exchange.id, exchange.place.before, encoded(exchange).decode(), expected) for exchange, expected in moves]
        ).decode()

        def move(connection: Connection) -> set[str]:
            moved = {row[0] for row in connection.execute(_MOVE, (wanted,)).fetchall()}
            there = [exchange for exchange, _ in moves if exchange.id in moved]
            connection.executemany(_MOVE_SAMPLE, [(*exchange.place[:3], exchange.id) for exchange in there])
            clusters = [(exchange.id, cluster_with(exchange)) for exchange in there if exchange.named]
            for statement in _MOVE_SCORES:
                connection.executemany(statement, clusters)
            return moved

        moved = await self._writer.write(move)
        return [exchange.id for exchange, _ in moves if exchange.id not in moved]


def prune(connection: Connection, before: float, limit: int) -> bool:
    """Delete some old links; return whether there may be more."""
    removed = [connection.execute(statement, (before, limit)).rowcount for statement in _PRUNE]
    return limit in removed
