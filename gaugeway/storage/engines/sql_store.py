"""What the stores of SQL engines do alike: each brings its statements, and runs them in its own way."""

from __future__ import annotations

import asyncio
import math
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from gaugeway.records import Sample, Supplement
from gaugeway.storage import stores
from gaugeway.storage.conversations import Linked, Lookup
from gaugeway.storage.engines.conditions import BY_VALUE, Conditions, days_between
from gaugeway.storage.erase import Subject, Trail
from gaugeway.storage.joining import Address, address_of
from gaugeway.storage.stores import ratings, rows
from gaugeway.storage.stores.rollup_windows import Span
from gaugeway.storage.stores.rollups import Rollups

Row: TypeAlias = Sequence[Any]
Statement: TypeAlias = tuple[str, Sequence[Any]]
"""Its text, and its parameters, which are numbered from 1."""
COLUMNS = {"exchange": "id", "key": "context_key", "trace": "trace_id"}
"""The columns of samples by the kind of an address."""
_PAGE = 500
_SHORT_S = 6 * 3600.0
"""A time in which an index by time finds the first places of a query as soon as one by value."""


@dataclass(eq=False)
class RowSums:
    """Adds up the rows of a store; `fetch_each` returns the rows of statements, from one state where an engine can.

    `complain` is called with what cannot be read.
    """

    conditions: type[Conditions]
    fetch_each: Callable[[Sequence[Statement]], Awaitable[Sequence[list[Any]]]]
    complain: Callable[[str], None]

    async def summary(self, query: stores.Query, by: str = "") -> Sequence[stores.Summary]:
        """Do what `Store.summary` does."""
        (groups,) = await self.fetch_each([self.conditions(query, by=by).statement("summary")])
        return self._summaries(groups)

    async def scored(self, query: stores.Query) -> Sequence[stores.ScoreSums]:
        """Do what `Store.scored` does."""
        (groups,) = await self.fetch_each([self.conditions(query).statement("scored")])
        return rows.scored(groups)

    async def spread(self, query: stores.Query, by: str) -> Sequence[stores.ScoreHistogram]:
        """Return histograms over all of the query's time."""
        (groups,) = await self.fetch_each([self.conditions(query, by=by).statement("spread")])
        return rows.spreads(groups, query.since, query.until)

    async def outcomes(self, query: stores.Query) -> Sequence[stores.OutcomeCount]:
        """Do what `Store.outcomes` does."""
        names = "outcomes", "exchanges"
        found = await self.fetch_each([self.conditions(query).statement(name) for name in names])
        return rows.outcomes([row for some in found for row in some])

    async def paired(self, query: stores.Query, cheap: str) -> Sequence[stores.PairedSums]:
        """Do what `Store.paired` does."""
        of_cheap = replace(query, metric=cheap, without=())
        pairs = self.conditions(query, cheap=cheap).statement("paired")
        return rows.paired(*await self.fetch_each([pairs, self.conditions(of_cheap).statement("cheap")]))

    def _summaries(self, groups: Iterable[Row]) -> Sequence[stores.Summary]:
        """Add up groups of app, metric, slice and what `rows.Totals` takes."""
        summaries: dict[tuple[str, str, str], rows.Totals] = {}
        unreadable = 0
        for app, metric, part, *group in groups:
            unreadable += summaries.setdefault((app, metric, part), rows.Totals()).add(group)
        if unreadable:
            self.complain(f"{unreadable} evaluations hold no number")
        return [sums.summary(*key) for key, sums in summaries.items()]


class SqlStore(rows.Lenient, stores.EngineStore):
    """A store whose statements stand in `conditions.sql`."""

    conditions: ClassVar[type[Conditions]]
    _rows: RowSums

    @property
    def _sql(self) -> Mapping[str, str]:
        return self.conditions.sql

    @abstractmethod
    async def _fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a statement."""

    @abstractmethod
    async def _payloads(self, sample_ids: Sequence[str]) -> Sequence[Row]:
        """Return rows of the payloads of these samples."""

    @abstractmethod
    async def _supplement(self, addressed: Sequence[tuple[Supplement, Address]]) -> Iterable[Row]:
        """Store supplements; return rows of the samples that they concern, each once."""

    @abstractmethod
    async def _link(self, some: Sequence[Linked]) -> Iterable[Row]:
        """Store links; return rows of those that were there, which begin with the payload."""

    @abstractmethod
    async def _links_of(self, sample_ids: Sequence[str]) -> Iterable[Row]:
        """Return rows of stored links, which begin with the payload."""

    @abstractmethod
    async def _look_up(self, wanted: Sequence[Lookup]) -> Iterable[tuple[int, str]]:
        """Return what each lookup finds, the latest first: its place in `wanted`, and the payload."""

    @abstractmethod
    async def _erase(self, samples: Sequence[Row], supplement_ids: Sequence[str], *, dry_run: bool) -> int:
        """Delete supplements, then samples; return how many evaluations these have.

        Samples are rows of the statement `all_samples` without the payload.
        """

    async def conversation(self, name: str, limit: int = 200) -> Sequence[Sample]:
        return self._read(rows.placed_sample, await self._fetch(self._sql["conversation"], (name, limit)))[::-1]

    async def addressed(self, by: stores.SampleField, value: str, since: float, until: float) -> Sequence[Sample]:
        times = self._times(since, until)
        if by in COLUMNS.values():
            found = await self._fetch(self._sql["addressed_by_key"].format(column=by), (value, *times))
        else:
            found = await self._fetch(self._sql["addressed_by_text"], (rows.field_text(by, value), *times))
        return self._read(rows.placed_sample, found)

    async def silent(self, since: float, until: float) -> Sequence[str]:
        return [row[0] for row in await self._fetch(self._sql["silent"], self._times(since, until))]

    def _times(self, since: float, until: float) -> tuple[float, ...]:
        """Return the parameters of a time: with its days, where these have partitions."""
        return (since, until, *days_between(since, until))

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        return rows.questions(row[0] for row in await self._payloads(sample_ids))

    async def samples(self, sample_ids: Sequence[str]) -> Mapping[str, Sample]:
        return await asyncio.to_thread(rows.samples, [row[0] for row in (await self._payloads(sample_ids))])

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        addressed: dict[str, tuple[Supplement, Address]] = {}
        for supplement in supplements:
            if (address := address_of(supplement)) is not None:
                addressed.setdefault(supplement.id, (supplement, address))
        concerned = await self._supplement(list(addressed.values())) if addressed else ()
        return sorted(self._read(rows.sample, concerned), key=lambda sample: (sample.started_at, sample.id))

    async def summary(self, query: stores.Query, by: str = "") -> Sequence[stores.Summary]:
        return await self._rows.summary(query, by)

    async def outcomes(self, query: stores.Query) -> Sequence[stores.OutcomeCount]:
        return await self._rows.outcomes(query)

    async def paired(self, query: stores.Query, cheap: str) -> Sequence[stores.PairedSums]:
        return await self._rows.paired(query, cheap)

    async def spent(self, query: stores.Query) -> Sequence[stores.Spent]:
        return [stores.Spent(*row) for row in await self._fetch(*self.conditions(query).statement("spent"))]

    async def ratings(self, query: stores.Query) -> Sequence[stores.LabelledScore]:
        found = await self._fetch(*self.conditions(query).statement("ratings"))
        return ratings.effective(label for pair in self._read(ratings.Reader().pair, found) for label in pair)

    async def link(self, some: Sequence[Linked]) -> Sequence[Linked]:
        return self._read(rows.linked, await self._link(some))

    async def links(self, sample_ids: Sequence[str]) -> Sequence[Linked]:
        return self._read(rows.linked, await self._links_of(sample_ids))

    async def linked(self, lookups: Sequence[Lookup]) -> Mapping[Lookup, Sequence[Linked]]:
        wanted = list(dict.fromkeys(lookups))
        found: dict[Lookup, list[Linked]] = {lookup: [] for lookup in wanted}
        for place, payload in await self._look_up(wanted):
            found[wanted[place]] += self._read(rows.linked, [(payload,)])
        return found

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete samples, their evaluations, and the supplements that are about them or hold the text themselves.

        Samples go last: after a failure another run still finds by them what was said about them.
        """
        trail = Trail(subject)
        samples: dict[Row, Row] = {}
        async for *columns, payload in self._all("samples", self._before_samples):
            if trail.sample(columns[-1], payload):
                samples[tuple(columns[:2])] = columns
        addresses = {(kind, self._stored(value)) for kind, value in trail.addresses}
        supplements = [
            sample_id
            async for *_, kind, value, sample_id, payload in self._all("supplements", self._before_supplements)
            if (kind, value) in addresses or trail.supplement(sample_id, payload)
        ]
        said = list(dict.fromkeys(supplements))
        evaluations = await self._erase(list(samples.values()), said, dry_run=dry_run)
        return {"samples": len(samples), "evaluations": evaluations, "supplements": len(said)}

    _before_samples: ClassVar[Row]
    _before_supplements: ClassVar[Row]
    """What is less than the columns by which the pages of these tables are read."""

    async def _all(self, table: str, after: Row) -> AsyncIterator[Row]:
        """Read a table page by page; rows begin with the columns that `after` is about, and end with id and payload."""
        while found := await self._fetch(self._sql[f"all_{table}"], (*after, _PAGE)):
            after = found[-1][: len(after)]
            for row in found:
                yield row

    @staticmethod
    def _stored(text: str) -> str:
        """Return a text as the engine stores it."""
        return text

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        return [row[0] for row in await self._fetch(self._sql["ids"], (after, limit))]

    async def said(self, after: str, limit: int) -> Sequence[tuple[str, Supplement | None]]:
        found = await self._fetch(self._sql["said"], (after, limit))
        return [(row[0], next(iter(self._read(rows.supplement, [row[1:]])), None)) for row in found]

    async def load(self) -> Mapping[str, bytes]:
        return {row[0]: row[1] for row in await self._fetch(self._sql["load_states"])}


class RollupStore(SqlStore):
    """A store that keeps sums in its table `sums`, and whose index finds the highest and lowest scores."""

    _sums: Rollups

    def _adding_up(self, sums: RowSums) -> None:
        self._rows = sums
        self._sums = Rollups(self, sums, clock=time.time)

    async def series(self, query: stores.Query) -> Sequence[stores.Point]:
        narrowed = query.model, query.prompt, query.tag, query.text, query.source, query.session
        long = query.until - query.since > _SHORT_S
        if (
            query.order in BY_VALUE
            and long
            and query.limit is not None
            and not any(part is not None for part in narrowed)
        ):
            return await self._by_value(query)
        return await self._points(query)

    async def _by_value(self, query: stores.Query) -> Sequence[stores.Point]:
        """Return the lowest or highest scores: the index orders one metric, so each is queried separately."""
        names = await self._metrics(query) if query.metric is None else (query.metric,)
        found: list[stores.Point] = []
        for name in names:
            of_metric = replace(query, metric=name)
            lowest = query.order == "lowest"
            found += await (self._indexed_points(of_metric, None) if lowest else self._highest(of_metric))
        sign = 1.0 if query.order == "lowest" else -1.0
        return sorted(found, key=lambda point: (sign * (point.value or 0.0), point.started_at))[: query.limit]

    async def _highest(self, query: stores.Query) -> Sequence[stores.Point]:
        """The highest of a metric. Equal ones go by time as with the lowest, the index has them the other way round.

        Of a score that all of many have, the first are read only: first what is above the last place, then that place.
        """
        if (value := await self._top(query)) is None:
            return await self._indexed_points(query, None)
        found = await self._indexed_points(replace(query, least=math.nextafter(value, math.inf)), None)
        return [*found, *await self._indexed_points(replace(query, limit=(query.limit or 0) - len(found)), value)]

    @abstractmethod
    async def _points(self, query: stores.Query) -> Sequence[stores.Point]:
        """Return the points that a query selects."""

    @abstractmethod
    async def _indexed_points(self, query: stores.Query, exactly: float | None) -> Sequence[stores.Point]:
        """Return the points that an indexed query selects, or those of one value."""

    @abstractmethod
    async def _metrics(self, query: stores.Query) -> Iterable[str]:
        """Return the metrics that have scores in the query's time, perhaps others too."""

    async def _top(self, query: stores.Query) -> float | None:
        """Return the value at the last place of the highest scores that a query of one metric asks for."""
        return next((row[0] for row in await self._fetch(*self.conditions(query).statement("top"))), None)

    async def summary(self, query: stores.Query, by: str = "") -> Sequence[stores.Summary]:
        return await self._sums.summary(query, by)

    async def scored(self, query: stores.Query) -> Sequence[stores.ScoreSums]:
        return await self._sums.scored(query)

    async def spread(self, query: stores.Query, by: str, within_s: float | None = None) -> stores.Spreads:
        return await self._sums.spread(query, by, within_s)

    async def outcomes(self, query: stores.Query) -> Sequence[stores.OutcomeCount]:
        return await self._sums.outcomes(query)

    @abstractmethod
    async def _change(self, statement: str, values: Sequence[Any]) -> int:
        """Run a statement that writes; return how many rows it changed."""

    async def bounds(self) -> tuple[Any, Any]:
        """Do what `rollups.Kept.bounds` does."""
        ((first, last),) = await self._fetch(self._sql["bounds"])
        return first, last

    async def known_sums(self, kind: str, first: int, last: int) -> Iterable[Row]:
        """Do what `rollups.Kept.known_sums` does."""
        return await self._fetch(self._sql["known_sums"], (kind, first, last))

    async def announce_sums(self, span: Span, kind: str, mark: str) -> None:
        """Do what `rollups.Kept.announce_sums` does."""
        await self._change(self._sql["announce_sums"], (*span, kind, mark))

    async def keep_sums(self, span: Span, kind: str, mark: str, sums: str) -> None:
        """Do what `rollups.Kept.keep_sums` does."""
        await self._change(self._sql["keep_sums"], (*span, kind, mark, sums))


def named(values: Sequence[Any]) -> Mapping[str, Any]:
    """Return values by the names of their placeholders: `v1`, `v2`, ..."""
    return {f"v{place}": value for place, value in enumerate(values, 1)}
