"""A store that is told no texts: `[capture] content = false` keeps scores and hashes only."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from monitors.records import Evaluation, Failed, Outcome, Sample, Score, Supplement
from monitors.redaction import Redactor
from monitors.runtime.bounds import size
from monitors.storage.erase import Subject
from monitors.storage.stores import (
    LabelledScore,
    PairedSums,
    Point,
    Query,
    ScoreSums,
    Spreads,
    Store,
    Summary,
)

_REMEMBERED, _REMEMBERED_BYTES = 10_000, 64_000_000


class DiscreetStore(Store):
    """Passes everything on to `store` with hashes in place of texts, and without reasons and evidence, which quote.

    What was said about an exchange beside it is remembered here, in memory, for `window_s` seconds: long enough for an
    exchange that waits for it. Nothing that is stored can be completed later, so no stored sample is ever concerned.
    """

    def __init__(
        self, store: Store, redactor: Redactor, *, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._redactor = redactor
        self._window_s = window_s
        self._clock = clock
        self._heard: OrderedDict[str, tuple[float, Supplement]] = OrderedDict()
        self._bytes = 0

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Store hashes; return the evaluations that are new, as they were given."""
        return await self._add(sample, evaluations, self._store.add)

    def settles(self, queue: object) -> bool:
        """Whether the store is in one database with `queue`."""
        return self._store.settles(queue)

    async def settle(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Do what `add` does, and acknowledge the sample, in one transaction; only where `settles` says so."""
        return await self._add(sample, evaluations, self._store.settle)

    async def _add(
        self,
        sample: Sample,
        evaluations: Sequence[Evaluation],
        add: Callable[[Sample, Sequence[Evaluation]], Awaitable[Sequence[Evaluation]]],
    ) -> Sequence[Evaluation]:
        discreet = [replace(one, outcome=_without_words(one.outcome)) for one in evaluations]
        new = await add(self._redactor.without_content(sample), discreet)
        fresh = {(one.metric, one.version) for one in new}
        return [one for one in evaluations if (one.metric, one.version) in fresh]

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        """Return what is stored: hashes."""
        return await self._store.sample(sample_id)

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        """Return what is stored: hashes."""
        return await self._store.questions(sample_ids)

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        """Store hashes, and remember the texts for a while."""
        now = self._clock()
        for one in supplements:
            if (known := self._heard.pop(one.id, None)) is not None:
                self._bytes -= size(known[1])
            self._heard[one.id] = (now + self._window_s, one)
            self._bytes += size(one)
        while self._heard and (self._overfull() or next(iter(self._heard.values()))[0] <= now):
            _, (_, oldest) = self._heard.popitem(last=False)
            self._bytes -= size(oldest)
        await self._store.supplement([self._redactor.supplement_without_content(one) for one in supplements])
        return ()

    def _overfull(self) -> bool:
        return len(self._heard) > _REMEMBERED or self._bytes > _REMEMBERED_BYTES

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        """Return those whose texts are still known; a hash must not be judged."""
        found = await self._store.supplements_of(sample)
        now = self._clock()
        known = (self._heard.get(one.id, (0.0, one)) for one in found)
        return [one for until, one in known if until > now]

    async def series(self, query: Query) -> Sequence[Point]:
        """Return the points that `query` asks for."""
        return await self._store.series(query)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        """Return one summary per app and metric."""
        return await self._store.summary(query, by)

    async def scored(self, query: Query) -> Sequence[ScoreSums] | None:
        """Return scores added up, where the store adds up."""
        return await self._store.scored(query)

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads | None:
        """Return scores counted, where the store counts."""
        return await self._store.spread(query, by, within_s)

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        """Return scores beside those of a cheap metric."""
        return await self._store.paired(query, cheap)

    async def ratings(self, query: Query) -> Sequence[LabelledScore]:
        """Return scores beside what people said."""
        return await self._store.ratings(query)

    async def prune(self, before: float) -> int:
        """Delete what is older."""
        return await self._store.prune(before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete what is stored about one person, and every remembered text."""
        if not dry_run:
            self._heard.clear()
            self._bytes = 0
        return await self._store.forget(subject, dry_run=dry_run)

    async def aclose(self) -> None:
        """Release the connection."""
        await self._store.aclose()


def _without_words(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Score):
        return Score(outcome.value)
    return Failed(outcome.error) if isinstance(outcome, Failed) else outcome
