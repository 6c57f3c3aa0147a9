"""The store for many machines: samples, evaluations and states in a PostgreSQL database, a day to a partition."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.engines.postgres import erase, links, queries
from gaugeway.storage.engines.postgres.connection import Database, count_of, plain, remove, save
from gaugeway.storage.engines.postgres.partitions import AHEAD, Days
from gaugeway.storage.engines.postgres.rollups import PostgresKept
from gaugeway.storage.engines.sql_store import SqlStore
from gaugeway.storage.erase import Subject
from gaugeway.storage.joining import address_of, completes
from gaugeway.storage.stores import (
    OutcomeCount,
    Point,
    Query,
    ScoreHistogram,
    ScoreSums,
    Spreads,
    Summary,
    ratings,
    rows,
    top_scores,
)
from gaugeway.storage.stores.calendar import day_of
from gaugeway.storage.stores.rollups import Sums

T = TypeVar("T")
_log = logging.getLogger("gaugeway")

_VALUES = """
    SELECT $1::text, metric, version, $2::integer, $3::float8, $4::text, $5::text, outcome, value, reason, detail,
        evidence::json, judge, seconds, cost_usd, rate, weight, $6::text, $7::text, $8::text::jsonb
    FROM unnest($9::text[], $10::text[], $11::text[], $12::float8[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::float8[], $18::float8[], $19::float8[], $20::float8[]) WITH ORDINALITY
    AS new (metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight, place)
"""
_INTO = """
    INSERT INTO evaluations (sample_id, metric, version, day, started_at, app, model, outcome, value, reason, detail,
        evidence, judge, seconds, cost_usd, rate, weight, prompt, cluster, tags)
"""
# One statement, one journey: most samples are new. `fresh` says whether this one was.
_ADD_FRESH = f"""
    WITH fresh AS (
        INSERT INTO samples (
            id, day, started_at, app, model, payload, trace_id, context_key, conversation, turn, hop
        ) VALUES ($1, $2, $3, $4, $5, $21::text::json, $22, $23, $25, $26, $27) ON CONFLICT DO NOTHING RETURNING id
    ), added AS (
        {_INTO} {_VALUES} WHERE EXISTS (SELECT FROM fresh) ORDER BY place
    ), waited AS (
        DELETE FROM waiting WHERE id = ANY($24::text[]) AND EXISTS (SELECT FROM fresh)
    ), set_aside AS (
        DELETE FROM dead WHERE id = ANY($24::text[]) AND EXISTS (SELECT FROM fresh)
    )
    SELECT count(*) FROM fresh
"""  # noqa: S608 - put together from constants
_ADD = f"""
    {_INTO} {_VALUES} ORDER BY place
    ON CONFLICT (sample_id, metric, version, day) DO UPDATE SET
        outcome = excluded.outcome, value = excluded.value, reason = excluded.reason, detail = excluded.detail,
        evidence = excluded.evidence, judge = excluded.judge, seconds = excluded.seconds,
        cost_usd = excluded.cost_usd, rate = excluded.rate, weight = excluded.weight
    WHERE evaluations.outcome = 'skipped' AND excluded.outcome <> 'skipped'
"""
_STORED = "SELECT payload::text FROM samples WHERE id = $1 AND day = $2 FOR UPDATE"
_REPLACE = "UPDATE samples SET payload = $3::text::json WHERE id = $1 AND day = $2"
_THERE = "SELECT metric, version, outcome FROM evaluations WHERE sample_id = $1 AND day = $2"
_PAYLOADS = "SELECT payload::text FROM samples WHERE id = ANY($1)"
_SAMPLE = "SELECT payload::text, conversation, turn, hop, day FROM samples WHERE id = $1 ORDER BY day LIMIT 1"
_EVALUATIONS = """
    SELECT metric, version, outcome, value, reason, detail, evidence::text, judge, seconds, cost_usd, rate, weight
    FROM evaluations WHERE sample_id = $1 AND day = $2 ORDER BY position
"""
_ADD_SUPPLEMENT = """
    INSERT INTO supplements (id, received_at, kind, value, app, says, payload)
    VALUES ($1, $2, $3, $4, $5, $6, $7::text::json)
    ON CONFLICT DO NOTHING
"""
_CONCERNED = {
    kind: f"""
        SELECT payload::text, id FROM samples WHERE {column} = $1 AND ($2::text IS NULL OR app = $2)
        ORDER BY started_at DESC LIMIT 100
    """  # noqa: S608 - constants
    for kind, column in (("exchange", "id"), ("key", "context_key"), ("trace", "trace_id"))
}
# Each term by itself is a place in the index: what other apps say under the same address is not read.
_ADDRESSED = " OR ".join(
    f"kind = '{kind}' AND value = ${place} AND {permitted}"
    for place, kind in enumerate(("exchange", "key", "trace"), 1)
    for permitted in ("app IS NULL", "app = $4")
)
_SUPPLEMENTS = f"""
    SELECT payload::text FROM supplements WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(octet_length(payload::text)) OVER (ORDER BY received_at, id) AS bytes FROM supplements
            WHERE {_ADDRESSED}
            ORDER BY received_at, id LIMIT 1000
        ) AS said WHERE bytes <= {MAX_HEARD_BYTES}
    ) ORDER BY received_at, id
"""  # noqa: S608 - put together from constants
_HOLDS = """
    SELECT id, (SELECT count(*) FROM evaluations WHERE sample_id = id AND evaluations.day = samples.day)
    FROM samples WHERE id = ANY($1::text[])
"""
_PRUNE_SUPPLEMENTS = "DELETE FROM supplements WHERE id IN (SELECT id FROM supplements WHERE received_at < $1 LIMIT $2)"
_PRUNE_BATCH = 1000
_NO_PARTITION = "23514"
"""SQLSTATE check_violation: what PostgreSQL says of a row for which there is no partition."""


class PostgresStore(SqlStore):
    """Store and StateStore in a PostgreSQL database, for any number of processes on any number of machines.

    A sample's identity is its id and the UTC day on which it started. An operation that cannot be done raises
    `EngineError`; a value that the database never takes raises `RefusedError`.
    """

    _queries = queries
    _CONVERSATION = queries.CONVERSATION
    _ADDRESSED_BY = queries.ADDRESSED_BY
    _SILENT = queries.SILENT
    _IDS = "SELECT DISTINCT id FROM samples WHERE id > $1 ORDER BY id LIMIT $2"
    _SAID = "SELECT id, payload::text FROM supplements WHERE id > $1 ORDER BY id LIMIT $2"

    def __init__(self, url: str, size: int = 8) -> None:
        self.url = url
        self.database = Database(url, size=size, replans=True)
        self._days = Days(self.database)
        self._sums = Sums(PostgresKept(self.database), clock=time.time)
        self._links = links.PostgresLinks(self.database)

    @classmethod
    def from_url(cls, url: str) -> PostgresStore:
        """Return the store in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        return await self._add(sample, evaluations, [])

    def settles(self, queue: object) -> bool:
        """Whether `queue` is in the same database."""
        return getattr(queue, "url", None) == self.url

    async def settle(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Do what `add` does, and remove the sample from the queue, in one transaction."""
        return await self._add(sample, evaluations, [plain(sample.id)])

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        async with self.database.transaction(reading=True) as connection:
            found = await connection.fetchrow(_SAMPLE, plain(sample_id))
            if found is None:
                return None
            stored = await connection.fetch(_EVALUATIONS, plain(sample_id), found["day"])
        samples = self._read(rows.placed_sample, [tuple(found)])
        return (samples[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)) if samples else None

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        addressed = {
            supplement.id: (supplement, address)
            for supplement in supplements
            if (address := address_of(supplement)) is not None
        }
        if not addressed:
            return []
        new = [
            (
                plain(supplement.id),
                float(supplement.received_at),
                at.kind,
                plain(at.value),
                _plain(supplement.app),
                ratings.is_rating(supplement),
                encoded(supplement).decode(),
            )
            for supplement, at in addressed.values()
        ]
        concerned: dict[str, Any] = {}
        async with self.database.transaction() as connection:
            await connection.executemany(_ADD_SUPPLEMENT, sorted(new, key=lambda row: str(row[0])))
            for (kind, value), app in dict.fromkeys(
                (address, supplement.app) for supplement, address in addressed.values()
            ):
                for row in await connection.fetch(_CONCERNED[kind], plain(value), _plain(app)):
                    concerned[row["id"]] = row
        return sorted(self._read(rows.sample, concerned.values()), key=lambda sample: (sample.started_at, sample.id))

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        names = map(_plain, (sample.id, sample.context_key, sample.trace_id, sample.app))
        async with self.database.connection() as connection:
            found = await connection.fetch(_SUPPLEMENTS, *names)
        return self._read(rows.supplement, found)

    async def series(self, query: Query) -> Sequence[Point]:
        if top_scores.indexed(query):
            return await top_scores.first(query, self._metrics, self._top, self._points)
        return await self._points(query)

    async def _points(self, query: Query, exactly: float | None = None) -> Sequence[Point]:
        return rows.points(await self._fetch(*queries.series(query, exactly)))

    async def _metrics(self, query: Query) -> Iterable[str]:
        return [row[0] for row in await self._fetch(*queries.metrics(query))]

    async def _top(self, query: Query) -> float | None:
        return next((row[0] for row in await self._fetch(*queries.top(query))), None)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return await self._sums.summary(query, by, self._summary)

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        return await self._sums.scored(query, self._scored)

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads:
        return await self._sums.spread(query, by, within_s, self._spread)

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        return await self._sums.outcomes(query, self._outcomes)

    async def _scored(self, query: Query) -> Sequence[ScoreSums]:
        return rows.scored(await self._fetch(*queries.scored(query)))

    async def _spread(self, query: Query, by: str) -> Sequence[ScoreHistogram]:
        return rows.spreads(await self._fetch(*queries.spread(query, by)), query.since, query.until)

    async def prune(self, before: float) -> int:
        """Drop the days that were over before `before`; make the next ones."""
        gone = _PRUNE_BATCH
        while gone == _PRUNE_BATCH:
            async with self.database.connection() as connection:
                gone = count_of(await connection.execute(_PRUNE_SUPPLEMENTS, before, _PRUNE_BATCH))
        await links.prune(self.database, max(before, time.time() - KEPT_S))
        async with self.database.connection() as connection:
            today = day_of(await connection.fetchval("SELECT extract(epoch FROM now())::float8"))
        await self._days.ensure(*range(today, today + AHEAD + 1))
        removed = await self._days.drop(before)
        await self._sums.ready(before, self._summary, self._scored, self._spread, self._outcomes)
        return removed

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await erase.forget(self.database, subject, dry_run=dry_run)

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        found = dict(await self._fetch(_HOLDS, [list(map(plain, sample_ids))]))
        return {sample_id: found[plain(sample_id)] for sample_id in sample_ids if plain(sample_id) in found}

    async def load(self) -> Mapping[str, bytes]:
        return dict(await self._fetch("SELECT name, value FROM states", []))

    async def save(self, states: Mapping[str, bytes]) -> None:
        if states:
            async with self.database.connection() as connection:
                await save(connection, states)

    async def aclose(self) -> None:
        await self._sums.aclose()
        await self.database.aclose()

    async def _add(
        self, sample: Sample, evaluations: Sequence[Evaluation], settled: Sequence[str]
    ) -> Sequence[Evaluation]:
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
        payload = encoded(sample).decode()
        day = day_of(sample.started_at)
        new = rows.new(evaluations, (), fills=False)
        keys = list(map(_plain, (sample.trace_id, sample.context_key)))
        place = (_plain(sample.conversation), sample.turn, sample.hop)
        for last_try in (False, True):
            await self._days.ensure(day)
            try:
                async with self.database.connection() as connection:
                    columns = (*_columns(sample, day, new), payload, *keys, settled)
                    if await connection.fetchval(_ADD_FRESH, *columns, *place):
                        return new
                return await self._add_more(sample, day, payload, evaluations, settled)
            except RefusedError as error:
                if last_try or getattr(error.__cause__, "sqlstate", None) != _NO_PARTITION:
                    raise
                self._days.forget()  # the day may have been dropped by another process
        raise AssertionError  # pragma: no cover - the loop returns or raises

    async def _add_more(
        self, sample: Sample, day: int, payload: str, evaluations: Sequence[Evaluation], settled: Sequence[str]
    ) -> Sequence[Evaluation]:
        """Add to a sample that is there already, which nobody else changes meanwhile."""
        key = plain(sample.id), day
        async with self.database.transaction() as connection:
            fills = False
            for old in self._read(rows.sample, await connection.fetch(_STORED, *key)):
                if fills := completes(sample, old):
                    await connection.execute(_REPLACE, *key, payload)
            new = rows.new(evaluations, await connection.fetch(_THERE, *key), fills=fills)
            if new:
                await connection.execute(_ADD, *_columns(sample, day, new))
            if settled:
                await remove(connection, settled)
        return new

    async def _summary(self, query: Query, by: str) -> Sequence[Summary]:
        return self._summaries(await self._fetch(*queries.summary(query, by)))

    async def _fetch(self, statement: str, values: Any) -> list[Any]:
        async with self.database.connection() as connection:
            found = await connection.fetch(statement, *map(_plain, values))
        return [tuple(row) for row in found]

    async def _fetch_each(self, *statements: tuple[str, Any]) -> list[list[Any]]:
        async with self.database.transaction(reading=True) as connection:
            found = [await connection.fetch(statement, *values) for statement, values in statements]
        return [[tuple(row) for row in some] for some in found]

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return await self._fetch(_PAYLOADS, [list(map(plain, sample_ids))])


def _columns(sample: Sample, day: int, evaluations: Sequence[Evaluation]) -> list[Any]:
    """The parameters of a statement that adds evaluations: what they share, then a list for each column."""
    shared = [plain(sample.id), day, float(sample.started_at), plain(sample.app), plain(sample.model)]
    prompt = None if sample.prompt is None else plain(sample.prompt)
    tags = encoded({plain(name): plain(value) for name, value in sample.tags.items()}).decode()
    found = []
    for evaluation in evaluations:
        _, metric, version, _, _, _, *outcome, _, _, _ = rows.row(sample, evaluation)
        found.append([plain(item) if isinstance(item, str) else item for item in (metric, version, *outcome)])
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(12)]
    return [*shared, prompt, _plain(sample.cluster), tags if sample.tags else None, *columns]


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value
