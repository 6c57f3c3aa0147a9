"""What joins exchanges to conversations, in the embedded store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import aiosqlite

from monitors.storage.conversations import MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from monitors.storage.engines.failures import encoded
from monitors.storage.engines.sqlite import Database

Read: TypeAlias = Callable[[Iterable[Any]], list[Linked]]
_ADD = "INSERT OR IGNORE INTO links (id, started_at, before, payload) VALUES (?, ?, ?, ?)"
_ADD_KEY = "INSERT OR IGNORE INTO link_keys (app, key, started_at, id) VALUES (?, ?, ?, ?)"
_THESE = "SELECT payload FROM links WHERE id IN (SELECT value FROM json_each(?))"
# One statement for many lookups: each alone would take a round trip to the thread of the connection.
_FOUND = f"""
    SELECT * FROM (
        SELECT {{place}}, payload FROM link_keys JOIN links USING (id)
        WHERE app = ? AND key = ? AND link_keys.started_at >= ? AND link_keys.started_at <= ?
        ORDER BY link_keys.started_at DESC, id DESC LIMIT {MOST_CANDIDATES + 1}
    )
"""  # noqa: S608 - constants
_AT_ONCE = 100
_MOVE = """
    UPDATE links SET before = moved.before, payload = moved.payload FROM (
        SELECT value ->> 0 AS id, value ->> 1 AS before, value ->> 2 AS payload, value ->> 3 AS expected
        FROM json_each(?)
    ) AS moved WHERE links.id = moved.id AND links.before IS moved.expected RETURNING links.id
"""
_MOVE_SAMPLE = "UPDATE samples SET conversation = ?, turn = ?, hop = ? WHERE id = ?"
_MOVE_SCORES = "UPDATE evaluations SET cluster = ? WHERE sample_id = ?"
_PRUNE = (
    "DELETE FROM links WHERE rowid IN (SELECT rowid FROM links WHERE started_at < ? LIMIT ?)",
    """
    DELETE FROM link_keys WHERE (app, key, started_at, id) IN (
        SELECT app, key, started_at, id FROM link_keys WHERE started_at < ? LIMIT ?
    )
    """,
)


async def link(database: Database, some: Sequence[Linked], read: Read) -> Sequence[Linked]:
    """Store links; return those that were there."""
    rows = [(one.id, one.started_at, one.place.before, encoded(one).decode()) for one in some]
    keys = [(one.app, key, one.started_at, one.id) for one in some for key in keys_of(one)]
    async with database.writing() as connection:
        if (await connection.executemany(_ADD, rows)).rowcount == len(rows):
            await connection.executemany(_ADD_KEY, keys)
            return ()
        await connection.executemany(_ADD_KEY, keys)
        return read(await connection.execute_fetchall(_THESE, (encoded([row[0] for row in rows]).decode(),)))


async def links(database: Database, sample_ids: Sequence[str], read: Read) -> Sequence[Linked]:
    """Return stored links."""
    async with database.reading() as connection:
        return read(await connection.execute_fetchall(_THESE, (encoded(list(sample_ids)).decode(),)))


async def linked(
    database: Database, lookups: Sequence[Lookup], read: Callable[[Any], Linked | None]
) -> Mapping[Lookup, Sequence[Linked]]:
    """Return what each lookup finds."""
    wanted = list(dict.fromkeys(lookups))
    found: dict[Lookup, list[Linked]] = {lookup: [] for lookup in wanted}
    remaining = iter(enumerate(wanted))
    async with database.reading() as connection:
        while page := list(islice(remaining, _AT_ONCE)):
            statement = " UNION ALL ".join(_FOUND.format(place=number) for number, _ in page)
            values = [value for _, lookup in page for value in lookup]
            for number, payload in await connection.execute_fetchall(statement, values):
                if (one := read((payload,))) is not None:
                    found[wanted[number]].append(one)
    return found


async def place(database: Database, moves: Sequence[Move]) -> Sequence[str]:
    """Move what is still where it was expected; return the others."""
    wanted = [(one.id, one.place.before, encoded(one).decode(), expected) for one, expected in moves]
    async with database.writing() as connection:
        moved = {row[0] for row in await connection.execute_fetchall(_MOVE, (encoded(wanted).decode(),))}
        there = [one for one, _ in moves if one.id in moved]
        places = [(one.place.conversation, one.place.turn, one.place.hop, one.id) for one in there]
        await connection.executemany(_MOVE_SAMPLE, places)
        await connection.executemany(_MOVE_SCORES, [(cluster_with(one), one.id) for one in there if one.named])
    return [one.id for one, _ in moves if one.id not in moved]


async def prune(connection: aiosqlite.Connection, before: float, limit: int) -> bool:
    """Delete some old links; return whether there may be more."""
    removed = [(await connection.execute(statement, (before, limit))).rowcount for statement in _PRUNE]
    return limit in removed
