"""Store in ClickHouse, for more than a hundred samples a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S
from gaugeway.storage.engines.clickhouse import erase, links, queries
from gaugeway.storage.engines.clickhouse import schema as clickhouse_schema
from gaugeway.storage.engines.clickhouse.batching import Gathering
from gaugeway.storage.engines.clickhouse.connection import Database, read_url
from gaugeway.storage.engines.clickhouse.inserts import Key, There, Wanted, additions, first_wins, wanted
from gaugeway.storage.engines.clickhouse.queries import APART, pages
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.engines.sql_store import SqlStore, Values, named
from gaugeway.storage.erase import Subject
from gaugeway.storage.joining import Address, address_of, targets_of
from gaugeway.storage.stores import (
    Point,
    Query,
    Summary,
    ratings,
    rows,
)
from gaugeway.storage.stores.calendar import day_of

_READ_LINGER_S = 0.002
_THESE = "id IN {ids:Array(String)} AND day IN {days:Array(Int32)}"
_FOUND = f"SELECT DISTINCT id, day FROM samples WHERE {_THESE} {APART}"  # noqa: S608 - put together from constants
_STORED = f"SELECT id, day, started_at, revision, payload FROM samples FINAL WHERE {_THESE} {APART}"  # noqa: S608 - put together from constants
_OUTCOMES = f"""
    SELECT sample_id, day, metric, version, outcome FROM evaluations FINAL
    WHERE day IN {{days:Array(Int32)}} AND started_at IN {{moments:Array(Float64)}}
        AND sample_id IN {{ids:Array(String)}} {APART}
"""  # noqa: S608 - put together from constants
_SAMPLE = f"""
    SELECT payload, conversation, turn, hop, day, started_at FROM samples FINAL
    WHERE id = {{id:String}} ORDER BY day LIMIT 1 {APART}
"""  # noqa: S608 - put together from constants
_EVALUATIONS = f"""
    SELECT metric, version, outcome, value, reason, detail, evidence, judge, seconds, cost_usd, rate, weight
    FROM evaluations FINAL WHERE day = {{day:Int32}} AND started_at = {{at:Float64}} AND sample_id = {{id:String}}
    ORDER BY position {APART}
"""  # noqa: S608 - put together from constants
_PAYLOADS = f"SELECT payload FROM samples FINAL WHERE id IN {{ids:Array(String)}} {APART}"  # noqa: S608 - put together from constants
_KNOWN = "SELECT DISTINCT id FROM supplements WHERE id IN {ids:Array(String)}"
_CONCERNED = {
    kind: f"""
        SELECT payload, id FROM samples FINAL
        WHERE {column} IN {{values:Array(String)}}
            AND ({{app:Nullable(String)}} IS NULL OR app = {{app:Nullable(String)}})
        ORDER BY started_at DESC LIMIT 100 BY {column} {APART}
    """  # noqa: S608 - put together from constants
    for kind, column in (("exchange", "id"), ("key", "context_key"), ("trace", "trace_id"))
}
_MOST_SAID = 1000
# The app is read out of the payload: a column would shut out the release before, which is beside this one for a while.
_SAID_OF = f"""
    SELECT kind, value, app, received_at, id, payload FROM (
        SELECT kind, value, JSONExtractString(payload, 'app') AS app, received_at, id, payload,
            sum(length(payload)) OVER (PARTITION BY kind, value, app ORDER BY received_at, id) AS bytes
        FROM supplements FINAL
        WHERE (kind, value) IN arrayMap(one -> (one.1, one.2), {{targets:Array(Tuple(String, String, String))}})
            AND (kind, value, app) IN {{targets:Array(Tuple(String, String, String))}}
    ) WHERE bytes <= {MAX_HEARD_BYTES}
    ORDER BY received_at, id LIMIT {_MOST_SAID} BY kind, value, app
"""  # noqa: S608 - put together from constants
_MOMENTS = f"SELECT id, day, started_at FROM samples FINAL WHERE id IN {{ids:Array(String)}} {APART}"  # noqa: S608 - put together from constants
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


class ClickHouseStore(SqlStore):
    """Store and StateStore in a ClickHouse database, for any number of processes that evaluate.

    A sample's identity is its id and the UTC day on which it started. There is no unique key and no transaction over
    two tables; what the port promises is kept like this. `add` looks for what is there before it inserts, and what is
    inserted twice all the same, by two processes that have the same sample at the same moment, is read once: an
    outcome before a skip, and of equals the first. Both processes are then told that theirs was new. The sample goes
    before its evaluations, which go all at once: a process that dies in between leaves a sample that is completed when
    the queue hands it out again. An operation that cannot be done raises `EngineError`.
    """

    _queries = queries
    _CONVERSATION = queries.CONVERSATION
    _ADDRESSED_BY = queries.ADDRESSED_BY
    _SILENT = queries.SILENT
    _IDS = "SELECT DISTINCT id FROM samples WHERE id > {v1:String} ORDER BY id LIMIT {v2:UInt64}"
    _SAID = "SELECT id, payload FROM supplements FINAL WHERE id > {v1:String} ORDER BY id LIMIT {v2:UInt64}"

    def __init__(self, url: str) -> None:
        address = read_url(url)
        self.url = url
        self.database = Database(address, clickhouse_schema.SCRIPTS)
        self._adding = Gathering[Wanted, Sequence[Evaluation]](self._add, linger_s=address.linger_s)
        self._hearing = Gathering[Sample, Sequence[Supplement]](self._heard, linger_s=_READ_LINGER_S)
        self._links = links.ClickHouseLinks(self.database)
        self._position = 0

    @classmethod
    def from_url(cls, url: str) -> ClickHouseStore:
        """Return the store in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Do what `Store.add` says, together with what others add at about the same moment."""
        return await self._adding.ask(wanted(sample, evaluations))

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        found = await self.database.query(_SAMPLE, {"id": sample_id})
        samples = self._read(rows.placed_sample, found)
        if not samples:
            return None
        *_, day, moment = found[0]
        stored = await self.database.query(_EVALUATIONS, {"day": day, "at": moment, "id": sample_id})
        return samples[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        addressed: dict[str, tuple[Supplement, Address]] = {}
        for supplement in supplements:
            if (address := address_of(supplement)) is not None:
                addressed.setdefault(supplement.id, (supplement, address))
        if not addressed:
            return []
        known = {row[0] for row in await self._paged(_KNOWN, "ids", addressed)}
        new = [
            (
                supplement.id,
                day_of(supplement.received_at),
                float(supplement.received_at),
                *at,
                ratings.is_rating(supplement),
                _json(supplement),
                self._revision(),
            )
            for supplement, at in addressed.values()
            if supplement.id not in known
        ]
        await self.database.insert("supplements", clickhouse_schema.SUPPLEMENTS, new)
        return await self._concerned({(address, supplement.app) for supplement, address in addressed.values()})

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        return await self._hearing.ask(sample)

    async def series(self, query: Query) -> Sequence[Point]:
        return rows.points(await self.database.query(*queries.series(query)))

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return self._summaries(await self._fetch(*queries.summary(query, by)))

    async def prune(self, before: float) -> int:
        """Drop the days that were over before `before`."""
        return await _prune(self.database, before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        return await erase.forget(self.database, subject, dry_run=dry_run)

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        found = await self._paged(_MOMENTS, "ids", sample_ids)
        there = {(sample_id, day): There(None, moment, 0) for sample_id, day, moment in found}
        await self._fill_outcomes(there)
        return {sample_id: len(stored.outcomes) for (sample_id, _), stored in there.items()}

    async def load(self) -> Mapping[str, bytes]:
        return dict(await self.database.query("SELECT name, value FROM states FINAL", raw=["value"]))

    async def save(self, states: Mapping[str, bytes]) -> None:
        """Save them as one block, which is there whole or not at all."""
        for name, value in states.items():
            if not isinstance(value, bytes):
                raise RefusedError(f"the state {name!r} is not bytes")
        await self.database.insert("states", clickhouse_schema.STATES, list(states.items()))

    async def aclose(self) -> None:
        await asyncio.gather(self._adding.finish(), self._hearing.finish())
        await self.database.aclose()

    async def _fetch(self, statement: str, values: Values) -> list[Any]:
        return list(await self.database.query(statement, named(values)))

    async def _fetch_each(self, *statements: tuple[str, Values]) -> list[list[Any]]:
        return [await self._fetch(*statement) for statement in statements]

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return list(await self._paged(_PAYLOADS, "ids", sample_ids))

    async def _add(self, calls: Sequence[Wanted]) -> Sequence[Sequence[Evaluation]]:
        there = await self._there({call.key for call in calls})
        self._position = max(self._position, time.time_ns())
        made = additions(calls, there, self._position + 1)
        self._position += len(made.evaluations)
        await self.database.insert("samples", clickhouse_schema.SAMPLES, made.samples)
        await self.database.insert("evaluations", clickhouse_schema.EVALUATIONS, made.evaluations)
        return made.answers

    async def _there(self, keys: set[Key]) -> dict[Key, There]:
        """Which of these samples are stored, with their outcomes. Most are new, so only their keys are looked for."""
        there = {}
        for page in pages(keys):
            found = set(await self.database.query(_FOUND, _ids_and_days(page))) & keys
            if not found:
                continue
            for sample_id, day, moment, revision, payload in await self.database.query(_STORED, _ids_and_days(found)):
                if (sample_id, day) in found:
                    sample = next(iter(self._read(rows.sample, [(payload,)])), None)
                    there[sample_id, day] = There(sample, moment, revision)
        await self._fill_outcomes(there)
        return there

    async def _fill_outcomes(self, there: dict[Key, There]) -> None:
        """Fill in the outcomes of stored samples."""
        for page in pages(there):
            values = {**_ids_and_days(page), "moments": [there[key].started_at for key in page]}
            for sample_id, day, metric, version, outcome in await self.database.query(_OUTCOMES, values):
                if (found := there.get((sample_id, day))) is not None:
                    found.outcomes[metric, version] = outcome

    async def _paged(
        self, statement: str, name: str, values: Iterable[Any], **others: str | None
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement about a list, which may be too long for one parameter."""
        found: list[tuple[Any, ...]] = []
        for page in pages(values):
            found += await self.database.query(statement, {name: page, **others})
        return found

    async def _concerned(self, targets: set[tuple[Address, str | None]]) -> Sequence[Sample]:
        found: dict[str, Any] = {}
        for app, kind in sorted({(app, address.kind) for address, app in targets}, key=str):
            values = [address.value for address, its_app in targets if (its_app, address.kind) == (app, kind)]
            found |= {row[1]: row for row in await self._paged(_CONCERNED[kind], "values", values, app=app)}
        return sorted(self._read(rows.sample, found.values()), key=lambda sample: (sample.started_at, sample.id))

    async def _heard(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]]:
        targets = [[(*address, app or "") for address, app in targets_of(sample)] for sample in samples]
        said: dict[tuple[str, str, str], list[Any]] = {}
        for kind, value, app, *row in await self._paged(
            _SAID_OF, "targets", {target for some in targets for target in some}
        ):
            said.setdefault((kind, value, app), []).append(row)
        heard = []
        for some in targets:
            found = sorted(row for target in dict.fromkeys(some) for row in said.get(target, ()))
            heard.append(self._read(rows.supplement, [row[2:] for row in found[:_MOST_SAID]]))
        return heard

    def _revision(self) -> int:
        self._position = max(self._position + 1, time.time_ns())
        return first_wins(self._position)


def _ids_and_days(keys: Any) -> dict[str, list[Any]]:
    return {"ids": [sample_id for sample_id, _ in keys], "days": sorted({day for _, day in keys})}


def _json(supplement: Supplement) -> str:
    return encoded(supplement).decode()


async def _prune(database: Database, before: float) -> int:
    """Drop the samples of days that were over before `before`, and the supplements received before; count samples."""
    today = day_of(before)
    over = await database.query(_OVER, {"day": today})
    for table in ("evaluations", "samples", "supplements"):
        for (day,) in await database.query(_DAYS.format(table=table), {"day": today}):
            await database.command(_DROP.format(table=table, day=f"{day:d}"))
    unlinked = day_of(max(before, time.time() - KEPT_S))
    for table in ("links", "link_keys"):
        for (day,) in await database.query(_DAYS.format(table=table), {"day": unlinked}):
            await database.command(_DROP.format(table=table, day=f"{day:d}"))
    ((old,),) = await database.query(_OLD, {"day": today, "before": before})
    if old:
        await database.command(_DELETE.format(day=today), {"before": before})
    for day, count in over:
        _log.info("store: dropped the %d samples of day %d", count, day)
    return sum(count for _, count in over)
