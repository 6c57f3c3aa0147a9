"""What joins exchanges to conversations, in ClickHouse.

Who moves an exchange reads first where it stands: there is no comparing and changing in one step. Two processes that
decide about the same exchange at the same moment may each write what they decided; the later one stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gaugeway.storage.conversations import MOST_CANDIDATES, Linked, Lookup, Move, cluster_with, keys_of
from gaugeway.storage.engines.clickhouse import schema
from gaugeway.storage.engines.clickhouse.connection import Database
from gaugeway.storage.engines.clickhouse.queries import APART, pages
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.stores.calendar import day_of

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


async def link(database: Database, some: Sequence[Linked]) -> Sequence[tuple[str, str]]:
    """Store links; return those that were there. What two processes write at one moment is the same."""
    known = dict(await links(database, [exchange.id for exchange in some]))
    some = [exchange for exchange in some if exchange.id not in known]
    keys = [
        (exchange.app, key, day_of(exchange.started_at), exchange.started_at, exchange.id)
        for exchange in some
        for key in keys_of(exchange)
    ]
    await database.insert("links", schema.LINKS, [_row(exchange, 0) for exchange in some])
    await database.insert("link_keys", schema.LINK_KEYS, keys)
    return list(known.items())


async def links(database: Database, sample_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return ids and payloads of stored links."""
    found: list[tuple[str, str]] = []
    for page in pages(sample_ids):
        found += [(row[0], row[1]) for row in await database.query(_THESE, {"ids": page})]
    return found


async def linked(
    database: Database, lookups: Sequence[Lookup], read: Callable[[Any], Linked | None]
) -> Mapping[Lookup, Sequence[Linked]]:
    """Return what each lookup finds."""
    wanted = list(dict.fromkeys(lookups))
    places: list[tuple[int, float, str]] = []
    for start in range(0, len(wanted), _AT_ONCE):
        page = range(start, min(start + _AT_ONCE, len(wanted)))
        values: dict[str, Any] = {}
        for number in page:
            values |= zip((f"a{number}", f"k{number}", f"s{number}", f"u{number}"), wanted[number], strict=True)
        statement = " UNION ALL ".join(_FOUND.format(number=number) for number in page)
        places += [(row[0], row[2], row[1]) for row in await database.query(statement, values)]
    payloads = dict(await links(database, list(dict.fromkeys(sample_id for _, _, sample_id in places))))
    known = {name: exchange for name, payload in payloads.items() if (exchange := read((payload,))) is not None}
    found: dict[Lookup, list[Linked]] = {lookup: [] for lookup in wanted}
    for number, _, sample_id in sorted(places, reverse=True):
        if sample_id in known:
            found[wanted[number]].append(known[sample_id])
    return found


async def place(database: Database, moves: Sequence[Move], read: Callable[[Any], Linked | None]) -> Sequence[str]:
    """Move what is still where it was expected; return the others."""
    payloads = dict(await links(database, [move.one.id for move in moves]))
    stored = {name: exchange for name, payload in payloads.items() if (exchange := read((payload,))) is not None}
    fitting = [
        moved_exchange
        for moved_exchange, expected in moves
        if moved_exchange.id in stored and stored[moved_exchange.id].place.before == expected
    ]
    await database.insert("links", schema.LINKS, [_row(moved_exchange, time.time_ns()) for moved_exchange in fitting])
    for moved_exchange in fitting:
        key = {"id": moved_exchange.id, "day": day_of(moved_exchange.started_at)}
        await database.command(_MOVE_SAMPLE, {**key, **dict(zip(_PLACE, moved_exchange.place[:3], strict=True))})
        if moved_exchange.named:
            await database.command(
                _MOVE_SCORES, {**key, "at": moved_exchange.started_at, "cluster": cluster_with(moved_exchange)}
            )
    moved = {moved_exchange.id for moved_exchange in fitting}
    return [move.one.id for move in moves if move.one.id not in moved]


def _row(exchange: Linked, revision: int) -> tuple[Any, ...]:
    return (exchange.id, day_of(exchange.started_at), exchange.started_at, encoded(exchange).decode(), revision)
