"""Store in ClickHouse, for more than a hundred samples a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import Struct

from gaugeway.records import Evaluation, Sample, Skipped, Supplement
from gaugeway.settings.bounds import MAX_HEARD_BYTES
from gaugeway.storage.conversations import KEPT_S, MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.clickhouse import schema
from gaugeway.storage.engines.clickhouse.batching import Gathering
from gaugeway.storage.engines.clickhouse.connection import Database, read_url
from gaugeway.storage.engines.conditions import DayConditions, day_of, days_between
from gaugeway.storage.engines.failures import EngineError, RefusedError, encoded
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.engines.sql_store import COLUMNS, Row, RowSums, SqlStore, Statement, named
from gaugeway.storage.joining import Address, completes, targets_of
from gaugeway.storage.stores import Point, Query, ratings, rows
from gaugeway.storage.stores.ratings import EARLY_S

_FIRST = 2**63 - 1

Key = tuple[str, int]


class Wanted(Struct, frozen=True):
    """One call of `add`, checked: everything in it can be inserted."""

    sample: Sample
    evaluations: Sequence[Evaluation]
    payload: str

    @property
    def key(self) -> Key:
        """A sample's identity: its id and day."""
        return self.sample.id, day_of(self.sample.started_at)


@dataclass(slots=True)
class There:
    """A sample that is stored; without `sample` it cannot be read."""

    sample: Sample | None
    started_at: float
    revision: int
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)


class Additions(Struct):
    """Rows of both tables, and for each call the evaluations that were not there."""

    samples: list[tuple[Any, ...]] = []
    evaluations: list[tuple[Any, ...]] = []
    answers: list[Sequence[Evaluation]] = []


def wanted(sample: Sample, evaluations: Sequence[Evaluation]) -> Wanted:
    """Check one call alone, so that it cannot spoil the batch. Raises RefusedError."""
    if any(evaluation.sample_id != sample.id for evaluation in evaluations):
        raise RefusedError(f"an evaluation belongs to another sample than {sample.id!r}")
    call = Wanted(sample, evaluations, encoded(sample).decode())
    encoded([rows.row(sample, evaluation) for evaluation in evaluations])
    day_of(sample.started_at)
    return call


def additions(calls: Sequence[Wanted], there: Mapping[Key, There], position: int) -> Additions:
    """Take the calls one after the other, as if each had seen what those before it made.

    Evaluations are numbered from `position` on: that is their order, and of equal ones that two processes added at the
    same moment the first stays. `there` holds every stored sample that the calls are about, and is not changed.
    """
    found = Additions()
    known = {key: replace(known_sample, outcomes=dict(known_sample.outcomes)) for key, known_sample in there.items()}
    for call in calls:
        old = known.get(call.key)
        fills = old is not None and old.sample is not None and completes(call.sample, old.sample)
        if old is None:
            old = known[call.key] = There(call.sample, float(call.sample.started_at), _fullness(call.sample))
            found.samples.append(_sample_row(call, old.revision))
        elif fills and old.sample != call.sample:
            old.sample, old.revision = call.sample, max(old.revision + 1, _fullness(call.sample))
            found.samples.append(_sample_row(call, old.revision))
        stored = [(*identity, outcome) for identity, outcome in old.outcomes.items()]
        new = rows.new(call.evaluations, stored, fills=fills)
        for evaluation in new:
            row = _evaluation_row(call, old.started_at, evaluation, position + len(found.evaluations))
            old.outcomes[evaluation.metric, evaluation.version] = row[6]
            found.evaluations.append(row)
        found.answers.append(new)
    return found


def first_wins(position: int) -> int:
    """A revision that is the higher the earlier its row was numbered."""
    return _FIRST - position


def _fullness(sample: Sample) -> int:
    """How many gaps are filled: of two that were added at the same moment the fuller one stays."""
    filled = sample.question, sample.reference, sample.contexts, sample.context_source != "none"
    return sum(map(bool, filled))


def _sample_row(call: Wanted, revision: int) -> tuple[Any, ...]:
    sample, (sample_id, day) = call.sample, call.key
    started_at, keys = float(sample.started_at), (sample.trace_id, sample.context_key)
    place = (sample.conversation, sample.turn, sample.hop)
    return (sample_id, day, started_at, sample.app, sample.model, call.payload, *keys, *place, revision)


def _evaluation_row(call: Wanted, started_at: float, evaluation: Evaluation, position: int) -> tuple[Any, ...]:
    """The flat row with its place; an outcome takes the place of a skip, whenever either came."""
    flat = rows.row(replace(call.sample, started_at=started_at), evaluation)
    outcome = 0 if isinstance(evaluation.outcome, Skipped) else _FIRST + 1
    return (*flat[:-1], call.sample.tags, call.key[1], position, outcome + first_wins(position))


class ClickHouseConditions(DayConditions):
    """Parts with the placeholders {v1:String}, {v2:Float64} ..."""

    sql = statements("clickhouse/store.sql")

    def placeholder(self, number: int, kind: str) -> str:
        return f"{{v{number}:{kind}}}"

    def searched(self, text: str) -> str:
        return text

    def earliest_day(self) -> str:
        """The day of `earliest`."""
        earliest = float(self.query.since) - EARLY_S
        return self.value(days_between(earliest, earliest)[0], "Int32")


T = TypeVar("T")
_SQL = ClickHouseConditions.sql
_READ_LINGER_S = 0.002
_MOST_SAID = 1000
_SUPPLEMENTS = _SQL["supplements"].format(most_bytes=MAX_HEARD_BYTES, most=_MOST_SAID)
_LOOKED_UP_AT_ONCE = 50
_LOOK_EVERY_S = 0.2
# A server takes 128 KiB for one parameter; what is quoted in it may take twice its length.
_MOST_BYTES = 50_000  # internal bound: size of a batch
_UNREADABLE = object()
_PLACE = {"conversation": "String", "turn": "UInt32", "hop": "UInt32"}
_log = logging.getLogger("gaugeway")


def _write_again(table: str, columns: Iterable[str], where: str, changed: dict[str, str]) -> str:
    """A statement that writes rows again with some columns changed."""
    names = list(columns)
    values = ({"revision": "revision + 1"} | changed).get
    return _SQL["write_again"].format(
        table=table, columns=", ".join(names), values=", ".join(values(name, name) for name in names), where=where
    )


_MOVE_SAMPLE = _write_again(
    "samples",
    schema.SAMPLES,
    "id = {id:String} AND day = {day:Int32}",
    {name: f"{{{name}:{kind}}}" for name, kind in _PLACE.items()},
)
_MOVE_SCORES = _write_again(
    "evaluations",
    schema.EVALUATIONS,
    "day = {day:Int32} AND started_at = {at:Float64} AND sample_id = {id:String}",
    {"cluster": "{cluster:Nullable(String)}"},
)


class ClickHouseStore(SqlStore):
    """Store and StateStore in a ClickHouse database, for any number of processes that evaluate.

    A sample's identity is its id and the UTC day on which it started. There is no unique key and no transaction over
    two tables; what the port promises is kept like this. `add` looks for what is there before it inserts, and what is
    inserted twice all the same, by two processes that have the same sample at the same moment, is read once: an
    outcome before a skip, and of equals the first. Both processes then learn that theirs was new. The sample goes
    before its evaluations, which go all at once: a process that dies in between leaves a sample that is completed when
    the queue hands it out again. An operation that cannot be done raises `EngineError`.

    Who moves an exchange reads first where it stands: there is no comparing and changing in one step. Two processes
    that decide about the same exchange at the same moment may each write what they decided; the later one stays.
    """

    conditions = ClickHouseConditions
    _before_samples = "", -(2**31), 0
    _before_supplements = "", "", "", 0

    def __init__(self, url: str) -> None:
        address = read_url(url)
        self.url = url
        self.database = Database(address, schema.SCRIPTS)
        self._adding = Gathering[Wanted, Sequence[Evaluation]](self._add, linger_s=address.linger_s)
        self._hearing = Gathering[Sample, Sequence[Supplement]](self._heard, linger_s=_READ_LINGER_S)
        self._rows = RowSums(ClickHouseConditions, self._fetch_each, self._complain)
        self._position = 0

    @classmethod
    def from_url(cls, url: str) -> ClickHouseStore:
        """Return the store in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Do what `Store.add` says, together with what others add at about the same moment."""
        return await self._adding.ask(wanted(sample, evaluations))

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        found = await self.database.query(_SQL["sample"], {"id": sample_id})
        if not (samples := self._read(rows.placed_sample, found)):
            return None
        *_, day, moment = found[0]
        stored = await self.database.query(_SQL["evaluations"], {"day": day, "at": moment, "id": sample_id})
        return samples[0], self._read(lambda row: rows.evaluation(sample_id, row), stored)

    async def _supplement(self, addressed: Sequence[tuple[Supplement, Address]]) -> Iterable[Row]:
        ids = [supplement.id for supplement, _ in addressed]
        known = {row[0] for row in await self._paged(_SQL["known_supplements"], "ids", ids)}
        new = [
            (
                supplement.id,
                day_of(supplement.received_at),
                float(supplement.received_at),
                *at,
                ratings.is_rating(supplement),
                encoded(supplement).decode(),
                self._revision(),
            )
            for supplement, at in addressed
            if supplement.id not in known
        ]
        await self.database.insert("supplements", schema.SUPPLEMENTS, new)
        return await self._concerned({(address, supplement.app) for supplement, address in addressed})

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        return await self._hearing.ask(sample)

    async def series(self, query: Query) -> Sequence[Point]:
        return rows.points(await self._fetch(*ClickHouseConditions(query).statement("points")))

    async def _link(self, some: Sequence[Linked]) -> Iterable[Row]:
        """Store links; what two processes write at one moment is the same."""
        known = await self._link_payloads([exchange.id for exchange in some])
        some = [exchange for exchange in some if exchange.id not in known]
        keys = [
            (exchange.app, key, day_of(exchange.started_at), exchange.started_at, exchange.id)
            for exchange in some
            for key in keys_of(exchange)
        ]
        await self.database.insert("links", schema.LINKS, [_link_row(exchange, 0) for exchange in some])
        await self.database.insert("link_keys", schema.LINK_KEYS, keys)
        return [(payload,) for payload in known.values()]

    async def _links_of(self, sample_ids: Sequence[str]) -> Iterable[Row]:
        return [(payload,) for payload in (await self._link_payloads(sample_ids)).values()]

    async def _look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        places: list[tuple[int, float, str]] = []
        for start in range(0, len(wanted), _LOOKED_UP_AT_ONCE):
            page = range(start, min(start + _LOOKED_UP_AT_ONCE, len(wanted)))
            values: dict[str, Any] = {}
            for number in page:
                values |= zip((f"a{number}", f"k{number}", f"s{number}", f"u{number}"), wanted[number], strict=True)
            one = _SQL["look_up"]
            statement = " UNION ALL ".join(one.format(number=number, most=MOST_CANDIDATES + 1) for number in page)
            places += [(row[0], row[2], row[1]) for row in await self.database.query(statement, values)]
        payloads = await self._link_payloads(list(dict.fromkeys(sample_id for _, _, sample_id in places)))
        latest_first = sorted(places, reverse=True)
        return [(number, payloads[sample_id]) for number, _, sample_id in latest_first if sample_id in payloads]

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        payloads = await self._link_payloads([move.one.id for move in moves])
        befores = {
            name: before for name, payload in payloads.items() if (before := _before(payload)) is not _UNREADABLE
        }
        fitting = [moved for moved, expected in moves if befores.get(moved.id, _UNREADABLE) == expected]
        await self.database.insert("links", schema.LINKS, [_link_row(moved, time.time_ns()) for moved in fitting])
        for moved in fitting:
            key = {"id": moved.id, "day": day_of(moved.started_at)}
            await self.database.command(_MOVE_SAMPLE, {**key, **dict(zip(_PLACE, moved.place[:3], strict=True))})
            if moved.named:
                scores = {**key, "at": moved.started_at, "cluster": cluster_with(moved)}
                await self.database.command(_MOVE_SCORES, scores)
        there = {moved.id for moved in fitting}
        return [move.one.id for move in moves if move.one.id not in there]

    async def _link_payloads(self, sample_ids: Sequence[str]) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._paged(_SQL["links"], "ids", sample_ids)}

    async def prune(self, before: float) -> int:
        """Drop the days that were over before `before`."""
        return await _prune(self.database, before)

    async def _erase(self, samples: Sequence[Row], supplement_ids: Sequence[str], *, dry_run: bool) -> int:
        """Delete; each deletion rewrites the parts that are concerned, however long that takes, and is waited for."""
        evaluations = 0
        moments = {(sample_id, day): moment for sample_id, day, _, moment, _ in samples}
        for page in pages(moments):
            these = {**_ids_and_days(page), "moments": [moments[key] for key in page]}
            evaluations += (await self.database.query(_SQL["count_evaluations"], these))[0][0]
        if not dry_run:
            ids = [sample_id for sample_id, _ in moments]
            await self._delete("supplements", "id", supplement_ids)
            await self._delete("evaluations", "sample_id", ids)
            await self._delete("links", "id", ids)
            await self._delete("samples", "id", ids)
        return evaluations

    async def _delete(self, table: str, column: str, ids: Sequence[str]) -> None:
        for page in pages(ids):
            await self.database.command(_SQL["delete"].format(table=table, column=column), {"ids": page})
        while ids:
            ((under_way, failed),) = await self.database.query(_SQL["mutations"], {"table": table})
            if failed:
                raise EngineError(f"{self.database.address.name}: deleting from {table} fails; see system.mutations")
            if not under_way:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        found = await self._paged(_SQL["moments"], "ids", sample_ids)
        there = {(sample_id, day): There(None, moment, 0) for sample_id, day, moment in found}
        await self._fill_outcomes(there)
        return {sample_id: len(stored.outcomes) for (sample_id, _), stored in there.items()}

    async def load(self) -> Mapping[str, bytes]:
        return dict(await self.database.query(_SQL["load_states"], raw=["value"]))

    async def save(self, states: Mapping[str, bytes]) -> None:
        """Save them as one block, which is there whole or not at all."""
        for name, value in states.items():
            if not isinstance(value, bytes):
                raise RefusedError(f"the state {name!r} is not bytes")
        await self.database.insert("states", schema.STATES, list(states.items()))

    async def aclose(self) -> None:
        await asyncio.gather(self._adding.finish(), self._hearing.finish())
        await self.database.aclose()

    async def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return list(await self.database.query(statement, named(values)))

    async def _fetch_each(self, statements: Sequence[Statement]) -> list[list[Any]]:
        return [await self._fetch(*statement) for statement in statements]

    async def _payloads(self, sample_ids: Sequence[str]) -> list[Any]:
        return list(await self._paged(_SQL["payloads"], "ids", sample_ids))

    async def _add(self, calls: Sequence[Wanted]) -> Sequence[Sequence[Evaluation]]:
        there = await self._there({call.key for call in calls})
        self._position = max(self._position, time.time_ns())
        made = additions(calls, there, self._position + 1)
        self._position += len(made.evaluations)
        await self.database.insert("samples", schema.SAMPLES, made.samples)
        await self.database.insert("evaluations", schema.EVALUATIONS, made.evaluations)
        return made.answers

    async def _there(self, keys: set[Key]) -> dict[Key, There]:
        """Which of these samples are stored, with their outcomes. Most are new, so only their keys are looked for."""
        there = {}
        for page in pages(keys):
            if not (found := set(await self.database.query(_SQL["found"], _ids_and_days(page))) & keys):
                continue
            for sample_id, day, moment, revision, payload in await self.database.query(
                _SQL["stored"], _ids_and_days(found)
            ):
                if (sample_id, day) in found:
                    sample = next(iter(self._read(rows.sample, [(payload,)])), None)
                    there[sample_id, day] = There(sample, moment, revision)
        await self._fill_outcomes(there)
        return there

    async def _fill_outcomes(self, there: dict[Key, There]) -> None:
        """Fill in the outcomes of stored samples."""
        for page in pages(there):
            values = {**_ids_and_days(page), "moments": [there[key].started_at for key in page]}
            for sample_id, day, metric, version, outcome in await self.database.query(
                _SQL["outcomes_of_samples"], values
            ):
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

    async def _concerned(self, targets: set[tuple[Address, str | None]]) -> Iterable[Row]:
        found: dict[str, Row] = {}
        for app, kind in sorted({(app, address.kind) for address, app in targets}, key=str):
            values = [address.value for address, its_app in targets if (its_app, address.kind) == (app, kind)]
            statement = _SQL["concerned"].format(column=COLUMNS[kind])
            found |= {row[1]: row for row in await self._paged(statement, "values", values, app=app)}
        return found.values()

    async def _heard(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]]:
        targets = [[(*address, app or "") for address, app in targets_of(sample)] for sample in samples]
        said: dict[tuple[str, str, str], list[Any]] = {}
        for kind, value, app, *row in await self._paged(
            _SUPPLEMENTS, "targets", {target for some in targets for target in some}
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


def _before(payload: str) -> object:
    """What a stored exchange continues."""
    try:
        return rows.linked((payload,)).place.before
    except (TypeError, ValueError):
        return _UNREADABLE


def _link_row(exchange: Linked, revision: int) -> tuple[Any, ...]:
    return (exchange.id, day_of(exchange.started_at), exchange.started_at, encoded(exchange).decode(), revision)


def pages(items: Iterable[T]) -> Iterator[list[T]]:
    """Cut a list into pieces that fit into a parameter.

    >>> [len(page) for page in pages(["x" * 20_000] * 5)]
    [2, 2, 1]
    """
    page: list[T] = []
    length = 0
    for item in items:
        size = 8 + len(str(item).encode())
        if page and length + size > _MOST_BYTES:
            yield page
            page, length = [], 0
        page.append(item)
        length += size
    if page:
        yield page


async def _prune(database: Database, before: float) -> int:
    """Drop the samples of days that were over before `before`, and the supplements received before; count samples."""
    today = day_of(before)
    over = await database.query(_SQL["days_over"], {"day": today})
    for table in ("evaluations", "samples", "supplements"):
        for (day,) in await database.query(_SQL["days"].format(table=table), {"day": today}):
            await database.command(_SQL["drop_day"].format(table=table, day=f"{day:d}"))
    unlinked = day_of(max(before, time.time() - KEPT_S))
    for table in ("links", "link_keys"):
        for (day,) in await database.query(_SQL["days"].format(table=table), {"day": unlinked}):
            await database.command(_SQL["drop_day"].format(table=table, day=f"{day:d}"))
    ((old,),) = await database.query(_SQL["old_supplements"], {"day": today, "before": before})
    if old:
        await database.command(_SQL["delete_old_supplements"].format(day=today), {"before": before})
    for day, count in over:
        _log.info("store: dropped the %d samples of day %d", count, day)
    return sum(count for _, count in over)
