"""Sums over long times in the SQLite store: hours and days that are over are added up once and kept in the file.

Triggers on the evaluations remove the sums of an hour and its day whatever writes, changes or deletes one of them. A
sum is announced in the file before its rows are read, and kept only if the announcement is still there after: a late
row in between has removed it. So what is kept is always exact.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from monitors.sqlite import Database
from monitors.stores import Query, Scored, Summary
from monitors.stores.spans import Span, add_scored, add_summaries, cut, joined

S = TypeVar("S", Summary, Scored)
SETTLED_S = 900.0
"""An hour is added up when it is over for so long: until then late scores come all the time."""
MOST_TAGS = 16
"""Tags by which one process keeps sums: names of tags come from the outside."""
MOST_SPANS = 1000
"""More than years of days: then some clock was wrong, and the sums of mostly empty days would be made for hours."""
SCORED = "scored"
_BOUNDS = "SELECT (SELECT min(started_at) FROM evaluations), (SELECT max(started_at) FROM evaluations)"
_KNOWN = "SELECT start, seconds, sums FROM sums WHERE kind = ? AND start >= ? AND start < ?"
_ANNOUNCE = "INSERT OR REPLACE INTO sums (start, seconds, kind, sums) VALUES (?, ?, ?, ?)"
_KEEP = "UPDATE sums SET sums = ? WHERE start = ? AND seconds = ? AND kind = ? AND sums = ?"


class Sums:
    """Adds up over any time; `clock` gives Unix seconds."""

    def __init__(self, writer: Database, reader: Database, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._making = asyncio.Lock()
        self._tags: set[str] = set()

    async def summary(
        self, query: Query, by: str, read: Callable[[Query, str], Awaitable[Sequence[Summary]]]
    ) -> Sequence[Summary]:
        """Do what `Store.summary` does; `read` does it from the rows."""
        kind, wanted = self._kind(query, by)
        if kind is None:
            return await read(query, by)
        found = await self._added(query, kind, lambda part: read(part, kind), add_summaries, list[Summary])
        if kind != by:
            found = [replace(one, slice="") for one in found if one.slice == wanted]
        return add_summaries(found)

    async def scored(self, query: Query, read: Callable[[Query], Awaitable[Sequence[Scored]]]) -> Sequence[Scored]:
        """Do what `Adding.scored` does; `read` does it from the rows."""
        return await self._added(query, SCORED, read, add_scored, list[Scored])

    def _kind(self, query: Query, by: str) -> tuple[str | None, str]:
        """By what the sums must be kept to answer the query, and of which slice; None when the rows are needed."""
        given = {"model": query.model, "prompt": query.prompt}
        sliced = {name: value for name, value in given.items() if value}
        if query.tag is not None:
            sliced[f"tag:{query.tag[0]}"] = query.tag[1]
        others = (query.outcome, query.least, query.most, query.text)
        if any(one is not None for one in others) or "" in given.values() or (query.tag or ("", "x"))[1] == "":
            return None, ""
        if len(sliced) > 1 or (sliced and by):
            return None, ""
        kind, wanted = next(iter(sliced.items()), (by, ""))
        if kind.startswith("tag:") and kind not in self._tags:
            if len(self._tags) >= MOST_TAGS:
                return None, ""
            self._tags.add(kind)
        return kind, wanted

    async def _added(
        self,
        query: Query,
        kind: str,
        read: Callable[[Query], Awaitable[Sequence[S]]],
        add: Callable[[Iterable[S]], list[S]],
        as_type: type[list[S]],
    ) -> list[S]:
        narrow = {"app": query.app, "metric": query.metric}
        spans, times = await self._cut(query)
        known = await self._known(kind, spans, as_type)
        missing = [span for span in spans if span not in known]
        if missing and not any(narrow.values()):
            known |= await self._made(kind, missing, read, add, as_type)
        elif missing:  # a part of the rows has an index of its own, all of them take long
            times += [(float(one.start), float(one.start + one.seconds)) for one in missing]
        found = [
            one
            for some in known.values()
            for one in some
            if query.app in (None, one.app) and query.metric in (None, one.metric)
        ]
        for since, until in joined(times):
            found += await read(Query(since=since, until=until, **narrow))  # type: ignore[arg-type]  # two of its fields
        return add(found)

    async def _cut(self, query: Query) -> tuple[list[Span], list[tuple[float, float]]]:
        over = self._clock() - SETTLED_S
        if not cut(query.since, query.until, over)[0]:
            return [], [(query.since, query.until)]
        async with self._reader.reading() as connection:
            ((first, last),) = await connection.execute_fetchall(_BOUNDS)
        if isinstance(first, float) and isinstance(last, float):
            since, until = max(query.since, first), min(query.until, math.nextafter(last, math.inf))
            spans, times = cut(since, until, over)
            if since < until and len(spans) <= MOST_SPANS:
                return spans, times
        return [], [(query.since, query.until)]

    async def _known(self, kind: str, spans: Sequence[Span], as_type: type[list[S]]) -> dict[Span, list[S]]:
        if not spans:
            return {}
        async with self._reader.reading() as connection:
            rows = await connection.execute_fetchall(_KNOWN, (kind, spans[0].start, spans[-1].start + 1))
        wanted = set(spans)
        found: dict[Span, list[S]] = {}
        for start, seconds, sums in rows:
            span = Span(start, seconds)
            if span in wanted:
                with suppress(msgspec.DecodeError, msgspec.ValidationError):  # one that is only announced, for instance
                    found[span] = msgspec.json.decode(sums, type=as_type)
        return found

    async def _made(
        self,
        kind: str,
        missing: Sequence[Span],
        read: Callable[[Query], Awaitable[Sequence[S]]],
        add: Callable[[Iterable[S]], list[S]],
        as_type: type[list[S]],
    ) -> Mapping[Span, list[S]]:
        """Add up what is missing, an hour at a time so that others who read wait for a moment only."""
        async with self._making:
            found = await self._known(kind, missing, as_type)  # somebody else may have been faster
            for span in missing:
                if span in found:
                    continue
                mark = uuid.uuid4().hex
                await self._write(_ANNOUNCE, (span.start, span.seconds, kind, mark))
                parts: list[Any] = []
                for since, until in span.hours:
                    parts += await read(Query(since=since, until=until))
                found[span] = add(parts)
                sums = msgspec.json.encode(found[span]).decode()
                await self._write(_KEEP, (sums, span.start, span.seconds, kind, mark))
        return found

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        with suppress(sqlite3.Error):  # then it is added up again the next time: reading goes on with a full disk too
            async with self._writer.writing() as connection:
                await connection.execute(statement, values)
