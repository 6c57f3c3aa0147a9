"""Wrapper of a store for `[capture] content = false`: only scores and hashes of texts are stored."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from cachetools import TTLCache

from gaugeway.records import Evaluation, Failed, Outcome, Sample, Score, Supplement
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import size
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import Store

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])
_REMEMBERED, _REMEMBERED_BYTES = 10_000, 64_000_000
HOPS_S = 600.0
"""How long the texts of earlier hops are kept in memory for the answer."""


def _passed_on(method: Method) -> Method:
    """Make a method of the wrapper that calls the one of the store behind it."""

    def passed_on(self: HashingStore, *arguments: Any, **named: Any) -> Any:
        return getattr(self._store, method.__name__)(*arguments, **named)

    return cast("Method", passed_on)


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

    settles = _passed_on(Store.settles)
    sample = _passed_on(Store.sample)
    addressed = _passed_on(Store.addressed)
    silent = _passed_on(Store.silent)
    questions = _passed_on(Store.questions)
    samples = _passed_on(Store.samples)
    series = _passed_on(Store.series)
    summary = _passed_on(Store.summary)
    scored = _passed_on(Store.scored)
    spent = _passed_on(Store.spent)
    spread = _passed_on(Store.spread)
    outcomes = _passed_on(Store.outcomes)
    paired = _passed_on(Store.paired)
    ratings = _passed_on(Store.ratings)
    prune = _passed_on(Store.prune)
    link = _passed_on(Store.link)
    links = _passed_on(Store.links)
    linked = _passed_on(Store.linked)
    place = _passed_on(Store.place)
    aclose = _passed_on(Store.aclose)

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Store hashes; return the new evaluations unchanged."""
        return await self._add(sample, evaluations, self._store.add)

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

    async def conversation(self, name: str, limit: int = 200) -> Sequence[Sample]:
        """Return those whose texts are still in memory: hashes must not be judged."""
        remembered = [self._hops.get(hop) for hop in list(self._hops)]  # any may expire meanwhile
        kept = [sample for sample in remembered if sample is not None and sample.conversation == name]
        return sorted(kept, key=lambda sample: (sample.started_at, sample.id))[-limit:]

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

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete from the store, and drop all texts in memory."""
        if not dry_run:
            self._recent.clear()
            self._hops.clear()
        return await self._store.forget(subject, dry_run=dry_run)


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
