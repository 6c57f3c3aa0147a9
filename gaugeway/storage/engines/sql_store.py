"""What the stores of SQL engines do alike: each brings its statements, and runs them in its own way."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeAlias

from gaugeway.records import Sample, Supplement
from gaugeway.storage.conversations import Linked, Lookup, Move
from gaugeway.storage.stores import (
    EngineStore,
    LabelledScore,
    OutcomeCount,
    PairedSums,
    Query,
    SampleField,
    Summary,
    ratings,
    rows,
)
from gaugeway.storage.stores.calendar import days_between

Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Of the placeholders of a statement; those of a sequence are numbered from 1, `v1` where they have names."""


class LinkTables(Protocol):
    """Where an engine stores what joins exchanges to conversations; rows begin with the payload."""

    async def link(self, some: Sequence[Linked]) -> Iterable[Row]:
        """Store links; return rows of those that were there."""

    async def links(self, sample_ids: Sequence[str]) -> Iterable[Row]:
        """Return rows of stored links."""

    async def look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        """Return what each lookup finds, the latest first: its place in `wanted`, and the payload."""

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        """Move what is still where it was expected; return the others."""


class SqlStore(rows.Lenient, EngineStore):
    """A store whose `_queries` is the module of the engine's statements."""

    _queries: ModuleType
    _links: LinkTables
    _CONVERSATION: ClassVar[str]
    _ADDRESSED_BY: ClassVar[Mapping[str, str]]
    _SILENT: ClassVar[str]
    _IDS: ClassVar[str]
    _SAID: ClassVar[str]

    @abstractmethod
    async def _fetch(self, statement: str, values: Values) -> list[Any]:
        """Return the rows of a statement."""

    @abstractmethod
    async def _fetch_each(self, *statements: tuple[str, Values]) -> list[list[Any]]:
        """Return the rows of several statements, from one state of the store where the engine can."""

    @abstractmethod
    async def _payloads(self, sample_ids: Sequence[str]) -> Sequence[Row]:
        """Return rows of the payloads of these samples."""

    async def conversation(self, name: str, limit: int = 200) -> Sequence[Sample]:
        return self._read(rows.placed_sample, await self._fetch(self._CONVERSATION, (name, limit)))[::-1]

    async def addressed(self, by: SampleField, value: str, since: float, until: float) -> Sequence[Sample]:
        wanted = value if by in ("trace_id", "context_key") else rows.field_text(by, value)
        values = (wanted, since, until, *days_between(since, until))
        return self._read(rows.placed_sample, await self._fetch(self._ADDRESSED_BY[by], values))

    async def silent(self, since: float, until: float) -> Sequence[str]:
        values = (since, until, *days_between(since, until))
        return [row[0] for row in await self._fetch(self._SILENT, values)]

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        return rows.questions(row[0] for row in await self._payloads(sample_ids))

    async def samples(self, sample_ids: Sequence[str]) -> Mapping[str, Sample]:
        stored = await self._payloads(sample_ids)
        return await asyncio.to_thread(rows.samples, [row[0] for row in stored])

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        return await self._outcomes(query)

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        return rows.paired(
            *await self._fetch_each(self._queries.paired(query, cheap), self._queries.cheap(query, cheap))
        )

    async def ratings(self, query: Query) -> Sequence[LabelledScore]:
        found = await self._fetch(*self._queries.ratings(query))
        return ratings.effective(label for pair in self._read(ratings.Reader().pair, found) for label in pair)

    async def link(self, some: Sequence[Linked]) -> Sequence[Linked]:
        return self._read(rows.linked, await self._links.link(some))

    async def links(self, sample_ids: Sequence[str]) -> Sequence[Linked]:
        return self._read(rows.linked, await self._links.links(sample_ids))

    async def linked(self, lookups: Sequence[Lookup]) -> Mapping[Lookup, Sequence[Linked]]:
        wanted = list(dict.fromkeys(lookups))
        found: dict[Lookup, list[Linked]] = {lookup: [] for lookup in wanted}
        for place, payload in await self._links.look_up(wanted):
            found[wanted[place]] += self._read(rows.linked, [(payload,)])
        return found

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        return await self._links.place(moves)

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        return [row[0] for row in await self._fetch(self._IDS, (after, limit))]

    async def said(self, after: str, limit: int) -> Sequence[tuple[str, Supplement | None]]:
        found = await self._fetch(self._SAID, (after, limit))
        return [(row[0], next(iter(self._read(rows.supplement, [row[1:]])), None)) for row in found]

    async def _outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        found = await self._fetch_each(self._queries.outcomes(query), self._queries.exchanges(query))
        return rows.outcomes([row for some in found for row in some])

    def _summaries(self, groups: Iterable[Row]) -> Sequence[Summary]:
        """Add up groups of app, metric, slice and what `rows.Totals` takes."""
        summaries: dict[tuple[str, str, str], rows.Totals] = {}
        unreadable = 0
        for app, metric, part, *group in groups:
            unreadable += summaries.setdefault((app, metric, part), rows.Totals()).add(group)
        if unreadable:
            self._complain(f"{unreadable} evaluations hold no number")
        return [sums.summary(*key) for key, sums in summaries.items()]


def named(values: Values) -> Mapping[str, Any]:
    """Return values by name: those of a sequence are `v1`, `v2`, ..."""
    return values if isinstance(values, Mapping) else {f"v{place}": value for place, value in enumerate(values, 1)}
