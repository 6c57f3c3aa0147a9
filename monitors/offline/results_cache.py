"""The run file: outcomes cached between runs, by content, metric, version and judge."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gaugeway.records import Evaluation, Failed
from gaugeway.storage.engines.sqlite.connection import Database, Schema
from monitors.offline import results_codec as codec

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
    """The inputs of an outcome in addition to the sample; `judge` includes the judge's settings and the embeddings."""

    metric: str
    version: str
    judge: str


class ResultsCache:
    """A SQLite file of outcomes. Failures are not stored, so the next run retries. `fresh` ignores stored outcomes."""

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._database = Database(path, schema=SCHEMA, busy_timeout_s=10.0)

    async def get(self, content: str, sample_id: str) -> Mapping[Key, Evaluation]:
        """Return the stored evaluations of a sample with this content."""
        if self._fresh:
            return {}
        rows = await self._database.fetch(_GET, (content,))
        return {
            Key(metric, version, judge): codec.to_evaluation(sample_id, codec.decode(payload))
            for metric, version, judge, payload in rows
        }

    async def put(self, content: str, evaluations: Iterable[tuple[Key, Evaluation]]) -> None:
        """Store outcomes; a later one replaces an earlier one."""
        rows = [
            (content, key.metric, key.version, key.judge, time.time(), codec.encode(codec.from_evaluation(evaluation)))
            for key, evaluation in evaluations
            if not isinstance(evaluation.outcome, Failed)
        ]
        if rows:
            await self._database.write(lambda connection: connection.executemany(_PUT, rows))

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()
