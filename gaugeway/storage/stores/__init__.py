"""Port to the stores of samples, evaluations, and the states of detectors and alerts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from gaugeway.records import Evaluation, Sample, Supplement
from gaugeway.storage.conversations import Linked, Lookup, Move
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.erase import Subject
from gaugeway.storage.sums import Sums, WeightedSums

T = TypeVar("T")

LABELS = {"pass": 1.0, "fail": 0.0}
"""Human labels as ratings."""
WITHDRAWN = "withdrawn"
"""In place of pass or fail: the person takes an earlier label of theirs back."""


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # tens of thousands at once
    """One stored evaluation, flat. `value` is None unless `outcome` is "score"; `reason` is the skip or error word.

    `version` and `judge` made the outcome; `prompt`, `tags` and `cluster` are the sample's, `weight` the evaluation's.
    """

    sample_id: str
    started_at: float
    app: str
    model: str
    metric: str
    outcome: Literal["score", "skipped", "failed"]
    value: float | None
    reason: str
    rate: float
    version: str = ""
    judge: str | None = None
    prompt: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    cluster: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Selects points with `since` <= started_at < `until`; each other field that is not None must match.

    Points of the metrics in `without` are left out. `tag` is a name with its value; `least` <= value <= `most` and
    `outcome` are about the evaluation; `text` stands somewhere in the question or the response, whatever the case of
    ASCII letters. `source` is the id or the source of a passage, without the spaces around it, `session` the sample's.
    `order` is "oldest" or "newest" by started_at, "lowest" or "highest" by value (scores only).
    """

    since: float
    until: float
    metric: str | None = None
    without: tuple[str, ...] = ()
    app: str | None = None
    model: str | None = None
    prompt: str | None = None
    tag: tuple[str, str] | None = None
    outcome: Literal["score", "skipped", "failed"] | None = None
    least: float | None = None
    most: float | None = None
    text: str | None = None
    source: str | None = None
    session: str | None = None
    order: Literal["oldest", "newest", "lowest", "highest"] = "oldest"
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(WeightedSums):
    """The sums over the scores of one app and metric (and slice), beside `failed` failures."""

    app: str
    metric: str
    failed: int
    slice: str = ""

    def __add__(self, other: WeightedSums) -> Summary:
        """Return the sums with those of another time or slice, under the names of this one."""
        failed = self.failed + (other.failed if isinstance(other, Summary) else 0)
        return Summary(**self._added(other), app=self.app, metric=self.metric, failed=failed, slice=self.slice)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSums:
    """Sums over the scores of one app and metric, paired with those of a cheap metric computed for every exchange.

    `sums` are over the exchanges that have a score of the cheap metric, with the probability of being judged given
    that. `alone` scores have none beside them; `missing` evaluations, skipped or failed, should have been scores.
    """

    app: str
    metric: str
    sums: Sums
    alone: int
    missing: int


class LabelledScore(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # thousands at once: made ten times as fast
    """A score with a human label of the same answer: `rating` 1 is good, in whichever direction the metric goes.

    With `source` "rating" it is a rating that somebody gave, or the label pass or fail. With "reference" it is the
    score of `answer_correctness` against a reference that came by feedback. `value` and `rate` are the evaluation's.
    `by` is the name of the person who gave the label, "" where it is not known.
    """

    sample_id: str
    app: str
    metric: str
    value: float
    rate: float
    rating: float
    received_at: float
    source: Literal["rating", "reference"] = "rating"
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSums:
    """The answers of one app that have a score of one metric: how many, the sums of the scores and of their squares.

    Of several scores of one answer the last counts. `least_rate` and `most_rate` are the extremes of their rates.
    """

    app: str
    metric: str
    n: int
    x: float
    x2: float
    least_rate: float
    most_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """The scores of one app, metric and slice that one judge and version of the metric gave in a time, at one rate.

    `n` scores have the sum `x` and the sum of squares `x2`. `bins` are three little-endian float64 for each hundredth k
    of the scale that has some (k/100 <= score < (k + 1)/100, the last closed): k, how many, and what they add up to.
    There are thousands of parts in a month: `gaugeway.storage.stores.rollup_windows.hundredths` reads them all at once.
    """

    since: float
    until: float
    app: str
    metric: str
    slice: str
    version: str
    judge: str | None
    rate: float
    n: int
    x: float
    x2: float
    bins: bytes


SampleField: TypeAlias = Literal["trace_id", "context_key", "session", "response_id"]
"""Fields of a sample by which it is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCount:
    """How many evaluations of one app and metric ended in one outcome; `reason` is "" for scores.

    With the metric "" it counts exchanges, each once: "score" with a score of any metric, else "failed" or "skipped"
    with one of their reasons, "none" if no metric was computed. Signals and whole conversations do not count.
    """

    app: str
    metric: str
    outcome: Literal["score", "skipped", "failed", "none"]
    reason: str
    n: int


class Spent(NamedTuple):
    """The USD that the evaluations of one app and metric cost, whatever their outcome, and how many `scores` they are.

    A call that several metrics share is paid by the one that made it.
    """

    app: str
    metric: str
    usd: float
    scores: int


class Spreads(NamedTuple):
    """Counted scores; whether these are all, or what could be counted within the time that was given."""

    parts: Sequence[ScoreHistogram]
    complete: bool


class Store(Protocol):
    """Append-only evaluations, identified by (sample_id, metric, version), and their samples and supplements.

    A row that cannot be decoded is left out of every answer. Operations raise `engines.failures.FAILURES`; those with a
    body here are Unsupported where an engine does not define them.
    """

    async def add(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Store the sample and its evaluations in one transaction; return those that were not there before.

        What is there stays, with one exception: a sample that only fills gaps of the stored one (what was said about
        it came late, see `storage.joining.completes`) takes its place, and a score or failure of such a sample, or of
        the stored one itself, takes the place of a skip. A skip is the absence of an outcome.
        """

    async def add_each(
        self, some: Sequence[tuple[Sample, Sequence[Evaluation]]]
    ) -> Sequence[Sequence[Evaluation] | Exception]:
        """Do what `add` does for several samples; return of each what `add` returns or raises.

        One that is refused leaves the others as they are. Raises EngineError only when it stored none of them.
        """
        added = await asyncio.gather(*(self.add(*pair) for pair in some), return_exceptions=True)
        return [_returned(result) for result in added]

    async def sample(self, sample_id: str) -> tuple[Sample, Sequence[Evaluation]] | None:
        """Return a sample with all its evaluations, or None."""

    async def conversation(self, name: str, limit: int = 200) -> Sequence[Sample]:
        """Return the last `limit` stored samples of a conversation, the oldest first."""
        raise Unsupported("conversations")

    async def addressed(self, by: SampleField, value: str, since: float, until: float) -> Sequence[Sample]:
        """Return the samples with this value that started from `since` to before `until`; the latest 100, newest first.

        By "session" and "response_id" every sample of that time is looked at: ask for a short one.
        """
        raise Unsupported("the search for samples by trace, key, session and response id")

    async def silent(self, since: float, until: float) -> Sequence[str]:
        """Return the conversations whose last stored sample started from `since` to before `until`, Unix seconds."""
        raise Unsupported("conversations")

    async def questions(self, sample_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the questions of those samples that are stored and have one, by id; a few thousand at once."""

    async def samples(self, sample_ids: Sequence[str]) -> Mapping[str, Sample]:
        """Return those of these samples that are stored, by id; a few hundred at once."""
        found = [await self.sample(sample_id) for sample_id in sample_ids]
        return {stored[0].id: stored[0] for stored in found if stored is not None}

    async def supplement(self, supplements: Sequence[Supplement]) -> Sequence[Sample]:
        """Store supplements, each id once; return the stored samples that these concern, the oldest first.

        Of many samples under one address (a trace without an end) the 100 latest are returned. A supplement that names
        no exchange is not kept.
        """

    async def supplements_of(self, sample: Sample) -> Sequence[Supplement]:
        """Return the supplements that concern a sample, stored or not, in the order received.

        At most 1000, and no more than about `gaugeway.settings.bounds.MAX_HEARD_BYTES` of them.
        """

    async def supplements_of_each(self, samples: Sequence[Sample]) -> Sequence[Sequence[Supplement]]:
        """Do what `supplements_of` does for several samples."""
        return await asyncio.gather(*(self.supplements_of(sample) for sample in samples))

    async def series(self, query: Query) -> Sequence[Point]:
        """Return the points that `query` selects."""

    async def summary(self, query: Query, by: str = "") -> Sequence[Summary]:
        """Return the points that `query` asks for as one summary per app and metric; order and limit do not count.

        `by` "model", "prompt" or "tag:NAME" makes one for each of its values instead, which is then the summary's
        `slice`; points without a value are those of the slice "".
        """

    async def outcomes(self, query: Query) -> Sequence[OutcomeCount]:
        """Return how the exchanges and evaluations in the query's time and app ended; its other fields do not count."""

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        """Return the scores that `query` asks for beside those of the metric `cheap`; order and limit do not count."""

    async def ratings(self, query: Query) -> Sequence[LabelledScore]:
        """Return the scores that `query` selects and that have human labels, in the order in which those were received.

        The `order` of the query does not count. What was said of a trace or key with several exchanges is about the
        last of them. Of several labels that one named person gave for a metric of an answer only the last is returned,
        and none if that one withdraws the label.
        """

    async def prune(self, before: float) -> int:
        """Delete samples (and their evaluations) started before `before`, Unix seconds; return how many samples.

        An engine that keeps the days apart may let the samples of a UTC day go together, when its last one is that old.
        Supplements received before `before` are deleted too.
        """

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> Mapping[str, int]:
        """Delete what is about one person; return how many rows of each kind are deleted (or would be)."""

    def settles(self, queue: object) -> bool:
        """Whether `queue` is in the same database, so that `settle` may be called."""
        return False

    async def settle(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Do what `add` does, and remove the sample from the queue, in one transaction. Only where `settles`."""
        raise Unsupported("one transaction with a queue")

    async def scored(self, query: Query) -> Sequence[ScoreSums]:
        """Return sums of the scores in the query's time, app and metric; its other fields do not count.

        Where it is Unsupported, read the points instead.
        """
        raise Unsupported("sums of scores")

    async def spent(self, query: Query) -> Sequence[Spent]:
        """Return what the evaluations in the query's time and app cost; its other fields do not count."""
        raise Unsupported("spend by metric")

    async def spread(self, query: Query, by: str, within_s: float | None = None) -> Spreads:
        """Return histograms of the scores in the query's time, app and metric; its other fields do not count.

        `by` slices them as in `summary`. Each histogram is of an hour, a day, or what is left at either end. After
        `within_s` seconds the histograms made so far are returned, and the others are made in the background. Where it
        is Unsupported, read the points instead.
        """
        raise Unsupported("histograms of scores")

    async def link(self, some: Sequence[Linked]) -> Sequence[Linked]:
        """Store the links of exchanges, each id once: what is there stays, and is returned.

        They are kept for `conversations.KEPT_S`.
        """
        raise Unsupported("conversations")

    async def links(self, sample_ids: Sequence[str]) -> Sequence[Linked]:
        """Return the stored links of these exchanges."""
        raise Unsupported("conversations")

    async def linked(self, lookups: Sequence[Lookup]) -> Mapping[Lookup, Sequence[Linked]]:
        """Return what each lookup finds, the latest first; at most one more than `conversations.MOST_CANDIDATES`."""
        raise Unsupported("conversations")

    async def place(self, moves: Sequence[Move]) -> Sequence[str]:
        """Put exchanges in their places, and their samples and scores where they are stored; return who was not moved.

        Those are the exchanges that by now continue another one than expected: somebody else decided meanwhile.
        """
        raise Unsupported("conversations")

    async def aclose(self) -> None:
        """Release the connection; calling it twice is harmless."""


def _returned(outcome: T | BaseException) -> T | Exception:
    """Return what `asyncio.gather` found, but raise what ends the process or the task."""
    if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
        raise outcome
    return outcome


class StateStore(Protocol):
    """Small named states (detectors, alerts), saved together or not at all."""

    async def load(self) -> Mapping[str, bytes]:
        """Return every state saved so far."""

    async def save(self, states: Mapping[str, bytes]) -> None:
        """Save all of `states` in one transaction, each replacing the one of the same name."""


class EngineStore(Store, StateStore, Protocol):
    """What an engine stores in one place: samples, evaluations, supplements and states; it can be copied row by row."""

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        """Return the ids of at most `limit` samples, in the engine's order, after the id `after` ("" at first)."""

    async def holds(self, sample_ids: Sequence[str]) -> Mapping[str, int]:
        """Return how many evaluations each of these samples has; samples that are not stored are left out."""

    async def said(self, after: str, limit: int) -> Sequence[tuple[str, Supplement | None]]:
        """Return supplements with their ids, paged like `ids`; None for one that cannot be read."""


def from_url(url: str) -> EngineStore:
    """Return the store that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path` or `postgresql://…/database`.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    store: EngineStore = adapter(url, "store").from_url(url)
    return store
