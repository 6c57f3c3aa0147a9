"""What joins exchanges to conversations, in PostgreSQL.

An exchange is stored in a transaction of its own before the others are looked for: of two processes that store two
exchanges of one conversation at the same moment, at least one then sees both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gaugeway.storage.conversations import MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.postgres.connection import Database, count_of, plain
from gaugeway.storage.stores.calendar import day_of

_ADD = """
    WITH added AS (
        INSERT INTO links (id, started_at, before, payload)
        SELECT * FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING RETURNING id
    ), keyed AS (
        INSERT INTO link_keys (app, key, started_at, id)
        SELECT * FROM unnest($5::text[], $6::text[], $7::float8[], $8::text[]) ON CONFLICT DO NOTHING
    )
    SELECT id FROM added
"""
_THESE = "SELECT payload FROM links WHERE id = ANY($1::text[])"
_FOUND = f"""
    SELECT payload, number FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[]) WITH ORDINALITY
        AS wanted (app, key, since, until, number)
    CROSS JOIN LATERAL (
        SELECT id, started_at FROM link_keys
        WHERE app = wanted.app AND key = wanted.key AND started_at >= since AND started_at <= until
        ORDER BY started_at DESC, id DESC LIMIT {MOST_CANDIDATES + 1}
    ) AS found JOIN links USING (id) ORDER BY number, found.started_at DESC, id DESC
"""  # noqa: S608 - constants
_MOVE = "UPDATE links SET before = $2, payload = $3 WHERE id = $1 AND before IS NOT DISTINCT FROM $4"
_MOVE_SAMPLE = "UPDATE samples SET conversation = $3, turn = $4, hop = $5 WHERE id = $1 AND day = $2"
_MOVE_SCORES = "UPDATE evaluations SET cluster = $3 WHERE sample_id = $1 AND day = $2"
_PRUNE = (
    "DELETE FROM links WHERE id IN (SELECT id FROM links WHERE started_at < $1 LIMIT $2)",
    """
    DELETE FROM link_keys WHERE (app, key, started_at, id) IN (
        SELECT app, key, started_at, id FROM link_keys WHERE started_at < $1 LIMIT $2
    )
    """,
)
_PRUNE_BATCH = 5_000


class PostgresLinks:
    """The tables `links` and `link_keys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def link(self, some: Sequence[Linked]) -> Sequence[Any]:
        """Do what `LinkTables.link` does, in one order, so that two who store the same do not deadlock."""
        ordered = sorted(some, key=lambda exchange: exchange.id)
        rows = [
            (plain(exchange.id), exchange.started_at, _plain(exchange.place.before), encoded(exchange).decode())
            for exchange in ordered
        ]
        keys = sorted(
            (plain(exchange.app), plain(key), exchange.started_at, plain(exchange.id))
            for exchange in some
            for key in keys_of(exchange)
        )
        async with self._database.connection() as connection:
            added = await connection.fetch(_ADD, *_columns(rows), *_columns(keys))
            if len(added) == len(rows):
                return ()
            return list(await connection.fetch(_THESE, [row[0] for row in rows]))

    async def links(self, sample_ids: Sequence[str]) -> Sequence[Any]:
        """Do what `LinkTables.links` does."""
        async with self._database.connection() as connection:
            return list(await connection.fetch(_THESE, [plain(sample_id) for sample_id in sample_ids]))

    async def look_up(self, wanted: Sequence[Lookup]) -> Sequence[tuple[int, str]]:
        """Do what `LinkTables.look_up` does."""
        rows = [(plain(lookup.app), plain(lookup.key), lookup.since, lookup.until) for lookup in wanted]
        async with self._database.connection() as connection:
            found = await connection.fetch(_FOUND, *_columns(rows))
        return [(row["number"] - 1, row["payload"]) for row in found]

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        """Do what `LinkTables.place` does."""
        missed = []
        async with self._database.transaction() as connection:
            for exchange, expected in sorted(moves, key=lambda move: move.one.id):
                what = (plain(exchange.id), _plain(exchange.place.before), encoded(exchange).decode(), _plain(expected))
                if not count_of(await connection.execute(_MOVE, *what)):
                    missed.append(exchange.id)
                    continue
                key = (plain(exchange.id), day_of(exchange.started_at))
                await connection.execute(
                    _MOVE_SAMPLE, *key, plain(exchange.place.conversation), exchange.place.turn, exchange.place.hop
                )
                if exchange.named:
                    await connection.execute(_MOVE_SCORES, *key, _plain(cluster_with(exchange)))
        return missed


async def prune(database: Database, before: float) -> None:
    """Delete old links, a batch at a time."""
    for statement in _PRUNE:
        gone = _PRUNE_BATCH
        while gone == _PRUNE_BATCH:
            async with database.connection() as connection:
                gone = count_of(await connection.execute(statement, before, _PRUNE_BATCH))


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)
