"""Deleting what is about one person from a store in SQLite, so that its bytes are gone too."""

from __future__ import annotations

from collections.abc import Mapping

from monitors.storage.engines.sqlite import Database
from monitors.storage.erase import Subject, addresses_of

_BATCH = 500
_SAMPLES = "SELECT rowid, id, CAST(payload AS TEXT) FROM samples WHERE rowid > ? ORDER BY rowid LIMIT ?"
_SUPPLEMENTS = (
    "SELECT rowid, id, CAST(payload AS TEXT), kind, value FROM supplements WHERE rowid > ? ORDER BY rowid LIMIT ?"
)
_COUNT = "SELECT count(*) FROM evaluations WHERE sample_id = ?"


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, their evaluations, and the supplements that are about them or hold the text themselves.

    A batch at a time, so that those who write wait only a moment. Samples go last: after a failure another run still
    finds by them what was said about them.
    """
    counts = {"samples": 0, "evaluations": 0, "supplements": 0}
    addresses: set[tuple[str, str]] = set()
    found: list[str] = []
    after = -1
    while True:
        async with database.reading() as connection:
            rows = list(await connection.execute_fetchall(_SAMPLES, (after, _BATCH)))
        if not rows:
            break
        after = rows[-1][0]
        for _, sample_id, payload in rows:
            if subject.meets_sample(payload):
                found.append(sample_id)
                addresses.update([("exchange", sample_id), *addresses_of(payload)])
    counts["supplements"] = await _supplements(database, subject, addresses, dry_run=dry_run)
    for start in range(0, len(found), _BATCH):
        ids = [(one,) for one in found[start : start + _BATCH]]
        async with database.writing() as connection:
            await connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
            for one in ids:
                ((evaluations,),) = await connection.execute_fetchall(_COUNT, one)
                counts["evaluations"] += evaluations
            counts["samples"] += len(ids)
            if not dry_run:
                await connection.executemany("DELETE FROM evaluations WHERE sample_id = ?", ids)
                await connection.executemany("DELETE FROM links WHERE id = ?", ids)
                await connection.executemany("DELETE FROM samples WHERE id = ?", ids)
    return counts


async def _supplements(database: Database, subject: Subject, addresses: set[tuple[str, str]], *, dry_run: bool) -> int:
    after, total = -1, 0
    while True:
        async with database.writing() as connection:
            await connection.execute("PRAGMA secure_delete = ON")
            rows = list(await connection.execute_fetchall(_SUPPLEMENTS, (after, _BATCH)))
            if not rows:
                return total
            after = rows[-1][0]
            meant = [(row[1],) for row in rows if (row[3], row[4]) in addresses or subject.meets_supplement(row[2])]
            total += len(meant)
            if not dry_run:
                await connection.executemany("DELETE FROM supplements WHERE id = ?", meant)
