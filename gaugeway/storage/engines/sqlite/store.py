"""Store in one SQLite file: samples, evaluations, supplements and states."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.engines.sql_store import SqlStore, Values, named
from gaugeway.storage.engines.sqlite import erase, links, queries, signal_rows
from gaugeway.storage.engines.sqlite.connection import Database, path_from_url
from gaugeway.storage.engines.sqlite.rollups import SQLiteKept
from gaugeway.storage.engines.sqlite.schema import STORE
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
    rows,
    top_scores,
)
from gaugeway.storage.stores.rollups import Sums

T = TypeVar("T")
_log = logging.getLogger("gaugeway")

_COUNTER_KIB = 256
"""What adds up beforehand reads each row once: a small cache does."""
_ADD_SAMPLE = """
    INSERT OR IGNORE INTO samples (
        id, started_at, app, model, payload, trace_id, context_key, conversation, turn, hop
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_EVALUATION = """
    INSERT INTO evaluations (
        sample_id, metric, version, started_at, app, model,
        outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight, prompt, cluster, tags
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (sample_id, metric, version) DO UPDATE SET
        outcome = excluded.outcome, value = excluded.value, reason = excluded.reason, detail = excluded.detail,
        evidence = excluded.evidence, judge = excluded.judge, seconds = excluded.seconds,
        cost_usd = excluded.cost_usd, rate = excluded.rate, weight = excluded.weight
    WHERE evaluations.outcome = 'skipped' AND excluded.outcome <> 'skipped'
"""
_ADD_SUPPLEMENT = """
    INSERT OR IGNORE INTO supplements (id, received_at, kind, value, app, payload) VALUES (?, ?, ?, ?, ?, ?)
"""
_CONCERNED = {
    kind: f"""
        SELECT payload, id FROM samples WHERE {column} = ?1 AND (?2 IS NULL OR app = ?2)
        ORDER BY started_at DESC LIMIT 100
    """  # noqa: S608 - constants
    for kind, column in (("exchange", "id"), ("key", "context_key"), ("trace", "trace_id"))
}
# Each term by itself is a place in the index: what other apps say under the same address is not read.
_ADDRESSED = " OR ".join(
    f"kind = '{kind}' AND value = ?{place} AND {permitted}"
    for place, kind in enumerate(("exchange", "key", "trace"), 1)
    for permitted in ("app IS NULL", "app = ?4")
)
_SUPPLEMENTS = f"""
    SELECT payload FROM supplements WHERE rowid IN (
        SELECT position FROM (
            SELECT rowid AS position, sum(length(payload)) OVER (ORDER BY received_at, id) AS bytes FROM supplements
            WHERE {_ADDRESSED}
            ORDER BY received_at, id LIMIT 1000
        ) WHERE bytes <= {MAX_HEARD_BYTES}
    ) ORDER BY received_at, id
"""  # noqa: S608 - put together from constants
_ANY_SUPPLEMENT = "SELECT 1 FROM supplements LIMIT 1"
_SAMPLE = "SELECT payload, conversation, turn, hop FROM samples WHERE id = ?"
_PAYLOADS = "SELECT payload FROM samples WHERE id IN (SELECT value FROM json_each(:v1))"
_EVALUATIONS = """
    SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight
    FROM evaluations WHERE sample_id = ? ORDER BY rowid
"""
_OUTCOMES = "SELECT metric, version, outcome FROM evaluations WHERE sample_id = ?"
_METRICS = """
    WITH RECURSIVE known (metric) AS (
        SELECT min(metric) FROM evaluations
        UNION ALL SELECT (SELECT min(metric) FROM evaluations WHERE metric > known.metric) FROM known
        WHERE known.metric IS NOT NULL
    )
    SELECT metric FROM known WHERE metric IS NOT NULL
"""
_PRUNE_SCORES = tuple(
    f"""
        DELETE FROM {table} WHERE {key} IN (
            SELECT {same} FROM samples WHERE started_at < :before ORDER BY started_at, id LIMIT :limit
        )
    """  # noqa: S608 - constants
    for table, key, same in (
        ("evaluations", "sample_id", "id"),
        ("signals", "(started_at, sample_id)", "started_at, id"),
    )
)
_PRUNE_SAMPLES = """
    DELETE FROM samples WHERE id IN (
        SELECT id FROM samples WHERE started_at < :before ORDER BY started_at, id LIMIT :limit
    )
"""
_PRUNE_SUPPLEMENTS = """
    DELETE FROM supplements WHERE rowid IN (SELECT rowid FROM supplements WHERE received_at < :before LIMIT :limit)
"""
_PRUNE_BATCH = 200
_HOLDS = f"""
    SELECT id, (SELECT count(*) FROM evaluations WHERE sample_id = id) + (
        SELECT {signal_rows.COUNT} FROM signals WHERE sample_id = id AND signals.started_at = samples.started_at
    )
    FROM samples WHERE id IN (SELECT value FROM json_each(?))
"""  # noqa: S608 - constants
_KEYS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "oldest": lambda row: row[1],
    "newest": lambda row: -row[1],
    "lowest": lambda row: (row[6], row[1]),
    "highest": lambda row: (-row[6], row[1]),
}
"""The orders of points, by the places of `started_at` and `value`."""
_SAVE = "INSERT INTO states (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class SQLiteStore(SqlStore):
    """Store and StateStore on one SQLite file; reading has a connection of its own and never waits for a writer.

    An operation that cannot use the file within `busy_timeout_s` raises `EngineError`; for a file that a newer release
    wrote it is a `SchemaError`.
    """

    _queries = queries
    _CONVERSATION = queries.CONVERSATION
    _ADDRESSED_BY = queries.ADDRESSED_BY
    _SILENT = queries.SILENT
    _IDS = "SELECT id FROM samples WHERE id > :v1 ORDER BY id LIMIT :v2"
    _SAID = "SELECT id, payload FROM supplements WHERE id > :v1 ORDER BY id LIMIT :v2"

    def __init__(self, path: str | Path, busy_timeout_s: float = 5.0) -> None:
        self._writer = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s, undo_in_memory=True)
        self._reader = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s)
        # what is added up beforehand, for minutes after an upgrade, does not make a page wait
        self._counter = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s, cache_kib=_COUNTER_KIB)
        self._sums = Sums(SQLiteKept(self._writer, self._reader), clock=time.time)
        self._links = links.SQLiteLinks(self._writer, self._reader)

    @classmethod
    def from_url(cls, url: str) -> SQLiteStore:
        """Return the store in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url))

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        return await self._writer.write(self._adding(sample, evaluations))

    async def add_each(
        self, some: Sequence[tuple[Sample, Sequence[Evaluation]]]
    ) -> Sequence[Sequence[Evaluation] | Exception]:
        found: dict[int, Sequence[Evaluation] | Exception] = {}
        works = {}
        for place, pair in enumerate(some):
            try:
                works[place] = self._adding(*pair)
            except RefusedError as error:
                found[place] = error
        found |= zip(works, await self._writer.write_each(list(works.values())), strict=True)
        return [found[place] for place in range(len(some))]

    def _adding(
        self, sample: Sample, evaluations: Sequence[Evaluation]
    ) -> Callable[[Connection], Sequence[Evaluation]]:
        """Return what adds a sample in a transaction. Raises RefusedError for a value that is none of JSON."""
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
        payload = encoded(sample).decode()
        place = (sample.conversation, sample.turn, sample.hop)
        keys = (sample.trace_id, sample.context_key)
        row = (sample.id, sample.started_at, sample.app, sample.model, payload, *keys, *place)

        def add(connection: Connection) -> Sequence[Evaluation]:
            fresh = connection.execute(_ADD_SAMPLE, row).rowcount > 0
            fills = not fresh and self._complete(connection, sample, payload)
            there = [] if fresh else _outcomes(connection, sample.id)
            new = rows.new(evaluations, there, fills=fills)
            known = {(metric, version) for metric, version, _ in there}
            others = signal_rows.add(connection, sample, new, known, fresh=fresh)
            connection.executemany(_ADD_EVALUATION, [rows.row(sample, evaluation) for evaluation in others])
            return new

        return add

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        def read(connection: Connection) -> tuple[list[Any], list[Any]]:
            payloads = connection.execute(_SAMPLE, (sample_id,)).fetchall()
            evaluations = connection.execute(_EVALUATIONS, (sample_id,)).fetchall()
            return payloads, evaluations + signal_rows.rows(connection, sample_id)

        payloads, stored = await self._reader.read(read)
        found = self._read(rows.placed_sample, payloads)
        if not found:
            return None
        return found[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        wanted = {"v1": encoded(list(sample_ids)).decode()}

        def read(connection: Connection) -> Mapping[str, str]:  # one payload at a time: they hold whole exchanges
            return rows.questions(row[0] for row in connection.execute(_PAYLOADS, wanted))

        return await self._reader.read(read)

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        addressed = {
            supplement.id: (supplement, address)
            for supplement in supplements
            if (address := address_of(supplement)) is not None
        }
        if not addressed:
            return []
        new = [
            (supplement.id, supplement.received_at, *address, supplement.app, encoded(supplement).decode())
            for supplement, address in addressed.values()
        ]

        def add(connection: Connection) -> Iterable[Any]:
            concerned: dict[str, Any] = {}
            connection.executemany(_ADD_SUPPLEMENT, new)
            for (kind, value), app in dict.fromkeys(
                (address, supplement.app) for supplement, address in addressed.values()
            ):
                for row in connection.execute(_CONCERNED[kind], (value, app)):
                    concerned[row[1]] = row
            return concerned.values()

        concerned = await self._writer.write(add)
        return sorted(self._read(rows.sample, concerned), key=lambda sample: (sample.started_at, sample.id))

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        named = (sample.id, sample.context_key, sample.trace_id, sample.app)
        return self._read(rows.supplement, await self._reader.fetch(_SUPPLEMENTS, named, short=True))

    async def supplements_of_each(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]]:
        names = [(sample.id, sample.context_key, sample.trace_id, sample.app) for sample in samples]

        def read(connection: Connection) -> list[list[Any]]:
            if connection.execute(_ANY_SUPPLEMENT).fetchone() is None:
                return [[] for _ in names]
            return [connection.execute(_SUPPLEMENTS, named).fetchall() for named in names]

        return [self._read(rows.supplement, found) for found in await self._reader.read(read, short=True)]

    async def series(self, query: Query) -> Sequence[Point]:
        if top_scores.indexed(query):
            return await top_scores.first(query, self._metrics, self._top, self._indexed_points)
        return await self._points(query)

    async def _points(self, query: Query, index: str | None = None, exactly: float | None = None) -> Sequence[Point]:
        first, others = queries.points(query, index, exactly)
        most = None if query.limit is None else max(query.limit, 0)

        def read(connection: Connection) -> list[Point]:  # in the reader's thread: a busy app has many
            evaluations = connection.execute(*first)
            if not others:
                return rows.points(islice(evaluations, most))
            signals = islice(chain.from_iterable(connection.execute(*statement) for statement in others), most)
            return rows.points(islice(heapq.merge(evaluations, signals, key=_KEYS[query.order]), most))

        return await self._reader.read(read)

    async def _indexed_points(self, query: Query, exactly: float | None) -> Sequence[Point]:
        return await self._points(query, queries.VALUE_INDEX, exactly)

    async def _metrics(self, _: Query) -> Iterable[str]:
        return dict.fromkeys([*(row[0] for row in await self._reader.fetch(_METRICS, {})), *signal_rows.NAMES])

    async def _top(self, query: Query) -> float | None:
        if query.metric in signal_rows.NAMES:
            return None  # `points` reads no more values of a signal than it must
        return next((row[0] for row in await self._reader.fetch(*queries.top(query))), None)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return await self._sums.summary(query, by, self._summary)

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        return await self._sums.scored(query, self._scored)

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads:
        return await self._sums.spread(query, by, within_s, self._spread)

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        return await self._sums.outcomes(query, self._outcomes)

    async def _summary(self, query: Query, by: str) -> Sequence[Summary]:
        names = queries.signal_sums(query)
        statements = [queries.summary(query, by), *([queries.signal_summary(query, by)] if names else [])]
        groups, *signals = await self._fetch_each(*statements)
        return self._summaries([*groups, *(group for found in signals for group in signal_rows.groups(names, found))])

    async def _scored(self, query: Query) -> Sequence[ScoreSums]:
        return rows.scored(await self._fetch(*queries.scored(query)))

    async def _spread(self, query: Query, by: str) -> Sequence[ScoreHistogram]:
        return rows.spreads(await self._fetch(*queries.spread(query, by)), query.since, query.until)

    def _beside(self) -> tuple[Any, ...]:
        """Return what adds up rows, on the connection that does not make a page wait."""
        beside = copy(self)
        beside._reader = self._counter  # noqa: SLF001 - itself
        return beside._summary, beside._scored, beside._spread, beside._outcomes  # noqa: SLF001 - itself

    async def _fetch(self, statement: str, values: Values) -> list[Any]:
        return await self._reader.fetch(statement, named(values))

    async def _fetch_each(self, *statements: tuple[str, Values]) -> list[list[Any]]:
        def read(connection: Connection) -> list[list[Any]]:
            return [connection.execute(statement, named(values)).fetchall() for statement, values in statements]

        return await self._reader.read(read)

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return await self._fetch(_PAYLOADS, (encoded(list(sample_ids)).decode(),))

    async def prune(self, before: float) -> int:
        """Delete a batch at a time, so that those who write wait a moment only; then add up the hours that are over."""
        parameters = {"before": before, "limit": _PRUNE_BATCH}
        total = 0
        removed = gone = _PRUNE_BATCH
        unlinked = max(before, time.time() - KEPT_S)
        more = True

        def remove(connection: Connection) -> tuple[bool, int, int]:
            more = links.prune(connection, unlinked, _PRUNE_BATCH)
            for statement in _PRUNE_SCORES:
                connection.execute(statement, parameters)
            removed = connection.execute(_PRUNE_SAMPLES, parameters).rowcount
            return more, removed, connection.execute(_PRUNE_SUPPLEMENTS, parameters).rowcount

        while more or _PRUNE_BATCH in (removed, gone):
            more, removed, gone = await self._writer.write(remove)
            total += removed
        await self._sums.ready(before, *self._beside())
        return total

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await erase.forget(self._writer, subject, dry_run=dry_run)

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        found = await self._reader.fetch(_HOLDS, (encoded(list(sample_ids)).decode(),))
        return {row[0]: row[1] for row in found}

    async def load(self) -> Mapping[str, bytes]:
        return {row[0]: row[1] for row in await self._reader.fetch("SELECT name, value FROM states")}

    async def save(self, states: Mapping[str, bytes]) -> None:
        if not states:
            return
        some = list(states.items())
        await self._writer.write(lambda connection: connection.executemany(_SAVE, some))

    async def aclose(self) -> None:
        await self._sums.aclose()
        try:
            await self._counter.aclose()
            await self._reader.aclose()
        finally:
            await self._writer.aclose()

    def _complete(self, connection: Connection, sample: Sample, payload: str) -> bool:
        """Whether a sample that is there already may fill gaps: it is the stored one, or now takes its place."""
        stored = connection.execute("SELECT payload FROM samples WHERE id = ?", (sample.id,)).fetchall()
        for old in self._read(rows.sample, stored):
            if completes(sample, old):
                connection.execute("UPDATE samples SET payload = ? WHERE id = ?", (payload, sample.id))
                return True
        return False


def _outcomes(connection: Connection, sample_id: str) -> list[tuple[str, str, str]]:
    """Metric, version and outcome of all that a sample has."""
    return [*connection.execute(_OUTCOMES, (sample_id,)), *signal_rows.outcomes(connection, sample_id)]
