"""Deleting what is about one person from a store in ClickHouse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from gaugeway.storage.engines.clickhouse.connection import Database
from gaugeway.storage.engines.clickhouse.queries import APART, pages
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.erase import Subject, Trail

_PAGE = 500
# What a merge would throw away is read too: an older payload of the same sample may say more.
_SAMPLES = """
    SELECT id, day, revision, started_at, payload FROM samples
    WHERE (id, day, revision) > ({id:String}, {day:Int32}, {n:UInt32})
    ORDER BY id, day, revision LIMIT {limit:UInt64}
"""
_SUPPLEMENTS = """
    SELECT kind, value, id, revision, payload FROM supplements
    WHERE (kind, value, id, revision) > ({kind:String}, {value:String}, {id:String}, {n:UInt64})
    ORDER BY kind, value, id, revision LIMIT {limit:UInt64}
"""
_EVALUATIONS = f"""
    SELECT count() FROM evaluations FINAL WHERE day IN {{days:Array(Int32)}}
        AND started_at IN {{moments:Array(Float64)}} AND sample_id IN {{ids:Array(String)}} {APART}
"""  # noqa: S608 - put together from constants
_DELETE = "ALTER TABLE {table} DELETE WHERE {column} IN {{ids:Array(String)}} SETTINGS mutations_sync = 0"
_UNDER_WAY = """
    SELECT count(), countIf(latest_fail_reason <> '') FROM system.mutations
    WHERE database = currentDatabase() AND table = {table:String} AND NOT is_done
"""
_LOOK_EVERY_S = 0.2


async def forget(database: Database, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
    """Delete samples, their evaluations, and the supplements that are about them or hold the text themselves.

    Each deletion rewrites the parts that are concerned, however long that takes, and is waited for. Samples go last:
    after a failure another run still finds by them what was said about them.
    """
    trail = Trail(subject)
    found: dict[tuple[str, int], float] = {}
    async for sample_id, day, moment, payload in _samples(database):
        if trail.sample(sample_id, payload):
            found[sample_id, day] = moment
    said: dict[str, None] = {}
    async for kind, value, supplement_id, payload in _supplements(database):
        if (kind, value) in trail.addresses or trail.supplement(supplement_id, payload):
            said[supplement_id] = None
    counts = {"samples": len(found), "evaluations": 0, "supplements": len(said)}
    for page in pages(found):
        ids, days = zip(*page, strict=True)
        these = {"ids": list(ids), "days": sorted(set(days)), "moments": [found[key] for key in page]}
        counts["evaluations"] += (await database.query(_EVALUATIONS, these))[0][0]
    if not dry_run:
        await _delete(database, "supplements", "id", list(said))
        await _delete(database, "evaluations", "sample_id", [sample_id for sample_id, _ in found])
        await _delete(database, "links", "id", [sample_id for sample_id, _ in found])
        await _delete(database, "samples", "id", [sample_id for sample_id, _ in found])
    return counts


async def _delete(database: Database, table: str, column: str, ids: Sequence[str]) -> None:
    for page in pages(ids):
        await database.command(_DELETE.format(table=table, column=column), {"ids": page})
    while ids:
        ((under_way, failed),) = await database.query(_UNDER_WAY, {"table": table})
        if failed:
            raise EngineError(f"{database.address.name}: deleting from {table} fails; see system.mutations")
        if not under_way:
            return
        await asyncio.sleep(_LOOK_EVERY_S)


async def _samples(database: Database) -> AsyncIterator[tuple[str, int, float, str]]:
    after: dict[str, Any] = {"id": "", "day": -(2**31), "n": 0}
    while found := await database.query(_SAMPLES, {**after, "limit": _PAGE}):
        after = dict(zip(("id", "day", "n"), found[-1], strict=False))
        for sample_id, day, _, moment, payload in found:
            yield sample_id, day, moment, payload


async def _supplements(database: Database) -> AsyncIterator[tuple[str, str, str, str]]:
    after: dict[str, Any] = {"kind": "", "value": "", "id": "", "n": 0}
    while found := await database.query(_SUPPLEMENTS, {**after, "limit": _PAGE}):
        after = dict(zip(("kind", "value", "id", "n"), found[-1], strict=False))
        for kind, value, supplement_id, _, payload in found:
            yield kind, value, supplement_id, payload
