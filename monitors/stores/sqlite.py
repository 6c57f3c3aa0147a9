"""The embedded store: samples, evaluations and states in one SQLite file."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec

from monitors.forgetting import Subject
from monitors.joining import address_of, completes
from monitors.records import Evaluation, Sample, Supplement
from monitors.sqlite import Database, path_from_url
from monitors.stores import Paired, Point, Query, Rated, Scored, Summary, forgetting, rated, rows
from monitors.stores.sqlite_schema import SCHEMA
from monitors.stores.sums import Sums

T = TypeVar("T")
_log = logging.getLogger("gaugeway")

_ADD_SAMPLE = """
    INSERT OR IGNORE INTO samples (id, started_at, app, model, payload, trace_id, context_key)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_ADD_EVALUATION = """
    INSERT INTO evaluations (
        sample_id, metric, version, started_at, app, model,
        outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, prompt, tags
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (sample_id, metric, version) DO UPDATE SET
        outcome = excluded.outcome, value = excluded.value, reason = excluded.reason, detail = excluded.detail,
        evidence = excluded.evidence, judge = excluded.judge, seconds = excluded.seconds,
        cost_usd = excluded.cost_usd, rate = excluded.rate
    WHERE evaluations.outcome = 'skipped' AND excluded.outcome <> 'skipped'
"""
_ADD_SUPPLEMENT = "INSERT OR IGNORE INTO supplements (id, received_at, kind, value, payload) VALUES (?, ?, ?, ?, ?)"
_CONCERNED = {
    kind: f"SELECT payload, id FROM samples WHERE {column} = ? ORDER BY started_at DESC LIMIT 100"  # noqa: S608 - constants
    for kind, column in (("exchange", "id"), ("key", "context_key"), ("trace", "trace_id"))
}
_SUPPLEMENTS = """
    SELECT payload FROM supplements
    WHERE kind = 'exchange' AND value = ? OR kind = 'key' AND value = ? OR kind = 'trace' AND value = ?
    ORDER BY received_at, id LIMIT 1000
"""
_PAYLOADS = "SELECT payload FROM samples WHERE id IN (SELECT value FROM json_each(?))"
_EVALUATIONS = """
    SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate
    FROM evaluations WHERE sample_id = ? ORDER BY rowid
"""
_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt, tags
    FROM evaluations
"""
_WILD = re.compile(r"[%_\\]")
_CONDITIONS = {
    "metric": "metric = :metric",
    "app": "app = :app",
    "model": "model = :model",
    "prompt": "prompt = :prompt",
    "outcome": "outcome = :outcome",
    "least": "value >= :least",
    "most": "value <= :most",
    "tag": "CASE WHEN json_valid(tags) THEN EXISTS "
    "(SELECT 1 FROM json_each(tags) WHERE key = :tag_name AND value = :tag_value) END",
    "text": "EXISTS (SELECT 1 FROM samples WHERE id = sample_id AND CASE WHEN json_valid(payload) THEN "
    "json_extract(payload, '$.question') LIKE :pattern ESCAPE '\\' "
    "OR json_extract(payload, '$.response') LIKE :pattern ESCAPE '\\' END)",
}
# A numpy number that slips through becomes a BLOB: such a row is no point, and must not take a place in a page of them.
_READABLE = "typeof(rate) = 'real' AND (outcome <> 'score' OR typeof(value) = 'real')"
# There are few rates, so that their weights can be worked out here: that takes SQLite four times as long.
_SUMMARY = """
    SELECT app, metric, {by} AS slice, outcome, rate, count(*), count(*) FILTER (WHERE typeof(value) = 'real'),
        total(value) FILTER (WHERE typeof(value) = 'real'), total(value * value) FILTER (WHERE typeof(value) = 'real')
    FROM evaluations {index} WHERE {conditions} GROUP BY app, metric, slice, outcome, rate
"""
_SCORED = """
    SELECT app, metric, count(*), total(value), total(value * value), min(rate), max(rate)
    FROM (
        SELECT app, metric, value, rate, max(rowid) FROM evaluations {index}
        WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
            AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0 AND {conditions}
        GROUP BY sample_id, metric
    ) GROUP BY app, metric
"""
_PAIRED = """
    SELECT app, metric, outcome, rate, cheap_rate, count(*), total(value), total(cheap), total(value * value),
        total(value * cheap), total(cheap * cheap)
    FROM (
        SELECT app, metric, outcome, rate, value, (
            SELECT value FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = :cheap AND outcome = 'score'
        ) AS cheap, (
            SELECT rate FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = :cheap AND outcome = 'score'
        ) AS cheap_rate
        FROM evaluations WHERE metric <> :cheap AND {conditions}
    ) GROUP BY app, metric, outcome, rate, cheap_rate
"""
_CHEAP = """
    SELECT app, count(*), total(value), total(value * value)
    FROM evaluations WHERE metric = :cheap AND outcome = 'score' AND typeof(value) = 'real' AND {conditions}
    GROUP BY app
"""
_SLICES = {
    "": "''",
    "model": "model",
    "prompt": "coalesce(prompt, '')",
    "tag": "coalesce((SELECT value FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{}' END) "
    "WHERE key = :by), '')",
}
BY_VALUE = ("lowest", "highest")
_ORDERS = {
    "oldest": "ORDER BY started_at, rowid",
    "newest": "ORDER BY started_at DESC, rowid DESC",
    "lowest": "ORDER BY value, started_at, rowid",
    "highest": "ORDER BY value DESC, started_at, rowid",
}
_METRICS = """
    WITH RECURSIVE known (metric) AS (
        SELECT min(metric) FROM evaluations
        UNION ALL SELECT (SELECT min(metric) FROM evaluations WHERE metric > known.metric) FROM known
        WHERE known.metric IS NOT NULL
    )
    SELECT metric FROM known WHERE metric IS NOT NULL
"""
_SHORT_S = 6 * 3600.0
_PRUNE_EVALUATIONS = """
    DELETE FROM evaluations WHERE sample_id IN (
        SELECT id FROM samples WHERE started_at < :before ORDER BY started_at, id LIMIT :limit
    )
"""
_PRUNE_SAMPLES = """
    DELETE FROM samples WHERE id IN (
        SELECT id FROM samples WHERE started_at < :before ORDER BY started_at, id LIMIT :limit
    )
"""
_PRUNE_SUPPLEMENTS = """
    DELETE FROM supplements WHERE rowid IN (SELECT rowid FROM supplements WHERE received_at < :before LIMIT :limit)
"""
_PRUNE_BATCH = 200
_IDS = "SELECT id FROM samples WHERE id > ? ORDER BY id LIMIT ?"
_SAID = "SELECT id, payload FROM supplements WHERE id > ? ORDER BY id LIMIT ?"
_HOLDS = """
    SELECT id, (SELECT count(*) FROM evaluations WHERE sample_id = id)
    FROM samples WHERE id IN (SELECT value FROM json_each(?))
"""
_SAVE = "INSERT INTO states (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class SQLiteStore(rows.Lenient):
    """Store and Ledger on one SQLite file; reading has a connection of its own and never waits for a writer.

    An operation that cannot get at the file within `busy_timeout_s`, or at all, raises `sqlite3.Error` or `OSError`;
    a file written by a newer release raises `monitors.sqlite.SchemaError`, which is a `sqlite3.Error`.
    """

    def __init__(self, path: str | Path, busy_timeout_s: float = 5.0) -> None:
        self._writer = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)
        self._reader = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)
        self._sums = Sums(self._writer, self._reader, clock=time.time)

    @classmethod
    def from_url(cls, url: str) -> SQLiteStore:
        """Return the store in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url))

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise ValueError(f"an evaluation belongs to another sample than {sample.id!r}")
        payload = msgspec.json.encode(sample).decode()
        row = (sample.id, sample.started_at, sample.app, sample.model, payload, sample.trace_id, sample.context_key)
        async with self._writer.writing() as connection:
            fresh = (await connection.execute(_ADD_SAMPLE, row)).rowcount > 0
            fills = not fresh and await self._complete(connection, sample, payload)
            there = await connection.execute_fetchall(
                "SELECT metric, version, outcome FROM evaluations WHERE sample_id = ?", (sample.id,)
            )
            new = rows.new(evaluations, there, fills=fills)
            await connection.executemany(_ADD_EVALUATION, [rows.row(sample, evaluation) for evaluation in new])
        return new

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        async with self._reader.reading() as connection:
            payloads = list(await connection.execute_fetchall("SELECT payload FROM samples WHERE id = ?", (sample_id,)))
            stored = await connection.execute_fetchall(_EVALUATIONS, (sample_id,))
        found = self._read(_sample, payloads)
        if not found:
            return None
        return found[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        async with self._reader.reading() as connection:
            stored = await connection.execute_fetchall(_PAYLOADS, (msgspec.json.encode(list(sample_ids)).decode(),))
        return rows.questions(row[0] for row in stored)

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        addressed = {one.id: (one, address) for one in supplements if (address := address_of(one)) is not None}
        if not addressed:
            return []
        new = [
            (one.id, one.received_at, *address, msgspec.json.encode(one).decode())
            for one, address in addressed.values()
        ]
        concerned: dict[str, Any] = {}
        async with self._writer.writing() as connection:
            await connection.executemany(_ADD_SUPPLEMENT, new)
            for kind, value in dict.fromkeys(address for _, address in addressed.values()):
                for row in await connection.execute_fetchall(_CONCERNED[kind], (value,)):
                    concerned[row[1]] = row
        return sorted(self._read(_sample, concerned.values()), key=lambda sample: (sample.started_at, sample.id))

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        named = (sample.id, sample.context_key, sample.trace_id)
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(_SUPPLEMENTS, named)
        return self._read(_supplement, found)

    async def series(self, query: Query) -> Sequence[Point]:
        if query.order in BY_VALUE:
            return await self._by_value(query)
        return await self._points(query)

    async def _points(self, query: Query, index: str | None = None) -> Sequence[Point]:
        conditions, parameters = _where(query)
        conditions += f" AND {_READABLE}"
        if query.order in BY_VALUE:
            conditions += " AND outcome = 'score'"
        limit = -1 if query.limit is None else max(query.limit, 0)
        statement = " ".join(
            [_POINTS, index or _index(query), "WHERE", conditions, _ORDERS[query.order], "LIMIT :limit"]
        )
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(statement, {**parameters, "limit": limit})
        return [rows.point(row) for row in found]

    async def _by_value(self, query: Query) -> Sequence[Point]:
        """The lowest or highest of each metric by its index; those of a short time are found sooner by time."""
        long = query.until - query.since > _SHORT_S
        covered = (query.model, query.prompt, query.tag, query.text) == (None,) * 4 and query.limit is not None
        if not (long and covered):
            return await self._points(query)
        metrics = [query.metric]
        if query.metric is None:
            async with self._reader.reading() as connection:
                metrics = [row[0] for row in await connection.execute_fetchall(_METRICS)]
        found: list[Point] = []
        for metric in metrics:
            found += await self._points(replace(query, metric=metric), "INDEXED BY evaluations_value")
        if len(metrics) > 1:
            sign = 1.0 if query.order == "lowest" else -1.0
            found.sort(key=lambda one: (sign * (one.value or 0.0), one.started_at))
        return found[: query.limit]

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return await self._sums.summary(query, by, self._summary)

    async def scored(self, query: Query) -> Sequence[Scored]:
        return await self._sums.scored(query, self._scored)

    async def _summary(self, query: Query, by: str) -> Sequence[Summary]:
        conditions, parameters = _where(query)
        kind, _, name = by.partition(":")
        statement = _SUMMARY.format(index=_index(query), conditions=conditions, by=_SLICES[kind])
        async with self._reader.reading() as connection:
            groups = await connection.execute_fetchall(statement, {**parameters, "by": name})
        summaries: dict[tuple[str, str, str], rows.Totals] = {}
        unreadable = 0
        for app, metric, part, *group in groups:
            unreadable += summaries.setdefault((app, metric, part), rows.Totals()).add(group)
        if unreadable:
            self._complain(f"{unreadable} evaluations hold no number")
        return [sums.summary(*key) for key, sums in summaries.items()]

    async def _scored(self, query: Query) -> Sequence[Scored]:
        conditions, parameters = _where(query)
        statement = _SCORED.format(index=_index(query), conditions=conditions)
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(statement, parameters)
        return rows.scored(found)

    async def paired(self, query: Query, cheap: str) -> Sequence[Paired]:
        conditions, parameters = _where(query)
        parameters["cheap"] = cheap
        of_cheap, _ = _where(replace(query, metric=None))
        async with self._reader.reading() as connection:
            groups = await connection.execute_fetchall(_PAIRED.format(conditions=conditions), parameters)
            totals = await connection.execute_fetchall(_CHEAP.format(conditions=of_cheap), parameters)
        return rows.paired(groups, totals)

    async def ratings(self, query: Query) -> Sequence[Rated]:
        conditions, parameters = _where(query)
        limit = -1 if query.limit is None else max(query.limit, 0)
        statement = rated.STATEMENT.format(conditions=f"{conditions} AND {_READABLE}")
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(statement, {**parameters, "limit": limit})
        return [one for pair in self._read(rated.pair, found) for one in pair]

    async def prune(self, before: float) -> int:
        """Delete a batch at a time, so that those who write wait a moment only; then add up the hours that are over."""
        parameters = {"before": before, "limit": _PRUNE_BATCH}
        total = 0
        removed = gone = _PRUNE_BATCH
        while _PRUNE_BATCH in (removed, gone):
            async with self._writer.writing() as connection:
                await connection.execute(_PRUNE_EVALUATIONS, parameters)
                removed = (await connection.execute(_PRUNE_SAMPLES, parameters)).rowcount
                gone = (await connection.execute(_PRUNE_SUPPLEMENTS, parameters)).rowcount
            total += removed
        await self.summary(Query(since=before, until=time.time()))
        return total

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await forgetting.forget(self._writer, subject, dry_run=dry_run)

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(_IDS, (after, limit))
        return [row[0] for row in found]

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(_HOLDS, (msgspec.json.encode(list(sample_ids)).decode(),))
        return {row[0]: row[1] for row in found}

    async def said(self, after: str, limit: int) -> Sequence[tuple[str, Supplement | None]]:
        async with self._reader.reading() as connection:
            found = await connection.execute_fetchall(_SAID, (after, limit))
        return [(row[0], next(iter(self._read(_supplement, [row[1:]])), None)) for row in found]

    async def load(self) -> Mapping[str, bytes]:
        async with self._reader.reading() as connection:
            states = await connection.execute_fetchall("SELECT name, value FROM states")
        return {row[0]: row[1] for row in states}

    async def save(self, states: Mapping[str, bytes]) -> None:
        if not states:
            return
        async with self._writer.writing() as connection:
            await connection.executemany(_SAVE, list(states.items()))

    async def aclose(self) -> None:
        try:
            await self._reader.aclose()
        finally:
            await self._writer.aclose()

    async def _complete(self, connection: aiosqlite.Connection, sample: Sample, payload: str) -> bool:
        """Whether a sample that is there already may fill gaps: it is the stored one, or now takes its place."""
        stored = await connection.execute_fetchall("SELECT payload FROM samples WHERE id = ?", (sample.id,))
        for old in self._read(_sample, stored):
            if completes(sample, old):
                await connection.execute("UPDATE samples SET payload = ? WHERE id = ?", (payload, sample.id))
                return True
        return False


def _index(query: Query) -> str:
    """The index that leads to the query's time. SQLite, which does not know it, prefers all of an app to some hours."""
    if query.metric is None:
        return "INDEXED BY evaluations_started_at"
    return "INDEXED BY evaluations_metric" if query.app is None else "INDEXED BY evaluations_app"


def _where(query: Query) -> tuple[str, dict[str, Any]]:
    """The conditions of a query in SQL, and their parameters."""
    given = asdict(query)
    conditions = ["started_at >= :since", "started_at < :until"]
    conditions += [condition for name, condition in _CONDITIONS.items() if given[name] is not None]
    parameters: dict[str, Any] = {name: given[name] for name in given if name != "tag"}
    parameters["tag_name"], parameters["tag_value"] = query.tag or ("", "")
    parameters["pattern"] = "%" + _WILD.sub(r"\\\g<0>", query.text or "") + "%"
    return " AND ".join(conditions), parameters


def _sample(row: Sequence[Any]) -> Sample:
    return msgspec.json.decode(row[0], type=Sample)


def _supplement(row: Sequence[Any]) -> Supplement:
    return msgspec.json.decode(row[0], type=Supplement)
