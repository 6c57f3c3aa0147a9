"""Rollups: sums over past hours and days are computed once and stored beside the rows.

Triggers on the evaluations remove the sums of an hour and its day whatever writes, changes or deletes one of them. A
sum is announced before its rows are read, and kept only if the announcement is still there after: a late
row in between has removed it. So what is kept is always exact.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.stores import OutcomeCount, Query, ScoreHistogram, ScoreSums, Spreads, Summary
from gaugeway.storage.stores.rollup_windows import (
    DAY_S,
    HOUR_S,
    SETTLED_S,
    Span,
    add_outcomes,
    add_scored,
    add_spreads,
    add_summaries,
    cut,
    joined,
    next_step,
)

S = TypeVar("S", Summary, ScoreSums, ScoreHistogram, OutcomeCount)
MOST_TAGS = 16
"""Tags by which one process keeps sums: names of tags come from the outside."""
MOST_SPANS = 1000  # internal bound: days of one query, by the clock of whoever asks
"""More than years of days: then some clock was wrong, and the sums of mostly empty days would be made for hours."""
AT_ONCE, ROWS = 8, 20_000
"""Spans that are added up at once, and about how many rows one look reads, of an hour at least."""
STEP_S, LEAST_S, LOOK_S = 300.0, 60.0, 0.05
"""What is read at once beforehand: the first time, the least, and how many seconds it may take."""
_VERSIONS = "model", "prompt"
_WINDOWS = 1, 7, 30
"""Days back that pages and the API look."""
SCORED, SPREAD, OUTCOMES = "scored", "hundredths:", "outcomes"
"""Of what kind sums are; another way to write one down has another name, so that versions of this may run together."""


class Kept(Protocol):
    """Where rollups are stored. Operations raise EngineError."""

    async def bounds(self) -> tuple[Any, Any]:
        """When the first and the last evaluation began; None without any."""

    async def known_sums(self, kind: str, first: int, last: int) -> Iterable[Sequence[Any]]:
        """Start, seconds and sums of the spans of a kind that start in [first, last)."""

    async def announce_sums(self, span: Span, kind: str, mark: str) -> None:
        """Put a mark in place of the sums. Whoever changes a row of the span, and is not done yet, removes it."""

    async def keep_sums(self, span: Span, kind: str, mark: str, sums: str) -> None:
        """Put the sums in place of the mark, if it is still there."""


class Rows(Protocol):
    """Adds up the rows themselves, as the methods of `Store` with these names do."""

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        """Return summaries."""

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        """Return sums of the last scores of answers."""

    async def spread(self, query: Query, by: str) -> Sequence[ScoreHistogram]:
        """Return histograms over all of the query's time."""

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        """Return counts of outcomes."""


@dataclass(frozen=True, slots=True)
class _Kind(Generic[S]):
    """One kind of sums: the name under which they are kept, how they are read from rows, added and decoded."""

    name: str
    read: Callable[[Query], Awaitable[Sequence[S]]]
    add: Callable[[Iterable[S]], list[S]]
    as_type: type[list[S]]


class Rollups:
    """Adds up over any time what `rows` adds up over a short one; `clock` gives Unix seconds."""

    def __init__(self, kept: Kept, rows: Rows, clock: Callable[[], float]) -> None:
        self._kept = kept
        self._rows = rows
        self._clock = clock
        self._making: WeakValueDictionary[tuple[str, Span], asyncio.Lock] = WeakValueDictionary()
        self._at_once, self._step_s = AT_ONCE, dict[str, float]()
        self._tags: set[str] = set()
        self._counting: dict[str, asyncio.Task[Any]] = {}

    async def aclose(self) -> None:
        """Stop counting."""
        for task in self._counting.values():
            task.cancel()
        await asyncio.gather(*self._counting.values(), return_exceptions=True)
        self._counting.clear()

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        """Do what `Store.summary` does."""
        name, wanted = self._kind(query, by)
        if name is None:
            return await self._rows.summary(query, by)
        kind = _Kind(name, partial(self._rows.summary, by=name), add_summaries, list[Summary])
        found = await self._added(query, kind)
        if name != by:
            found = [replace(summary, slice="") for summary in found if summary.slice == wanted]
        return add_summaries(found)

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        """Do what `Store.scored` does."""
        return await self._added(query, _Kind(SCORED, self._rows.scored, add_scored, list[ScoreSums]))

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        """Do what `Store.outcomes` does."""
        narrow = Query(since=query.since, until=query.until, app=query.app)
        return await self._added(narrow, _Kind(OUTCOMES, self._rows.outcomes, add_outcomes, list[OutcomeCount]))

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads:
        """Do what `Store.spread` does."""
        deadline = math.inf if within_s is None else time.monotonic() + within_s
        spans, times = await self._cut(query)
        read = partial(self._rows.spread, by=by)
        if self._keeps(by):
            kind = _Kind(SPREAD + by, read, add_spreads, list[ScoreHistogram])
            found, complete = await self._counted(kind, spans, deadline)
        else:
            hours = [hour for span in spans for hour in span.hours]
            found, complete = await _latest(query, hours, deadline, read)
        found = _narrowed(found, query)
        for since, until in joined(times):
            found += await read(Query(since=since, until=until, app=query.app, metric=query.metric))
        return Spreads(sorted(found, key=lambda histogram: histogram.since), complete)

    async def _counted(
        self, kind: _Kind[ScoreHistogram], spans: Sequence[Span], deadline: float
    ) -> tuple[list[ScoreHistogram], bool]:
        """What is counted of these spans by the deadline, and whether that is all; counting goes on after it."""
        earlier = self._counting.get(kind.name)
        known = await self._known(kind, spans)
        while (missing := [span for span in spans if span not in known]) and time.monotonic() < deadline:
            if (task := self._counting.get(kind.name)) is None or task.done():
                making = self._made(kind, missing)
                task = self._counting[kind.name] = spawn(making, name="counting scores", is_retried=True)
            await asyncio.wait({task}, timeout=None if deadline == math.inf else deadline - time.monotonic())
            known |= await self._known(kind, missing)
            if task.done() and task is not earlier:  # that one may have read before the latest rows were written
                known |= {span: some for span, some in task.result().items() if span in missing}
        return [histogram for some in known.values() for histogram in some], not missing

    async def ready(self, since: float, rows: Rows) -> None:
        """Add up what is over, before anybody asks: in all, for labels, and by what tells versions apart everywhere.

        Of the days in which the usual windows begin the hours, too: there are none of days that were written at once.
        `rows` reads on a connection of its own.
        """
        slow = copy(self)  # whoever asks in the meantime does not wait for it
        slow._rows, slow._at_once, slow._making = _Leisurely(rows), 1, WeakValueDictionary()  # noqa: SLF001 - itself
        held = await self._held()
        for query in [] if held is None else _beforehand(max(since, held[0]), self._clock()):
            await slow.summary(query)
            await slow.scored(query)
            await slow.outcomes(query)
            for by in _VERSIONS:
                await slow.spread(query, by)

    def _keeps(self, by: str) -> bool:
        """Whether sums by this are kept: of few tags only."""
        if by.startswith("tag:") and by not in self._tags:
            if len(self._tags) >= MOST_TAGS:
                return False
            self._tags.add(by)
        return True

    def _kind(self, query: Query, by: str) -> tuple[str | None, str]:
        """By what the sums must be kept to answer the query, and of which slice; None when the rows are needed."""
        given = {"model": query.model, "prompt": query.prompt}
        sliced = {name: value for name, value in given.items() if value}
        if query.tag is not None:
            sliced[f"tag:{query.tag[0]}"] = query.tag[1]
        others = (query.outcome, query.least, query.most, query.text, query.source, query.session)
        if (
            any(condition is not None for condition in others)
            or "" in given.values()
            or (query.tag or ("", "x"))[1] == ""
        ):
            return None, ""
        if len(sliced) > 1 or (sliced and by):
            return None, ""
        kind, wanted = next(iter(sliced.items()), (by, ""))
        return (kind, wanted) if self._keeps(kind) else (None, "")

    async def _added(self, query: Query, kind: _Kind[S]) -> list[S]:
        spans, times = await self._cut(query)
        known = await self._known(kind, spans)
        missing = [span for span in spans if span not in known]
        if missing and not (query.app or query.metric):
            known |= await self._made(kind, missing)
        elif missing:  # a part of the rows has an index of its own, all of them take long
            times += [(float(bucket.start), float(bucket.start + bucket.seconds)) for bucket in missing]
        found = _narrowed([sums for some in known.values() for sums in some], query)
        for since, until in joined(times):
            found += await kind.read(Query(since=since, until=until, app=query.app, metric=query.metric))
        return kind.add(found)

    async def _cut(self, query: Query) -> tuple[list[Span], list[tuple[float, float]]]:
        if not cut(query.since, query.until, (over := self._clock() - SETTLED_S))[0]:
            return [], [(query.since, query.until)]
        if (held := await self._held()) is not None:
            since, until = max(query.since, held[0]), min(query.until, held[1])
            if since >= until:
                return [], []
            spans, times = cut(since, until, over)
            if len(spans) <= MOST_SPANS:
                return spans, times
        return [], [(query.since, query.until)]

    async def _held(self) -> tuple[float, float] | None:
        """The whole hours from the first row's to the last row's: these two are kept, too, once they are over."""
        first, last = await self._kept.bounds()
        if not isinstance(first, float) or not isinstance(last, float):
            return None
        return first // HOUR_S * HOUR_S, last // HOUR_S * HOUR_S + HOUR_S

    async def _known(self, kind: _Kind[S], spans: Sequence[Span]) -> dict[Span, list[S]]:
        if not spans:
            return {}
        rows = await self._kept.known_sums(kind.name, spans[0].start, spans[-1].start + 1)
        wanted = set(spans)
        found: dict[Span, list[S]] = {}
        for start, seconds, sums in rows:
            if (span := Span(start, seconds)) in wanted:
                with suppress(msgspec.DecodeError, msgspec.ValidationError):  # one that is only announced, for instance
                    found[span] = msgspec.json.decode(sums, type=kind.as_type)
        return found

    async def _made(self, kind: _Kind[S], missing: Sequence[Span]) -> Mapping[Span, list[S]]:
        """Add up what is missing, a few spans at once: on a busy machine each look at the store waits for its turn."""
        found: dict[Span, list[S]] = {}
        for start in range(0, len(missing), self._at_once):
            some = missing[start : start + self._at_once]
            found |= zip(some, await asyncio.gather(*(self._made_once(kind, span) for span in some)), strict=True)
        return found

    async def _made_once(self, kind: _Kind[S], span: Span) -> list[S]:
        lock = self._making.setdefault((kind.name, span), asyncio.Lock())
        waited = lock.locked()
        async with lock:
            if waited and (known := await self._known(kind, [span])):
                return known[span]
            mark = uuid.uuid4().hex
            with suppress(EngineError):  # then nothing is kept: reading goes on with a full disk too
                await self._kept.announce_sums(span, kind.name, mark)
            found = kind.add(await self._parts(kind, span))
            with suppress(EngineError):
                await self._kept.keep_sums(span, kind.name, mark, msgspec.json.encode(found).decode())
            return found

    async def _parts(self, kind: _Kind[S], span: Span) -> list[S]:
        """The sums of parts of a span that have about `ROWS` each, so that others who read wait for a moment only.

        Their number counts, not how long they took: on a busy machine that says little about them.
        """
        found: list[S] = []
        at, end = float(span.start), float(span.start + span.seconds)
        while at < end:
            step_s = self._step_s.get(kind.name, HOUR_S)
            some = await kind.read(Query(since=at, until=min(at + step_s, end)))
            at += step_s
            found += some
            rows = sum(part.n for part in some)
            if at <= end or rows > ROWS:  # a shorter look says nothing about longer ones
                share = rows / ROWS
                self._step_s[kind.name] = next_step(step_s, share, quick_s=0.5, least_s=HOUR_S, most_s=DAY_S)
        return found


def _beforehand(since: float, now: float) -> Sequence[Query]:
    """What is added up before anybody asks, the latest first, a day at most at a time: little is in memory at once.

    Whole hours that are over: of others nothing is kept, their rows would be read in vain.
    """
    over = math.floor((now - SETTLED_S) / HOUR_S) * HOUR_S
    since = max(since, over - MOST_SPANS * DAY_S)
    found = []
    for start, end in [(since, over), *((now - days * DAY_S, now - (days - 1) * DAY_S) for days in _WINDOWS)]:
        begin, until = math.ceil(max(start, since) / HOUR_S) * HOUR_S, min(math.floor(end / HOUR_S) * HOUR_S, over)
        while begin < until:
            midnight = begin // DAY_S * DAY_S + DAY_S
            found.append(Query(since=float(begin), until=float(min(midnight, until))))
            begin = midnight
    return found[::-1]


def _narrowed(sums: Iterable[S], query: Query) -> list[S]:
    """Return those of the query's app and metric."""
    return [part for part in sums if query.app in (None, part.app) and query.metric in (None, part.metric)]


async def _latest(
    query: Query,
    hours: list[tuple[float, float]],
    deadline: float,
    read: Callable[[Query], Awaitable[Sequence[ScoreHistogram]]],
) -> tuple[list[ScoreHistogram], bool]:
    """What can be read of the latest hours by the deadline, and whether that is all: nothing of it is kept."""
    found: list[ScoreHistogram] = []
    while hours and time.monotonic() < deadline:
        since, until = hours.pop()
        found += await read(Query(since=since, until=until, app=query.app, metric=query.metric))
    return found, not hours


class _Leisurely:
    """Reads step by step, and rests for as long as each took: what is done beforehand must not slow those down who ask.

    Nor may it look at one state of the store for long: SQLite's write-ahead log grows for as long as anybody does. So
    a step is as long as can be read within `LOOK_S`.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._step_s: defaultdict[str, float] = defaultdict(lambda: STEP_S)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return add_summaries(await self._steps("summary", query, partial(self._rows.summary, by=by)))

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        return add_scored(await self._steps("scored", query, self._rows.scored))

    async def spread(self, query: Query, by: str) -> Sequence[ScoreHistogram]:
        found = await self._steps("spread", query, partial(self._rows.spread, by=by))
        return [replace(histogram, since=query.since, until=query.until) for histogram in add_spreads(found)]

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        return add_outcomes(await self._steps("outcomes", query, self._rows.outcomes))

    async def _steps(self, kind: str, query: Query, read: Callable[[Query], Awaitable[Sequence[S]]]) -> Sequence[S]:
        found: list[S] = []
        at = query.since
        while at < query.until:
            begin, until = time.monotonic(), min(at + self._step_s[kind], query.until)
            found += await read(replace(query, since=at, until=until))
            took = time.monotonic() - begin
            at = until
            self._step_s[kind] = next_step(self._step_s[kind], took, quick_s=LOOK_S, least_s=LEAST_S, most_s=DAY_S)
            await asyncio.sleep(took)
        return found
