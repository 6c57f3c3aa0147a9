"""What joins exchanges to conversations, in ClickHouse.

Who moves an exchange reads first where it stands: there is no comparing and changing in one step. Two processes that
decide about the same exchange at the same moment may each write what they decided; the later one stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from gaugeway.storage.conversations import MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.clickhouse import schema
from gaugeway.storage.engines.clickhouse.connection import Database
from gaugeway.storage.engines.clickhouse.queries import APART, pages
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.stores.calendar import day_of
from gaugeway.storage.stores.rows import linked

T = TypeVar("T")
_THESE = f"SELECT id, payload FROM links FINAL WHERE id IN {{ids:Array(String)}} {APART}"  # noqa: S608 - constants
_FOUND = f"""
    SELECT * FROM (
        SELECT {{number}} AS number, id, started_at FROM link_keys FINAL
        WHERE app = {{{{a{{number}}:String}}}} AND key = {{{{k{{number}}:String}}}}
            AND started_at >= {{{{s{{number}}:Float64}}}} AND started_at <= {{{{u{{number}}:Float64}}}}
        ORDER BY started_at DESC, id DESC LIMIT {MOST_CANDIDATES + 1}
    )
"""  # noqa: S608 - constants
_AT_ONCE = 50
_UNREADABLE = object()
_PLACE = {"conversation": "String", "turn": "UInt32", "hop": "UInt32"}
_NEW = {
    "samples": {"revision": "revision + 1"} | {name: f"{{{name}:{kind}}}" for name, kind in _PLACE.items()},
    "evaluations": {"revision": "revision + 1", "cluster": "{cluster:Nullable(String)}"},
}


def _again(table: str, columns: Iterable[str], where: str) -> str:
    """A statement that writes rows again with some columns changed."""
    names = list(columns)
    values = ", ".join(_NEW[table].get(name, name) for name in names)
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} FINAL WHERE {where} {APART}"  # noqa: S608 - constants


_MOVE_SAMPLE = _again("samples", schema.SAMPLES, "id = {id:String} AND day = {day:Int32}")
_MOVE_SCORES = _again(
    "evaluations",
    schema.EVALUATIONS,
    "day = {day:Int32} AND started_at = {at:Float64} AND sample_id = {id:String}",
)


class ClickHouseLinks:
    """The tables `links` and `link_keys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def link(self, some: Sequence[Linked]) -> Iterable[tuple[str]]:
        """Do what `LinkTables.link` does. What two processes write at one moment is the same."""
        known = await self._payloads([exchange.id for exchange in some])
        some = [exchange for exchange in some if exchange.id not in known]
        keys = [
            (exchange.app, key, day_of(exchange.started_at), exchange.started_at, exchange.id)
            for exchange in some
            for key in keys_of(exchange)
        ]
        await self._database.insert("links", schema.LINKS, [_row(exchange, 0) for exchange in some])
        await self._database.insert("link_keys", schema.LINK_KEYS, keys)
        return [(payload,) for payload in known.values()]

    async def links(self, sample_ids: Sequence[str]) -> Iterable[tuple[str]]:
        """Do what `LinkTables.links` does."""
        return [(payload,) for payload in (await self._payloads(sample_ids)).values()]

    async def look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        """Do what `LinkTables.look_up` does."""
        places: list[tuple[int, float, str]] = []
        for start in range(0, len(wanted), _AT_ONCE):
            page = range(start, min(start + _AT_ONCE, len(wanted)))
            values: dict[str, Any] = {}
            for number in page:
                values |= zip((f"a{number}", f"k{number}", f"s{number}", f"u{number}"), wanted[number], strict=True)
            statement = " UNION ALL ".join(_FOUND.format(number=number) for number in page)
            places += [(row[0], row[2], row[1]) for row in await self._database.query(statement, values)]
        payloads = await self._payloads(list(dict.fromkeys(sample_id for _, _, sample_id in places)))
        latest_first = sorted(places, reverse=True)
        return [(number, payloads[sample_id]) for number, _, sample_id in latest_first if sample_id in payloads]

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        """Do what `LinkTables.place` does."""
        payloads = await self._payloads([move.one.id for move in moves])
        befores = {
            name: before for name, payload in payloads.items() if (before := _before(payload)) is not _UNREADABLE
        }
        fitting = [moved for moved, expected in moves if befores.get(moved.id, _UNREADABLE) == expected]
        await self._database.insert("links", schema.LINKS, [_row(moved, time.time_ns()) for moved in fitting])
        for moved in fitting:
            key = {"id": moved.id, "day": day_of(moved.started_at)}
            await self._database.command(_MOVE_SAMPLE, {**key, **dict(zip(_PLACE, moved.place[:3], strict=True))})
            if moved.named:
                scores = {**key, "at": moved.started_at, "cluster": cluster_with(moved)}
                await self._database.command(_MOVE_SCORES, scores)
        there = {moved.id for moved in fitting}
        return [move.one.id for move in moves if move.one.id not in there]

    async def _payloads(self, sample_ids: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for page in pages(sample_ids):
            found |= {row[0]: row[1] for row in await self._database.query(_THESE, {"ids": page})}
        return found


def _before(payload: str) -> object:
    """What a stored exchange continues."""
    try:
        return linked((payload,)).place.before
    except (TypeError, ValueError):
        return _UNREADABLE


def _row(exchange: Linked, revision: int) -> tuple[Any, ...]:
    return (exchange.id, day_of(exchange.started_at), exchange.started_at, encoded(exchange).decode(), revision)
