"""Deleting what is about one person from a queue in SQLite."""

from __future__ import annotations

from collections.abc import Mapping

from monitors.storage.engines.sqlite import Database
from monitors.storage.erase import Subject, Trail


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

    What a worker holds at this moment it may still bring to the store.
    """
    counts = {"queued samples": 0, "dead letters": 0, "queued supplements": 0}
    trail = Trail(subject)
    async with database.writing() as connection:
        await connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
        for kind, table in (("queued samples", "samples"), ("dead letters", "dead")):
            statement = f"SELECT id, CAST(payload AS TEXT) FROM {table}"  # noqa: S608 - constants
            rows = await connection.execute_fetchall(statement)
            meant = [row for row in rows if trail.sample(*row)]
            counts[kind] = len(meant)
            if not dry_run:
                remove = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608 - constants
                await connection.executemany(remove, [(row[0],) for row in meant])
        rows = await connection.execute_fetchall("SELECT id, CAST(payload AS TEXT) FROM supplies")
        said = [(row[0],) for row in rows if trail.supplement(*row)]
        counts["queued supplements"] = len(said)
        if not dry_run:
            await connection.executemany("DELETE FROM supplies WHERE id = ?", said)
    return counts
