"""Deleting what is about one person from a queue in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from monitors.storage.engines.postgres import Database, count_of
from monitors.storage.erase import Subject, Trail

_BATCH = 200
_AFTER = "SELECT {key}, id, payload FROM {table} WHERE {key} > $1 ORDER BY {key} LIMIT $2"
_LOCKED = "SELECT {key} FROM {table} WHERE {key} = ANY($1) ORDER BY {key} FOR UPDATE"
_DELETE = "DELETE FROM {table} WHERE {key} = ANY($1)"


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

    Dead letters after those that wait: what is set aside meanwhile is found there. What a worker holds at this moment
    it may still bring to the store.
    """
    trail = Trail(subject)
    return {
        "queued samples": await _forget(database, "waiting", "position", -1, trail.sample, dry_run=dry_run),
        "dead letters": await _forget(database, "dead", "id", "", trail.sample, dry_run=dry_run),
        "queued supplements": await _forget(database, "supplies", "position", -1, trail.supplement, dry_run=dry_run),
    }


async def _forget(
    database: Database, table: str, key: str, after: int | str, is_meant: Callable[[str, str], bool], *, dry_run: bool
) -> int:
    names = {"table": table, "key": key}
    total = 0
    while True:
        async with database.transaction() as connection:
            rows = await connection.fetch(_AFTER.format(**names), after, _BATCH)
            if not rows:
                return total
            after = rows[-1][key]
            # bytes that are no text are searched as well as they can be
            meant: list[Any] = [
                row[key] for row in rows if is_meant(row["id"], row["payload"].decode(errors="replace"))
            ]
            if dry_run or not meant:
                total += len(meant)
                continue
            await connection.execute(_LOCKED.format(**names), meant)  # in one order, so that two of these cannot block
            total += count_of(await connection.execute(_DELETE.format(**names), meant))
