"""Deleting what is about one person from a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from gaugeway.storage.engines.postgres.connection import Database, count_of, plain
from gaugeway.storage.erase import Subject, Trail

_BATCH = 200
_SAMPLES = """
    SELECT id, day, payload::text FROM samples WHERE (id, day) > ($1::text, $2::integer) ORDER BY id, day LIMIT $3
"""
_SUPPLEMENTS = "SELECT id, kind, value, payload::text FROM supplements WHERE id > $1 ORDER BY id LIMIT $2"
_THESE = "unnest($1::text[], $2::integer[]) AS one (id, day)"
_COUNT = f"SELECT count(*) FROM evaluations JOIN {_THESE} ON sample_id = one.id AND evaluations.day = one.day"  # noqa: S608 - put together from constants
_DELETE_EVALUATIONS = f"""
    DELETE FROM evaluations USING {_THESE} WHERE sample_id = one.id AND evaluations.day = one.day
"""  # noqa: S608 - put together from constants
_DELETE_SAMPLES = f"DELETE FROM samples USING {_THESE} WHERE samples.id = one.id AND samples.day = one.day"  # noqa: S608 - put together from constants
_DELETE_LINKS = "DELETE FROM links WHERE id = ANY($1::text[])"
_DELETE_SUPPLEMENTS = "DELETE FROM supplements WHERE id = ANY($1::text[])"
_BEFORE_ALL = "", -(2**31)


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, their evaluations, and the supplements that are about them or hold the text themselves.

    A batch at a time, so that no lock lasts. Samples go last: after a failure another run still finds by them what was
    said about them.
    """
    counts = {"samples": 0, "evaluations": 0, "supplements": 0}
    trail = Trail(subject)
    found: list[tuple[str, int]] = []
    async for sample_id, day, payload in _samples(database):
        if trail.sample(sample_id, payload):
            found.append((sample_id, day))
    counts["supplements"] = await _supplements(database, trail, dry_run=dry_run)
    for start in range(0, len(found), _BATCH):
        these = [list(column) for column in zip(*found[start : start + _BATCH], strict=True)]
        async with database.transaction() as connection:
            if dry_run:
                counts["evaluations"] += await connection.fetchval(_COUNT, *these)
                counts["samples"] += len(these[0])
            else:
                counts["evaluations"] += count_of(await connection.execute(_DELETE_EVALUATIONS, *these))
                await connection.execute(_DELETE_LINKS, these[0])
                counts["samples"] += count_of(await connection.execute(_DELETE_SAMPLES, *these))
    return counts


async def _samples(database: Database) -> AsyncIterator[tuple[str, int, str]]:
    after = _BEFORE_ALL
    while True:
        async with database.connection() as connection:
            rows = await connection.fetch(_SAMPLES, *after, _BATCH)
        if not rows:
            return
        after = rows[-1]["id"], rows[-1]["day"]
        for row in rows:
            yield row["id"], row["day"], row["payload"]


async def _supplements(database: Database, trail: Trail, *, dry_run: bool) -> int:
    after, total = "", 0
    addresses = {(kind, plain(value)) for kind, value in trail.addresses}
    while True:
        async with database.connection() as connection:
            rows = await connection.fetch(_SUPPLEMENTS, after, _BATCH)
            if not rows:
                return total
            after = rows[-1]["id"]
            meant = [
                row["id"]
                for row in rows
                if (row["kind"], row["value"]) in addresses or trail.supplement(row["id"], row["payload"])
            ]
            total += len(meant)
            if meant and not dry_run:
                await connection.execute(_DELETE_SUPPLEMENTS, meant)
