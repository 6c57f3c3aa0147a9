"""Retention in ClickHouse: days that are over are dropped whole, which rewrites nothing."""

from __future__ import annotations

import logging

from monitors.storage.engines.clickhouse import Database
from monitors.storage.stores.clickhouse.queries import APART, day

_log = logging.getLogger("gaugeway")
_OVER = f"SELECT day, count() FROM samples FINAL WHERE day < {{day:Int32}} GROUP BY day ORDER BY day {APART}"  # noqa: S608 - put together from constants
_DAYS = "SELECT DISTINCT day FROM {table} WHERE day < {{day:Int32}} ORDER BY day"
_OLD = "SELECT count() FROM supplements WHERE day = {day:Int32} AND received_at < {before:Float64}"
# A server refuses to drop more than 50 GB at once, against mistakes; this is none.
_DROP = "ALTER TABLE {table} DROP PARTITION {day} SETTINGS max_partition_size_to_drop = 0"
_DELETE = (
    "ALTER TABLE supplements DELETE IN PARTITION {day} WHERE received_at < {{before:Float64}} "
    "SETTINGS mutations_sync = 2"
)


async def prune(database: Database, before: float) -> int:
    """Drop the samples of days that were over before `before`, and the supplements received before; count samples."""
    today = int(day(before))
    over = await database.query(_OVER, {"day": today})
    for table in ("evaluations", "samples", "supplements"):
        for (one,) in await database.query(_DAYS.format(table=table), {"day": today}):
            await database.command(_DROP.format(table=table, day=f"{one:d}"))
    ((old,),) = await database.query(_OLD, {"day": today, "before": before})
    if old:
        await database.command(_DELETE.format(day=today), {"before": before})
    for one, count in over:
        _log.info("store: dropped the %d samples of day %d", count, one)
    return sum(count for _, count in over)
