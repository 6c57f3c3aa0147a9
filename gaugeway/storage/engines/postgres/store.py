"""The store for many machines: samples, evaluations and states in a PostgreSQL database, a day to a partition."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S, MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.conditions import DAY_S, DayConditions, day_of
from gaugeway.storage.engines.failures import EngineError, RefusedError, encoded
from gaugeway.storage.engines.postgres.connection import Database, count_of, plain, plain_values, remove, save
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.engines.sql_store import COLUMNS, RollupStore, Row, RowSums, Statement
from gaugeway.storage.joining import Address, completes
from gaugeway.storage.stores import Point, Query, ratings, rows
from gaugeway.storage.stores.rollup_windows import HOUR_S, Span
from gaugeway.storage.stores.rows import field_text

if TYPE_CHECKING:
    from gaugeway.storage.engines.postgres.connection import Connection

AHEAD = 3
_TABLES = "evaluations", "samples"
_LOCK = 0x67776479  # "gwdy": one process at a time changes what partitions there are
# Waiting to change a table makes everybody else wait behind us, and after a second PostgreSQL looks for somebody to
# abort: rather try again.
_PATIENCE = "SET LOCAL lock_timeout = '800ms'"
_TRIES, _PAUSE_S = 5, 1.0
_FORGET_SUMS = "DELETE FROM sums WHERE start >= $1 AND start < $2"
_log = logging.getLogger("gaugeway")


class Days:
    """The days that this process knows to have partitions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[int] = set()
        self._changing = asyncio.Lock()

    async def ensure(self, *days: int) -> None:
        """Make the partitions of these days, where they are missing."""
        if self._known.issuperset(days):
            return
        async with self._changing, self._database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            there = await self._there(connection)
            for day in sorted(set(days) - there):
                await _make(connection, day)
            found = there | set(days)
        self._known = found

    def forget(self) -> None:
        """Another process dropped what this one thought was there."""
        self._known.clear()

    async def drop(self, before: float) -> int:
        """Drop the days that were over before `before`, with all samples in them; return how many samples."""
        async with self._database.connection() as connection:
            over = sorted(day for day in await self._there(connection) if (day + 1) * DAY_S <= before)
        removed = 0
        for day in over:
            for tries_left in reversed(range(_TRIES)):
                try:
                    removed += await self._drop(day)
                    break
                except EngineError:  # most likely somebody reads for long
                    if not tries_left:
                        raise
                    await asyncio.sleep(_PAUSE_S)
        return removed

    async def _drop(self, day: int) -> int:
        async with self._changing, self._database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if day not in await self._there(connection):
                return 0
            count = await connection.fetchval(f"SELECT count(*) FROM {_name('samples', day)}")  # noqa: S608 - a number
            await connection.execute(_PATIENCE)
            await connection.execute("LOCK TABLE ONLY evaluations, ONLY samples IN ACCESS EXCLUSIVE MODE")
            for table in _TABLES:
                await connection.execute(f"DROP TABLE {_name(table, day)}")
            await connection.execute(_FORGET_SUMS, int(day * DAY_S), int((day + 1) * DAY_S))
        self._known.discard(day)
        _log.info("store: dropped the %d samples of day %d", count, day)
        return int(count)

    async def _there(self, connection: Connection) -> set[int]:
        return {row["day"] for row in await connection.fetch(_SQL["days"])}


async def _make(connection: Connection, day: int) -> None:
    """Create the partition of a day detached and attach it: creating it in place would lock the table."""
    for table in _TABLES:
        name = _name(table, day)
        await connection.execute(
            f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, "
            f"CHECK (day = {day:d}))"
        )
        await connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({day:d})")


def _name(table: str, day: int) -> str:
    return f'"{table}_{day:d}"'


class PostgresConditions(DayConditions):
    """Parts with the placeholders $1, $2 ..."""

    sql = statements("postgres/store.sql")

    def placeholder(self, number: int, kind: str) -> str:  # noqa: ARG002 - types are ClickHouse's
        return f"${number}"

    def value(self, value: Any, kind: str = "String") -> str:
        return super().value(plain(value) if isinstance(value, str) else value, kind)

    def searched(self, text: str) -> str:
        return super().searched(encoded(text).decode()[1:-1])

    def retrieved(self, source: str) -> str:
        """Such a payload as `contains` cannot take apart is searched for the name as it is written there."""
        written = self.value(encoded(source).decode())
        return self.sql["retrieved"].format(name=self.value(source), written=written)

    def in_session(self, session: str) -> str:
        written = self.value(field_text("session", session))
        return self.sql["in_session"].format(name=self.value(session), written=written)


_SQL = PostgresConditions.sql
_LOOK_UP = _SQL["look_up"].format(most=MOST_CANDIDATES + 1)
_PRUNE_BATCH, _ERASE_BATCH = 5_000, 200
_NO_PARTITION = "23514"
"""SQLSTATE check_violation: what PostgreSQL says of a row for which there is no partition."""
_LOCKS = 1735878515
"""The locks of writers by hour, as in the migration that made the triggers."""


class PostgresStore(RollupStore):
    """Store and StateStore in a PostgreSQL database, for any number of processes on any number of machines.

    A sample's identity is its id and the UTC day on which it started. An operation that cannot be done raises
    `EngineError`; a value that the database never takes raises `RefusedError`. The links of an exchange are stored in a
    transaction of its own before the others are looked for: of two processes that store two exchanges of one
    conversation at the same moment, at least one then sees both.
    """

    conditions = PostgresConditions
    _before_samples = "", -(2**31)
    _before_supplements = ("",)

    def __init__(self, url: str, size: int = 8) -> None:
        self.url = url
        self.database = Database(url, size=size, replans=True)
        self._days = Days(self.database)
        self._adding_up(RowSums(PostgresConditions, self._fetch_each, self._complain))

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

    async def _add(
        self, sample: Sample, evaluations: Sequence[Evaluation], settled: Sequence[str]
    ) -> Sequence[Evaluation]:
        if any(evaluation.sample_id != sample.id for evaluation in evaluations):
            raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
        payload = encoded(sample).decode()
        day = day_of(sample.started_at)
        new = rows.new(evaluations, (), fills=False)
        keys = plain_values((sample.trace_id, sample.context_key))
        place = plain_values((sample.conversation, sample.turn, sample.hop))
        for last_try in (False, True):
            await self._days.ensure(day)
            try:
                async with self.database.connection() as connection:
                    columns = (*_columns(sample, day, new), payload, *keys, settled)
                    if await connection.fetchval(_SQL["add_fresh"], *columns, *place):
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
            for old in self._read(rows.sample, await connection.fetch(_SQL["stored_sample"], *key)):
                if fills := completes(sample, old):
                    await connection.execute(_SQL["replace_sample"], *key, payload)
            new = rows.new(evaluations, await connection.fetch(_SQL["outcomes_of_sample"], *key), fills=fills)
            if new:
                await connection.execute(_SQL["add_evaluations"], *_columns(sample, day, new))
            if settled:
                await remove(connection, settled)
        return new

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        async with self.database.transaction(reading=True) as connection:
            if (found := await connection.fetchrow(_SQL["sample"], plain(sample_id))) is None:
                return None
            stored = await connection.fetch(_SQL["evaluations"], plain(sample_id), found["day"])
        samples = self._read(rows.placed_sample, [tuple(found)])
        return (samples[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)) if samples else None

    async def _supplement(self, addressed: Sequence[tuple[Supplement, Address]]) -> Iterable[Row]:
        new = [
            plain_values(
                (
                    supplement.id,
                    float(supplement.received_at),
                    *address,
                    supplement.app,
                    ratings.is_rating(supplement),
                    encoded(supplement).decode(),
                )
            )
            for supplement, address in addressed
        ]
        concerned: dict[str, Any] = {}
        async with self.database.transaction() as connection:
            await connection.executemany(_SQL["add_supplement"], sorted(new, key=lambda row: str(row[0])))
            for (kind, value), app in dict.fromkeys((address, supplement.app) for supplement, address in addressed):
                statement = _SQL["concerned"].format(column=COLUMNS[kind])
                for row in await connection.fetch(statement, *plain_values((value, app))):
                    concerned[row["id"]] = row
        return concerned.values()

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        names = (sample.id, sample.context_key, sample.trace_id, sample.app)
        return self._read(rows.supplement, await self._fetch(_SQL["supplements"], (*names, MAX_HEARD_BYTES)))

    async def _points(self, query: Query) -> Sequence[Point]:
        return await self._indexed_points(query, None)

    async def _indexed_points(self, query: Query, exactly: float | None) -> Sequence[Point]:
        return rows.points(await self._fetch(*PostgresConditions(query, exactly=exactly).statement("points")))

    async def _metrics(self, query: Query) -> Iterable[str]:
        return [row[0] for row in await self._fetch(*PostgresConditions(query).statement("metrics"))]

    async def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        async with self.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(statement, *plain_values(values))]

    async def _fetch_each(self, statements: Sequence[Statement]) -> list[list[Any]]:
        if len(statements) == 1:
            return [await self._fetch(*statements[0])]
        async with self.database.transaction(reading=True) as connection:
            found = [await connection.fetch(statement, *values) for statement, values in statements]
        return [[tuple(row) for row in some] for some in found]

    async def _change(self, statement: str, values: Sequence[Any]) -> int:
        async with self.database.connection() as connection:
            return count_of(await connection.execute(statement, *values))

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return await self._fetch(_SQL["payloads"], [plain_values(sample_ids)])

    async def _link(self, some: Sequence[Linked]) -> Iterable[Row]:
        """Store links in one order, so that two who store the same do not deadlock."""
        ordered = sorted(some, key=lambda exchange: exchange.id)
        links = [
            (exchange.id, exchange.started_at, exchange.place.before, encoded(exchange).decode())
            for exchange in ordered
        ]
        keys = sorted(
            (plain(exchange.app), plain(key), exchange.started_at, plain(exchange.id))
            for exchange in some
            for key in keys_of(exchange)
        )
        added = await self._fetch(_SQL["add_links"], [*_by_column(links, 4), *_by_column(keys, 4)])
        return () if len(added) == len(links) else await self._links_of([link[0] for link in links])

    async def _links_of(self, sample_ids: Sequence[str]) -> Iterable[Row]:
        return await self._fetch(_SQL["links"], [plain_values(sample_ids)])

    async def _look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        return await self._fetch(_LOOK_UP, _by_column(wanted, 4))

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        missed = []
        async with self.database.transaction() as connection:
            for exchange, expected in sorted(moves, key=lambda move: move.one.id):
                place = exchange.place
                link = (exchange.id, place.before, encoded(exchange).decode(), expected)
                if not count_of(await connection.execute(_SQL["move_link"], *plain_values(link))):
                    missed.append(exchange.id)
                    continue
                key = (plain(exchange.id), day_of(exchange.started_at))
                await connection.execute(
                    _SQL["move_sample"], *key, *plain_values((place.conversation, place.turn, place.hop))
                )
                if exchange.named:
                    await connection.execute(_SQL["move_evaluations"], *key, *plain_values((cluster_with(exchange),)))
        return missed

    async def prune(self, before: float) -> int:
        """Drop the days that were over before `before`; make the next ones."""
        unlinked = max(before, time.time() - KEPT_S)
        for table, since in (("supplements", before), ("links", unlinked), ("link_keys", unlinked)):
            gone = _PRUNE_BATCH
            while gone == _PRUNE_BATCH:
                gone = await self._change(_SQL[f"prune_{table}"], (since, _PRUNE_BATCH))
        ((now,),) = await self._fetch(_SQL["today"])
        today = day_of(now)
        await self._days.ensure(*range(today, today + AHEAD + 1))
        removed = await self._days.drop(before)
        await self._sums.ready(before, self._rows)
        return removed

    async def _erase(self, samples: Sequence[Row], supplement_ids: Sequence[str], *, dry_run: bool) -> int:
        """Delete a batch at a time, so that no lock lasts."""
        if not dry_run:
            for start in range(0, len(supplement_ids), _ERASE_BATCH):
                await self._change(_SQL["delete_supplements"], [supplement_ids[start : start + _ERASE_BATCH]])
        evaluations = 0
        for start in range(0, len(samples), _ERASE_BATCH):
            these = _by_column([row[:2] for row in samples[start : start + _ERASE_BATCH]], 2)
            async with self.database.transaction() as connection:
                evaluations += await connection.fetchval(_SQL["count_evaluations"], *these)
                if not dry_run:
                    await connection.execute(_SQL["delete_evaluations"], *these)
                    await connection.execute(_SQL["delete_links"], these[0])
                    await connection.execute(_SQL["delete_samples"], *these)
        return evaluations

    @staticmethod
    def _stored(text: str) -> str:
        return plain(text)

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        found = dict(await self._fetch(_SQL["holds"], [plain_values(sample_ids)]))
        return {sample_id: found[plain(sample_id)] for sample_id in sample_ids if plain(sample_id) in found}

    async def save(self, states: Mapping[str, bytes]) -> None:
        if states:
            async with self.database.connection() as connection:
                await save(connection, states)

    async def announce_sums(self, span: Span, kind: str, mark: str) -> None:
        """Wait for those who write into the span; who comes later finds the mark and removes it."""
        hours = [int(since) // HOUR_S % 1_000_000_000 for since, _ in span.hours]
        async with self.database.transaction() as connection:
            await connection.execute(_SQL["wait_for_writers"], _LOCKS, hours)
            await connection.execute(_SQL["announce_sums"], *span, kind, mark)

    async def aclose(self) -> None:
        await self._sums.aclose()
        await self.database.aclose()


def _columns(sample: Sample, day: int, evaluations: Sequence[Evaluation]) -> list[Any]:
    """The parameters of a statement that adds evaluations: what they share, then a list for each column."""
    shared = plain_values((sample.id, day, float(sample.started_at), sample.app, sample.model))
    tags = encoded({plain(name): plain(value) for name, value in sample.tags.items()}).decode()
    found = []
    for evaluation in evaluations:
        _, metric, version, _, _, _, *outcome, _, _, _ = rows.row(sample, evaluation)
        found.append((metric, version, *outcome))
    about = plain_values((sample.prompt, sample.cluster))
    return [*shared, *about, tags if sample.tags else None, *_by_column(found, 12)]


def _by_column(table: Sequence[Row], width: int) -> list[list[Any]]:
    """A list for each of the columns."""
    return [plain_values(column) for column in zip(*table, strict=True)] or [[] for _ in range(width)]
