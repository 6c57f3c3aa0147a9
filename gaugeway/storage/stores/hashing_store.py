"""Wrapper of a store for `[capture] content = false`: only scores and hashes of texts are stored."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cachetools import TTLCache

from gaugeway.records import Evaluation, Failed, Outcome, Sample, Score, Supplement
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import size
from gaugeway.storage.conversations import Linked, Lookup, Move
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import (
    LabelledScore,
    OutcomeCount,
    PairedSums,
    Point,
    Query,
    SampleField,
    ScoreSums,
    Spent,
    Spreads,
    Store,
    Summary,
)

T = TypeVar("T")
_REMEMBERED, _REMEMBERED_BYTES = 10_000, 64_000_000
HOPS_S = 600.0
"""How long the texts of earlier hops are kept in memory for the answer."""


class HashingStore(Store):
    """Stores hashes in place of texts, and drops reasons and evidence, because they quote.

    The texts of supplements stay in memory for `window_s` seconds: long enough for an exchange that waits for them. A
    stored sample can never be completed later, so `supplement` returns none.
    """

    def __init__(
        self, store: Store, redactor: Redactor, *, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._redactor = redactor
        self._recent: TTLCache[str, Supplement] = TTLCache(_REMEMBERED_BYTES, window_s, clock, _bounded(size))
        self._hops: TTLCache[str, Sample] = TTLCache(_REMEMBERED_BYTES, HOPS_S, clock, _bounded(_size))

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Store hashes; return the new evaluations unchanged."""
        return await self._add(sample, evaluations, self._store.add)

    def settles(self, queue: object) -> bool:
        return self._store.settles(queue)

    async def settle(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        return await self._add(sample, evaluations, self._store.settle)

    async def _add(
        self,
        sample: Sample,
        evaluations: Sequence[Evaluation],
        add: Callable[[Sample, Sequence[Evaluation]], Awaitable[Sequence[Evaluation]]],
    ) -> Sequence[Evaluation]:
        self._remember(sample)
        wordless = [replace(evaluation, outcome=_without_words(evaluation.outcome)) for evaluation in evaluations]
        new = await add(self._redactor.without_content(sample), wordless)
        fresh = {(evaluation.metric, evaluation.version) for evaluation in new}
        return [evaluation for evaluation in evaluations if (evaluation.metric, evaluation.version) in fresh]

    def _remember(self, sample: Sample) -> None:
        """Keep a step on the way to an answer until that answer was judged."""
        if sample.conversation is None or sample.skip_reason is None:
            return
        self._hops[sample.id] = sample

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        return await self._store.sample(sample_id)

    async def conversation(self, name: str, limit: int = 200) -> Sequence[Sample]:
        """Return those whose texts are still in memory: hashes must not be judged."""
        remembered = [self._hops.get(hop) for hop in list(self._hops)]  # any may expire meanwhile
        kept = [sample for sample in remembered if sample is not None and sample.conversation == name]
        return sorted(kept, key=lambda sample: (sample.started_at, sample.id))[-limit:]

    async def addressed(self, by: SampleField, value: str, since: float, until: float) -> Sequence[Sample]:
        return await self._store.addressed(by, value, since, until)

    async def silent(self, since: float, until: float) -> Sequence[str]:
        return await self._store.silent(since, until)

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        return await self._store.questions(sample_ids)

    async def samples(self, sample_ids: Sequence[str]) -> Mapping[str, Sample]:
        return await self._store.samples(sample_ids)

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        """Store hashes; keep the texts in memory for `window_s`."""
        self._recent.update((supplement.id, supplement) for supplement in supplements)
        await self._store.supplement(
            [self._redactor.supplement_without_content(supplement) for supplement in supplements]
        )
        return ()

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        """Return those whose texts are still in memory: hashes must not be judged."""
        found = await self._store.supplements_of(sample)
        remembered = [self._recent.get(supplement.id) for supplement in found]
        return [supplement for supplement in remembered if supplement is not None]

    async def series(self, query: Query) -> Sequence[Point]:
        return await self._store.series(query)

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        return await self._store.summary(query, by)

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        return await self._store.scored(query)

    async def spent(self, query: Query) -> Sequence[Spent]:
        return await self._store.spent(query)

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads:
        return await self._store.spread(query, by, within_s)

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        return await self._store.outcomes(query)

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        return await self._store.paired(query, cheap)

    async def ratings(self, query: Query) -> Sequence[LabelledScore]:
        return await self._store.ratings(query)

    async def prune(self, before: float) -> int:
        return await self._store.prune(before)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete from the store, and drop all texts in memory."""
        if not dry_run:
            self._recent.clear()
            self._hops.clear()
        return await self._store.forget(subject, dry_run=dry_run)

    async def link(self, some: Sequence[Linked]) -> Sequence[Linked]:
        return await self._store.link(some)

    async def links(self, sample_ids: Sequence[str]) -> Sequence[Linked]:
        return await self._store.links(sample_ids)

    async def linked(self, lookups: Sequence[Lookup]) -> Mapping[Lookup, Sequence[Linked]]:
        return await self._store.linked(lookups)

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        return await self._store.place(moves)

    async def aclose(self) -> None:
        await self._store.aclose()


def _bounded(size_of: Callable[[T], int]) -> Callable[[T], int]:
    """Return the size that something takes up in a cache: at least its share, so that their number is bounded too."""
    return lambda value: min(_REMEMBERED_BYTES, max(size_of(value), _REMEMBERED_BYTES // _REMEMBERED))


def _size(sample: Sample) -> int:
    """About how many bytes the texts of a sample take up."""
    return len(sample.question or "") + len(sample.response) + sum(len(context.text) for context in sample.contexts)


def _without_words(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Score):
        return Score(outcome.value)
    return Failed(outcome.error) if isinstance(outcome, Failed) else outcome
