"""Deleting what is about one person from a store in SQLite, so that its bytes are gone too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from sqlite3 import Connection

from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.engines.sqlite.connection import Database
from gaugeway.storage.erase import Subject, Trail

_BATCH = 500
_SAMPLES = "SELECT rowid, id, CAST(payload AS TEXT) FROM samples WHERE rowid > ? ORDER BY rowid LIMIT ?"
_SUPPLEMENTS = (
    "SELECT rowid, id, CAST(payload AS TEXT), kind, value FROM supplements WHERE rowid > ? ORDER BY rowid LIMIT ?"
)
_COUNT = f"""
    SELECT (SELECT count(*) FROM evaluations WHERE sample_id = ?1) + (
        SELECT {signal_rows.COUNT} FROM signals WHERE {signal_rows.OF_SAMPLE}
    )
"""  # noqa: S608 - constants


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, their evaluations, and the supplements that are about them or hold the text themselves.

    A batch at a time, so that those who write wait only a moment. Samples go last: after a failure another run still
    finds by them what was said about them.
    """
    counts = {"samples": 0, "evaluations": 0, "supplements": 0}
    trail = Trail(subject)
    found: list[str] = []
    after = -1
    while True:
        rows = await database.fetch(_SAMPLES, (after, _BATCH))
        if not rows:
            break
        after = rows[-1][0]
        found += [sample_id for _, sample_id, payload in rows if trail.sample(sample_id, payload)]
    counts["supplements"] = await _supplements(database, trail, dry_run=dry_run)
    for start in range(0, len(found), _BATCH):
        ids = [(sample_id,) for sample_id in found[start : start + _BATCH]]
        counts["evaluations"] += await database.write(partial(_remove, ids, dry_run=dry_run))
        counts["samples"] += len(ids)
    return counts


def _remove(ids: Sequence[tuple[str]], connection: Connection, *, dry_run: bool) -> int:
    """Delete samples; return how many evaluations they have."""
    connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
    evaluations = sum(int(connection.execute(_COUNT, row).fetchone()[0]) for row in ids)
    if not dry_run:
        connection.executemany("DELETE FROM evaluations WHERE sample_id = ?", ids)
        connection.executemany(f"DELETE FROM signals WHERE {signal_rows.OF_SAMPLE}", ids)  # noqa: S608 - a constant
        connection.executemany("DELETE FROM links WHERE id = ?", ids)
        connection.executemany("DELETE FROM samples WHERE id = ?", ids)
    return evaluations


async def _supplements(database: Database, trail: Trail, *, dry_run: bool) -> int:
    after, total = -1, 0

    def remove(connection: Connection) -> tuple[int, int]:
        connection.execute("PRAGMA secure_delete = ON")
        rows = connection.execute(_SUPPLEMENTS, (after, _BATCH)).fetchall()
        meant = [
            (supplement_id,)
            for _, supplement_id, payload, kind, value in rows
            if (kind, value) in trail.addresses or trail.supplement(supplement_id, payload)
        ]
        if not dry_run:
            connection.executemany("DELETE FROM supplements WHERE id = ?", meant)
        return len(meant), rows[-1][0] if rows else after

    while True:
        before, (found, after) = after, await database.write(remove)
        if after == before:
            return total
        total += found
