"""Store in one SQLite file: samples, evaluations, supplements, links, sums and states."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S, MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.engines.sql_store import COLUMNS, RollupStore, Row, RowSums, Statement
from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.engines.sqlite.conditions import VALUE_INDEX, SQLiteConditions, signal_summary, summed_signals
from gaugeway.storage.engines.sqlite.connection import STORE, Database, path_from_url
from gaugeway.storage.joining import Address, completes
from gaugeway.storage.stores import Point, Query, Summary, rows

_COUNTER_KIB = 256
"""What adds up beforehand reads each row once: a small cache does."""
_SQL = SQLiteConditions.sql
_LOOK_UP = _SQL["look_up"].format(most=MOST_CANDIDATES + 1)
_HOLDS, _COUNT = (_SQL[name].format(count_of_signals=signal_rows.COUNT) for name in ("holds", "count_evaluations"))
_PRUNE_BATCH, _ERASE_BATCH = 200, 500
_KEYS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "oldest": lambda row: row[1],
    "newest": lambda row: -row[1],
    "lowest": lambda row: (row[6], row[1]),
    "highest": lambda row: (-row[6], row[1]),
}
"""The orders of points, by the places of `started_at` and `value`."""


class SQLiteSums(RowSums):
    """Adds up the rows of both tables of scores."""

    def __init__(self, database: Database, complain: Callable[[str], None]) -> None:
        super().__init__(SQLiteConditions, partial(_fetch_each, database), complain)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        names = summed_signals(query)
        statements = [SQLiteConditions(query, by=by).statement("summary")]
        groups, *signals = await self.fetch_each([*statements, *([signal_summary(query, by)] if names else [])])
        return self._summaries([*groups, *(group for found in signals for group in signal_rows.groups(names, found))])


class SQLiteStore(RollupStore):
    """Store and StateStore on one SQLite file; reading has a connection of its own and never waits for a writer.

    An operation that cannot use the file within `busy_timeout_s` raises `EngineError`; for a file that a newer release
    wrote it is a `SchemaError`.
    """

    conditions = SQLiteConditions
    _before_samples = _before_supplements = (-1,)

    def __init__(self, path: str | Path, busy_timeout_s: float = 5.0) -> None:
        self._writer = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s, undo_in_memory=True)
        self._reader = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s)
        # what is added up beforehand, for minutes after an upgrade, does not make a page wait
        self._counter = Database(path, schema=STORE, busy_timeout_s=busy_timeout_s, cache_kib=_COUNTER_KIB)
        self._adding_up(SQLiteSums(self._reader, self._complain))

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
            fresh = connection.execute(_SQL["add_sample"], row).rowcount > 0
            fills = not fresh and self._complete(connection, sample, payload)
            there = [] if fresh else _outcomes(connection, sample.id)
            new = rows.new(evaluations, there, fills=fills)
            known = {(metric, version) for metric, version, _ in there}
            others = signal_rows.add(connection, sample, new, known, fresh=fresh)
            connection.executemany(_SQL["add_evaluation"], [rows.row(sample, evaluation) for evaluation in others])
            return new

        return add

    def _complete(self, connection: Connection, sample: Sample, payload: str) -> bool:
        """Whether a sample that is there already may fill gaps: it is the stored one, or now takes its place."""
        for old in self._read(rows.sample, connection.execute(_SQL["sample"], (sample.id,))):
            if completes(sample, old):
                connection.execute(_SQL["replace_sample"], (payload, sample.id))
                return True
        return False

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        def read(connection: Connection) -> tuple[list[Any], list[Any]]:
            payloads = connection.execute(_SQL["sample"], (sample_id,)).fetchall()
            evaluations = connection.execute(_SQL["evaluations"], (sample_id,)).fetchall()
            return payloads, evaluations + signal_rows.rows(connection, sample_id)

        payloads, stored = await self._reader.read(read)
        if not (found := self._read(rows.placed_sample, payloads)):
            return None
        return found[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        def read(connection: Connection) -> Mapping[str, str]:  # one payload at a time: they hold whole exchanges
            return rows.questions(row[0] for row in connection.execute(_SQL["payloads"], (_listed(sample_ids),)))

        return await self._reader.read(read)

    async def _supplement(self, addressed: Sequence[tuple[Supplement, Address]]) -> Iterable[Row]:
        new = [
            (supplement.id, supplement.received_at, *address, supplement.app, encoded(supplement).decode())
            for supplement, address in addressed
        ]

        def add(connection: Connection) -> Iterable[Row]:
            concerned: dict[str, Row] = {}
            connection.executemany(_SQL["add_supplement"], new)
            for (kind, value), app in dict.fromkeys((address, supplement.app) for supplement, address in addressed):
                statement = _SQL["concerned"].format(column=COLUMNS[kind])
                concerned |= {row[1]: row for row in connection.execute(statement, (value, app))}
            return concerned.values()

        return await self._writer.write(add)

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        found = await self._reader.fetch(_SQL["supplements"], _addresses(sample), short=True)
        return self._read(rows.supplement, found)

    async def supplements_of_each(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]]:
        def read(connection: Connection) -> list[list[Any]]:
            if connection.execute(_SQL["any_supplement"]).fetchone() is None:
                return [[] for _ in samples]
            return [connection.execute(_SQL["supplements"], _addresses(sample)).fetchall() for sample in samples]

        return [self._read(rows.supplement, found) for found in await self._reader.read(read, short=True)]

    async def _points(self, query: Query) -> Sequence[Point]:
        return await self._points_by(query, None, None)

    async def _indexed_points(self, query: Query, exactly: float | None) -> Sequence[Point]:
        return await self._points_by(query, VALUE_INDEX, exactly)

    async def _points_by(self, query: Query, index: str | None, exactly: float | None) -> Sequence[Point]:
        given = SQLiteConditions(query, exactly=exactly)
        first, others = given.evaluation_points(index), given.signal_points(index)
        most = None if query.limit is None else max(query.limit, 0)

        def read(connection: Connection) -> list[Point]:  # in the reader's thread: a busy app has many
            evaluations = connection.execute(*first)
            if not others:
                return rows.points(islice(evaluations, most))
            signals = islice(chain.from_iterable(connection.execute(*statement) for statement in others), most)
            return rows.points(islice(heapq.merge(evaluations, signals, key=_KEYS[query.order]), most))

        return await self._reader.read(read)

    async def _metrics(self, query: Query) -> Iterable[str]:  # noqa: ARG002 - all that the store has
        return dict.fromkeys([*(row[0] for row in await self._fetch(_SQL["metrics"])), *signal_rows.NAMES])

    async def _top(self, query: Query) -> float | None:
        if query.metric in signal_rows.NAMES:
            return None  # `signal_points` reads no more values of a signal than it must
        return await super()._top(query)

    def _times(self, since: float, until: float) -> tuple[float, ...]:
        return since, until

    async def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return await self._reader.fetch(statement, values)

    async def _change(self, statement: str, values: Sequence[Any]) -> int:
        return await self._writer.change(statement, values)

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return await self._fetch(_SQL["payloads"], (_listed(sample_ids),))

    async def _link(self, some: Sequence[Linked]) -> Iterable[Row]:
        links = [
            (exchange.id, exchange.started_at, exchange.place.before, encoded(exchange).decode()) for exchange in some
        ]
        keys = [(exchange.app, key, exchange.started_at, exchange.id) for exchange in some for key in keys_of(exchange)]
        names = _listed([exchange.id for exchange in some])

        def add(connection: Connection) -> list[Any]:
            new = connection.executemany(_SQL["add_link"], links).rowcount == len(links)
            connection.executemany(_SQL["add_link_key"], keys)
            return [] if new else connection.execute(_SQL["links"], (names,)).fetchall()

        return await self._writer.write(add)

    async def _links_of(self, sample_ids: Sequence[str]) -> Iterable[Row]:
        return await self._reader.fetch(_SQL["links"], (_listed(sample_ids),), short=True)

    async def _look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        def read(connection: Connection) -> list[tuple[int, str]]:
            return [
                (place, payload)
                for place, lookup in enumerate(wanted)
                for (payload,) in connection.execute(_LOOK_UP, lookup)
            ]

        return await self._reader.read(read, short=True)

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        wanted = encoded(
            [(exchange.id, exchange.place.before, encoded(exchange).decode(), expected) for exchange, expected in moves]
        ).decode()

        def move(connection: Connection) -> set[str]:
            moved = {row[0] for row in connection.execute(_SQL["move_links"], (wanted,)).fetchall()}
            there = [exchange for exchange, _ in moves if exchange.id in moved]
            connection.executemany(_SQL["move_sample"], [(*exchange.place[:3], exchange.id) for exchange in there])
            clusters = [(exchange.id, cluster_with(exchange)) for exchange in there if exchange.named]
            for table in ("evaluations", "signals"):
                connection.executemany(_SQL[f"move_{table}"], clusters)
            return moved

        moved = await self._writer.write(move)
        return [exchange.id for exchange, _ in moves if exchange.id not in moved]

    async def prune(self, before: float) -> int:
        """Delete a batch at a time, so that those who write wait a moment only; then add up the hours that are over."""
        since = dict.fromkeys(("evaluations", "signals", "samples", "supplements"), before)
        since |= dict.fromkeys(("links", "link_keys"), max(before, time.time() - KEPT_S))

        def remove(connection: Connection) -> dict[str, int]:
            return {
                table: connection.execute(_SQL[f"prune_{table}"], (begin, _PRUNE_BATCH)).rowcount
                for table, begin in since.items()
            }

        total = 0
        more = True
        while more:
            removed = await self._writer.write(remove)
            total += removed["samples"]
            more = any(removed[table] == _PRUNE_BATCH for table in ("samples", "supplements", "links", "link_keys"))
        await self._sums.ready(before, SQLiteSums(self._counter, self._complain))
        return total

    async def _erase(self, samples: Sequence[Row], supplement_ids: Sequence[str], *, dry_run: bool) -> int:
        ids = [row[-1] for row in samples]

        def count(connection: Connection) -> int:
            return sum(int(connection.execute(_COUNT, (sample_id,)).fetchone()[0]) for sample_id in ids)

        evaluations = await self._reader.read(count)
        if not dry_run:
            await self._delete(supplement_ids, "supplement")
            await self._delete(ids, "evaluations", "signals", "links", "sample")
        return evaluations

    async def _delete(self, ids: Sequence[str], *kinds: str) -> None:
        """Delete a batch at a time, so that those who write wait only a moment, and so that the bytes are gone too."""

        def delete(batch: Sequence[tuple[str]], connection: Connection) -> None:
            connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
            for kind in kinds:
                connection.executemany(_SQL[f"delete_{kind}"], batch)

        for start in range(0, len(ids), _ERASE_BATCH):
            await self._writer.write(partial(delete, [(name,) for name in ids[start : start + _ERASE_BATCH]]))

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        return {row[0]: row[1] for row in await self._fetch(_HOLDS, (_listed(sample_ids),))}

    async def save(self, states: Mapping[str, bytes]) -> None:
        if not states:
            return
        some = list(states.items())
        await self._writer.write(lambda connection: connection.executemany(_SQL["save_state"], some))

    async def aclose(self) -> None:
        await self._sums.aclose()
        try:
            await self._counter.aclose()
            await self._reader.aclose()
        finally:
            await self._writer.aclose()


async def _fetch_each(database: Database, statements: Sequence[Statement]) -> list[list[Any]]:
    return await database.read(
        lambda connection: [connection.execute(*statement).fetchall() for statement in statements]
    )


def _outcomes(connection: Connection, sample_id: str) -> list[tuple[str, str, str]]:
    """Metric, version and outcome of all that a sample has."""
    stored = connection.execute(_SQL["outcomes_of_sample"], (sample_id,))
    return [*stored, *signal_rows.outcomes(connection, sample_id)]


def _addresses(sample: Sample) -> tuple[Any, ...]:
    """The parameters of the statement `supplements`."""
    return (sample.id, sample.context_key, sample.trace_id, sample.app, MAX_HEARD_BYTES)


def _listed(sample_ids: Sequence[str]) -> str:
    """A list as one parameter."""
    return encoded(list(sample_ids)).decode()
