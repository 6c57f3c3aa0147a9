"""The embedded store: samples, evaluations and states in one SQLite file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from monitors.records import Evaluation, Failed, Outcome, Sample, Score, Skipped
from monitors.sqlite import Database, Schema, path_from_url
from monitors.stores import Point, Query, Summary

T = TypeVar("T")
_log = logging.getLogger("gaugeway")

SCHEMA = Schema(
    kind="store",
    application_id=0x67777374,  # "gwst"
    migrations=(
        """
        CREATE TABLE samples (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            app TEXT NOT NULL,
            model TEXT NOT NULL,
            payload TEXT NOT NULL
        );
        CREATE INDEX samples_started_at ON samples (started_at);
        CREATE TABLE evaluations (
            sample_id TEXT NOT NULL,
            metric TEXT NOT NULL,
            version TEXT NOT NULL,
            started_at REAL NOT NULL,
            app TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            value REAL,
            reason TEXT NOT NULL,
            detail TEXT NOT NULL,
            evidence TEXT NOT NULL,
            judge TEXT,
            seconds REAL NOT NULL,
            cost_usd REAL NOT NULL,
            rate REAL NOT NULL,
            PRIMARY KEY (sample_id, metric, version)
        );
        CREATE INDEX evaluations_metric ON evaluations (metric, started_at);
        CREATE INDEX evaluations_app ON evaluations (app, metric, started_at);
        CREATE INDEX evaluations_started_at ON evaluations (started_at);
        CREATE TABLE states (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        """,
    ),
)

_ADD_SAMPLE = "INSERT OR IGNORE INTO samples (id, started_at, app, model, payload) VALUES (?, ?, ?, ?, ?)"
_ADD_EVALUATION = """
    INSERT OR IGNORE INTO evaluations (
        sample_id, metric, version, started_at, app, model,
        outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_EVALUATIONS = """
    SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate
    FROM evaluations WHERE sample_id = ? ORDER BY rowid
"""
_POINTS = "SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate FROM evaluations"
# A numpy number that slips through becomes a BLOB: such a row is no point, and must not take a place in a page of them.
_READABLE = "typeof(rate) = 'real' AND (outcome <> 'score' OR typeof(value) = 'real')"
# There are few rates, so that their weights can be worked out here: that takes SQLite four times as long.
_SUMMARY = """
    SELECT app, metric, outcome, rate, count(*), count(*) FILTER (WHERE typeof(value) = 'real'),
        total(value) FILTER (WHERE typeof(value) = 'real'), total(value * value) FILTER (WHERE typeof(value) = 'real')
    FROM evaluations WHERE {conditions} GROUP BY app, metric, outcome, rate
"""
_ORDERS = {
    "oldest": "ORDER BY started_at, rowid",
    "newest": "ORDER BY started_at DESC, rowid DESC",
    "lowest": "ORDER BY value, started_at, rowid",
    "highest": "ORDER BY value DESC, started_at, rowid",
}
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
_PRUNE_BATCH = 500
_LEAST_RATE = 1e-100
_SAVE = "INSERT INTO states (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class SQLiteStore:
    """Store and Ledger on one SQLite file; reading has a connection of its own and never waits for a writer.

    An operation that cannot get at the file within `busy_timeout_s`, or at all, raises `sqlite3.Error` or `OSError`;
    a file written by a newer release raises `monitors.sqlite.SchemaError`, which is a `sqlite3.Error`.
    """

    def __init__(self, path: str | Path, busy_timeout_s: float = 5.0) -> None:
        self._writer = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)
        self._reader = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)
        self._complained = False

    @classmethod
    def from_url(cls, url: str) -> SQLiteStore:
        """Return the store in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url))

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise ValueError(f"an evaluation belongs to another sample than {sample.id!r}")
        payload = msgspec.json.encode(sample).decode()
        async with self._writer.writing() as connection:
            await connection.execute(_ADD_SAMPLE, (sample.id, sample.started_at, sample.app, sample.model, payload))
            there = await connection.execute_fetchall(
                "SELECT metric, version FROM evaluations WHERE sample_id = ?", (sample.id,)
            )
            new = _unseen(evaluations, {(metric, version) for metric, version in there})
            await connection.executemany(_ADD_EVALUATION, [_row(sample, evaluation) for evaluation in new])
        return new

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        async with self._reader.reading() as connection:
            payloads = list(await connection.execute_fetchall("SELECT payload FROM samples WHERE id = ?", (sample_id,)))
            rows = await connection.execute_fetchall(_EVALUATIONS, (sample_id,))
        found = self._read(lambda row: msgspec.json.decode(row[0], type=Sample), payloads)
        if not found:
            return None
        return found[0], self._read(lambda row: _evaluation(sample_id, row), rows)

    async def series(self, query: Query) -> Sequence[Point]:
        conditions, parameters = _where(query)
        conditions += f" AND {_READABLE}"
        if query.order in ("lowest", "highest"):
            conditions += " AND outcome = 'score'"
        limit = -1 if query.limit is None else max(query.limit, 0)
        statement = " ".join([_POINTS, "WHERE", conditions, _ORDERS[query.order], "LIMIT :limit"])
        async with self._reader.reading() as connection:
            rows = await connection.execute_fetchall(statement, {**parameters, "limit": limit})
        return [_point(row) for row in rows]

    async def summary(self, query: Query) -> Sequence[Summary]:
        conditions, parameters = _where(query)
        async with self._reader.reading() as connection:
            rows = await connection.execute_fetchall(_SUMMARY.format(conditions=conditions), parameters)
        summaries: dict[tuple[str, str], _Sums] = {}
        unreadable = 0
        for app, metric, *group in rows:
            unreadable += summaries.setdefault((app, metric), _Sums()).add(group)
        if unreadable:
            self._complain(f"{unreadable} evaluations hold no number")
        return [sums.summary(app, metric) for (app, metric), sums in summaries.items()]

    async def prune(self, before: float) -> int:
        parameters = {"before": before, "limit": _PRUNE_BATCH}
        total = 0
        while True:
            async with self._writer.writing() as connection:
                await connection.execute(_PRUNE_EVALUATIONS, parameters)
                removed = (await connection.execute(_PRUNE_SAMPLES, parameters)).rowcount
            total += removed
            if removed < _PRUNE_BATCH:
                return total

    async def load(self) -> Mapping[str, bytes]:
        async with self._reader.reading() as connection:
            rows = await connection.execute_fetchall("SELECT name, value FROM states")
        return {row[0]: row[1] for row in rows}

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

    def _read(self, read: Callable[[Any], T], rows: Iterable[Any]) -> list[T]:
        """Read every row that can be read."""
        readable: list[T] = []
        for row in rows:
            try:
                readable.append(read(row))
            except (TypeError, ValueError, msgspec.DecodeError) as error:
                self._complain(f"{type(error).__name__}: {error}")
        return readable

    def _complain(self, problem: str) -> None:
        """Say once that rows are left out: they stay until they are pruned, and are met at every reading."""
        if not self._complained:
            _log.warning("the store leaves out what it cannot read: %s", problem)
        self._complained = True


class _Sums:
    """Adds up the groups of equal outcome and rate that make one summary."""

    def __init__(self) -> None:
        self._n = self._failed = 0
        self._sums = [0.0] * 5

    def add(self, group: Sequence[Any]) -> int:
        """Take in `rows` rows, `n` of them with values whose sum is `x`; return how many of them cannot be read."""
        outcome, rate, rows, n, x, x2 = group
        if not isinstance(rate, float) or not _LEAST_RATE <= rate <= 1.0:
            return int(rows)
        self._failed += rows if outcome == "failed" else 0
        if outcome != "score":
            return 0
        weight = 1.0 / rate
        self._n += n
        terms = (weight * n, weight * x, weight**2 * n, weight**2 * x, weight**2 * x2)
        self._sums = [total + term for total, term in zip(self._sums, terms, strict=True)]
        return int(rows - n)

    def summary(self, app: str, metric: str) -> Summary:
        w, wx, w2, w2x, w2x2 = self._sums
        return Summary(app=app, metric=metric, n=self._n, failed=self._failed, w=w, wx=wx, w2=w2, w2x=w2x, w2x2=w2x2)


def _where(query: Query) -> tuple[str, dict[str, Any]]:
    """The conditions of a query in SQL, and their parameters."""
    conditions = ["started_at >= :since", "started_at < :until"]
    if query.metric is not None:
        conditions.append("metric = :metric")
    if query.app is not None:
        conditions.append("app = :app")
    parameters = {"since": query.since, "until": query.until, "metric": query.metric, "app": query.app}
    return " AND ".join(conditions), parameters


def _unseen(evaluations: Iterable[Evaluation], seen: set[tuple[str, str]]) -> list[Evaluation]:
    """Return the evaluations whose (metric, version) is not in `seen`, and of equal ones the first."""
    unseen = []
    for evaluation in evaluations:
        identity = (evaluation.metric, evaluation.version)
        if identity not in seen:
            seen.add(identity)
            unseen.append(evaluation)
    return unseen


def _row(sample: Sample, evaluation: Evaluation) -> tuple[Any, ...]:
    """Flatten one evaluation. `reason` is a word from a closed set, `detail` is text for people."""
    value: float | None = None
    reason = detail = ""
    evidence: tuple[dict[str, Any], ...] = ()
    match evaluation.outcome:
        case Score():
            kind, value, detail = "score", float(evaluation.outcome.value), evaluation.outcome.reason
            evidence = evaluation.outcome.evidence
        case Skipped():
            kind, reason = "skipped", evaluation.outcome.reason
        case Failed():
            kind, reason, detail = "failed", evaluation.outcome.error, evaluation.outcome.detail
    return (
        sample.id,
        evaluation.metric,
        evaluation.version,
        sample.started_at,
        sample.app,
        sample.model,
        kind,
        value,
        reason,
        detail,
        msgspec.json.encode(evidence).decode(),
        evaluation.judge,
        float(evaluation.seconds),
        float(evaluation.cost_usd),
        float(evaluation.rate),
    )


def _evaluation(sample_id: str, row: Sequence[Any]) -> Evaluation:
    """Put one evaluation together again."""
    metric, version, kind, value, reason, detail, evidence, judge, seconds, cost_usd, rate = row
    outcome: Outcome
    if kind == "score":
        outcome = Score(value, detail, msgspec.json.decode(evidence, type=tuple[dict[str, Any], ...]))
    elif kind == "skipped":
        outcome = Skipped(reason)
    else:
        outcome = Failed(reason, detail)
    return Evaluation(
        sample_id=sample_id,
        metric=metric,
        version=version,
        outcome=outcome,
        judge=judge,
        seconds=seconds,
        cost_usd=cost_usd,
        rate=rate,
    )


def _point(row: Sequence[Any]) -> Point:
    sample_id, started_at, app, model, metric, outcome, value, reason, rate = row
    return Point(
        sample_id=sample_id,
        started_at=started_at,
        app=app,
        model=model,
        metric=metric,
        outcome=outcome,
        value=value,
        reason=reason,
        rate=rate,
    )
