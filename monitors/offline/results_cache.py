"""Outcomes kept between runs, by what they depend on: content, metric, version, judge."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from monitors.offline import results_codec as wire
from monitors.records import Evaluation, Failed
from monitors.storage.engines.sqlite import Database, Schema

SCHEMA = Schema(
    kind="run file",
    application_id=0x67777266,  # "gwrf"
    migrations=(
        """
        CREATE TABLE outcomes (
            content TEXT NOT NULL,
            metric TEXT NOT NULL,
            version TEXT NOT NULL,
            judge TEXT NOT NULL,
            kept_at REAL NOT NULL,
            payload BLOB NOT NULL,
            PRIMARY KEY (content, metric, version, judge)
        ) WITHOUT ROWID;
        """,
    ),
)
_GET = "SELECT metric, version, judge, payload FROM outcomes WHERE content = ?"
_PUT = """
    INSERT INTO outcomes (content, metric, version, judge, kept_at, payload) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (content, metric, version, judge) DO UPDATE SET kept_at = excluded.kept_at, payload = excluded.payload
"""


@dataclass(frozen=True, slots=True)
class Key:
    """What an outcome depends on beside the sample. `judge` names everything that judged, with its settings."""

    metric: str
    version: str
    judge: str


class Kept:
    """One file of outcomes. Failures are not kept: the next run tries again. `fresh` forgets what was kept before."""

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._database = Database(path, schema=SCHEMA, busy_timeout_s=10.0)

    async def get(self, content: str, sample_id: str) -> Mapping[Key, Evaluation]:
        """All that is known of a sample with this content."""
        if self._fresh:
            return {}
        async with self._database.reading() as connection:
            rows = await connection.execute_fetchall(_GET, (content,))
        return {
            Key(metric, version, judge): wire.to_evaluation(sample_id, wire.decode(payload))
            for metric, version, judge, payload in rows
        }

    async def put(self, content: str, evaluations: Iterable[tuple[Key, Evaluation]]) -> None:
        """Keep outcomes; a later one takes the place of an earlier one."""
        rows = [
            (content, key.metric, key.version, key.judge, time.time(), wire.encode(wire.from_evaluation(one)))
            for key, one in evaluations
            if not isinstance(one.outcome, Failed)
        ]
        if rows:
            async with self._database.writing() as connection:
                await connection.executemany(_PUT, rows)

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()
