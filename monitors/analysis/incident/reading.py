"""Reads the answers on both sides of an alert's onset, and compares the bad ones since with the good ones."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from cachetools import LRUCache
from msgspec import Struct

from gaugeway.records import Alert, Sample, grouped, same_scheme
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.spread_points import spread_points
from gaugeway.storage.stores import Point, Query, Store
from gaugeway.storage.sums import WeightedSums
from gaugeway.text.topics import TopicModel, fit_topics
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import in_slice
from monitors.alerting.stream import usable
from monitors.analysis.answer_clusters import BadSubject, ClusteredAnswer, bad_subjects
from monitors.analysis.captured import OF_TRIAL
from monitors.analysis.human_labels import Passings, default_passing
from monitors.analysis.incident.differences import MAX_TAGS, Answer, Comparison, Trait, compared, cutoff_of
from monitors.analysis.retrieval.sources import Scope
from monitors.statistics.clusters import SESSION, name_of
from monitors.statistics.confidence_sequence import Level, level_of
from monitors.statistics.weighted_mean import hajek_from_sums

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class BackgroundResults(Generic[K, T]):
    """Results by key. The `most` that were used last are kept, and made again when they are `fresh_s` seconds old.

    `clock` gives seconds; `name` is that of the tasks, whose errors are logged under it.
    """

    def __init__(self, *, name: str, fresh_s: float, most: int, clock: Callable[[], float]) -> None:
        self._name = name
        self._fresh_s = fresh_s
        self._most = most
        self._clock = clock
        self._kept: LRUCache[K, tuple[float, T]] = LRUCache(most)
        self._running: dict[K, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, key: K, make: Callable[[], Awaitable[T]], *, within_s: float, final: bool = False) -> T | None:
        """Return the result of a key; None while it is being made, or after an error.

        Waits up to `within_s` seconds for it. An older one is returned while a new one is made; a `final` one does not
        change any more.
        """
        kept = self._kept.get(key)
        if kept is None or (not final and self._clock() - kept[0] > self._fresh_s):
            if key not in self._running and len(self._running) < self._most:
                self._running[key] = spawn(self._make(key, make), name=self._name)
            if kept is None and (task := self._running.get(key)) is not None:
                await asyncio.wait([task], timeout=within_s)
                kept = self._kept.get(key)
        return None if kept is None else kept[1]

    async def _make(self, key: K, make: Callable[[], Awaitable[T]]) -> None:
        try:
            async with self._one_at_a_time:
                found = await make()
            self._kept[key] = self._clock(), found
        finally:
            self._running.pop(key, None)


MAX_ANSWERS = 2_000
"""Answers that are compared on each side of an onset, the latest of each part of that time."""
MAX_TOPICS = 12
MAX_BEFORE_S, MAX_SINCE_S = 86_400.0, 7 * 86_400.0
LEAST_BEFORE_S = 3600.0
"""Answers of up to a day before the onset are compared with those of up to a week since."""
MAX_MOVED, LEAST_MOVE = 6, 0.03  # internal bound: a sentence for people
"""Other metrics that are named, and how far the mean of one has moved at least."""
MAX_KEPT = 16
"""Alerts whose comparison is kept."""
AT_ONCE = 200
FRESH_S = 120.0
"""How old a comparison, or topics, may become: making one takes about a second of computing."""
_HASHED = "blake2b:"
_LONGEST_QUESTION = 300

Namer: TypeAlias = Callable[[Sample], Sequence[str]]
"""Names the passages of a sample."""


class Moved(Struct, frozen=True, kw_only=True):
    """Another metric or signal of the app whose mean moved with the onset."""

    metric: str
    before: Level
    since: Level


class IncidentReport(Struct, frozen=True, kw_only=True):
    """What the bad answers of an alert have in common, from answers in [`before`, `onset`) and [`onset`, `until`).

    `complete`: all answers of that time were compared, not only the latest of each part of it. `sessions` is the number
    of named sessions with a bad answer, `requests` about how many requests were answered badly, scored or not; None
    without `complete`. `subjects` are what the bad answers are about more often than the good ones, `moved` what moved
    with the alert's metric, the farthest first.
    """

    comparison: Comparison
    before: float
    onset: float
    until: float
    complete: bool
    sessions: int = 0
    requests: float | None = None
    subjects: tuple[BadSubject, ...] = ()
    moved: tuple[Moved, ...] = ()


class Topics(Struct, frozen=True, kw_only=True):
    """The topics found in the questions of exchanges; `model` is None for too few of them.

    `complete`: these are all exchanges of the selection.
    """

    model: TopicModel | None
    complete: bool

    @property
    def topic(self) -> Mapping[str, str]:
        """The topic of each of these exchanges, by id."""
        return {} if self.model is None else self.model.own


class IncidentReports:
    """Compares the answers of alerts in the background; the comparisons of the latest 16 are kept for two minutes.

    `names` names the passages of a sample, `passing` knows the thresholds of the metrics.
    """

    def __init__(
        self, store: Store, *, names: Namer, passing: Passings = default_passing, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._names = names
        self._passing = passing
        self._clock = clock
        self._reports: BackgroundResults[str, IncidentReport] = BackgroundResults(
            name="comparing the answers of an alert", fresh_s=FRESH_S, most=MAX_KEPT, clock=clock
        )

    async def report(self, alert: Alert, *, within_s: float) -> IncidentReport | None:
        """Return the comparison of an alert; None while it is being made. Waits up to `within_s` seconds for it."""

        async def make() -> IncidentReport:
            return await incident_report(
                self._store, alert, names=self._names, passing=self._passing, now=self._clock()
            )

        over = alert.state == "resolved"
        return await self._reports.get(f"{alert.fingerprint} {alert.state}", make, within_s=within_s, final=over)


def incident_span(alert: Alert, now: float) -> tuple[float, float, float]:
    """Return the start of the time before, the onset, and the end of the time since: whole Unix seconds."""
    onset = float(math.floor(alert.finding.onset))
    until = float(math.ceil(min(now if alert.ended_at is None else alert.ended_at, onset + MAX_SINCE_S)))
    length = min(MAX_BEFORE_S, max(LEAST_BEFORE_S, until - onset))
    return onset - length, onset, max(until, onset + 1.0)


def incident_query(alert: Alert, since: float, until: float) -> Query:
    """Return the query for the evaluations of an alert's app, metric and slice."""
    app = None if alert.app == ALL else alert.app
    return in_slice(Query(since=since, until=until, metric=alert.metric, app=app), alert.slice)


async def incident_report(
    store: Store, alert: Alert, *, names: Namer, passing: Passings = default_passing, now: float
) -> IncidentReport:
    """Read the answers of an alert and compare them. Takes about a second for 2,000 answers on each side."""
    before, onset, until = incident_span(alert, now)
    old, all_old = await scored_points(store, incident_query(alert, before, onset), MAX_ANSWERS)
    new, all_new = await scored_points(store, incident_query(alert, onset, until), MAX_ANSWERS)
    read = await _read(store, [point.sample_id for point in (*old, *new)], names)
    moved = await _moved(store, alert, before, onset, until)
    rule = passing(alert.metric)
    means = (alert.mean_before, alert.mean_since)

    def compare() -> IncidentReport:
        model = _fitted_topics(read, new)
        topic = {**model.own, **model.of(_questions(read, old))} if model is not None else {}
        prompts = same_scheme(point.prompt for side in (old, new) for point in side)
        answers = [
            [_answer(point, read.get(point.sample_id), topic, prompts=prompts) for point in side] for side in (old, new)
        ]
        cutoff = cutoff_of(
            [answer.value for answer in answers[1]],
            threshold=rule.threshold,
            flipped=rule.flipped if alert.direction is None else alert.direction == "rise",
            before=means[0],
            since=means[1],
        )
        bad = [answer for answer in answers[1] if cutoff.is_bad(answer.value)]
        asked = [
            ClusteredAnswer(
                id=answer.id,
                started_at=answer.started_at,
                rate=answer.rate,
                question=read[answer.id].question,
                is_bad=cutoff.is_bad(answer.value),
                cluster=answer.cluster,
            )
            for answer in answers[1]
            if answer.id in read
        ]
        scope = Scope(app=alert.app, metric=alert.metric, since=onset, until=until)
        return IncidentReport(
            comparison=compared(answers[1], answers[0], cutoff),
            before=before,
            onset=onset,
            until=until,
            complete=all_old and all_new,
            sessions=len({name for answer in bad if (name := name_of(answer.cluster, SESSION))}),
            requests=sum(1.0 / answer.rate for answer in bad) if all_new else None,
            subjects=bad_subjects(asked, scope),
            moved=moved,
        )

    return await asyncio.to_thread(compare)


async def _moved(store: Store, alert: Alert, before: float, onset: float, until: float) -> tuple[Moved, ...]:
    """Return other metrics whose 95 % intervals before and since an onset are apart, and means by `LEAST_MOVE`."""
    levels: list[dict[str, Level]] = []
    for begin, end in ((before, onset), (onset, until)):
        sums = await store.summary(replace(incident_query(alert, begin, end), metric=None))
        by_metric = grouped((one.metric, one) for one in sums if OF_TRIAL not in one.metric)
        found = {name: level_of(hajek_from_sums(sum(some, WeightedSums()))) for name, some in by_metric.items()}
        levels.append({name: level for name, level in found.items() if level is not None})
    moved = [
        Moved(metric=name, before=old, since=levels[1][name])
        for name, old in levels[0].items()
        if name in levels[1] and name != alert.metric and _are_apart(old, levels[1][name])
    ]
    return tuple(sorted(moved, key=lambda one: -abs(one.since.mean - one.before.mean))[:MAX_MOVED])


def _are_apart(one: Level, other: Level) -> bool:
    return one.overlaps(other) is False and abs(one.mean - other.mean) >= LEAST_MOVE


async def scored_points(store: Store, query: Query, most: int) -> tuple[list[Point], bool]:
    """Return one score for each exchange of a query, `most` at most, and whether these are all.

    More scores than that are read evenly over the time.
    """
    points, complete = await spread_points(store, replace(query, outcome="score"), most)
    found: dict[str, Point] = {}
    for point in points:
        if usable(point):
            found.setdefault(point.sample_id, point)
    return list(found.values()), complete


async def read_samples(store: Store, ids: Iterable[str]) -> Mapping[str, Sample]:
    """Return stored samples by id."""
    return {name: sample async for some in _samples(store, ids) for name, sample in some.items()}


async def _samples(store: Store, ids: Iterable[str]) -> AsyncIterator[Mapping[str, Sample]]:
    """Yield stored samples by id, a few hundred at once."""
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), AT_ONCE):
        yield await store.samples(wanted[start : start + AT_ONCE])


class _Read(NamedTuple):
    """What is compared of a stored exchange; thousands of them are in memory at once, without their texts."""

    question: str
    sources: tuple[str, ...]


async def _read(store: Store, ids: Iterable[str], names: Namer) -> Mapping[str, _Read]:
    """Return what is compared of stored exchanges by id."""

    def kept(samples: Mapping[str, Sample]) -> dict[str, _Read]:
        return {
            name: _Read(_question(sample), tuple(dict.fromkeys(source for source in names(sample) if source)))
            for name, sample in samples.items()
        }

    found: dict[str, _Read] = {}
    async for some in _samples(store, ids):
        found |= await asyncio.to_thread(kept, some)
    return found


def _fitted_topics(read: Mapping[str, _Read], points: Sequence[Point]) -> TopicModel | None:
    """Return the topics of the questions of some exchanges; None for too few of them."""
    return fit_topics(_questions(read, points), k=MAX_TOPICS)


def _questions(read: Mapping[str, _Read], points: Sequence[Point]) -> Mapping[str, str]:
    found = ((point.sample_id, read.get(point.sample_id)) for point in points)
    return {name: exchange.question for name, exchange in found if exchange is not None and exchange.question}


class TopicReports:
    """The topics of the exchanges of a selection, found in the background and kept like the comparisons of alerts."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._topics: BackgroundResults[Query, Topics] = BackgroundResults(
            name="finding topics", fresh_s=FRESH_S, most=MAX_KEPT, clock=clock
        )

    async def topics(self, query: Query, *, within_s: float) -> Topics | None:
        """Return the topics of the latest exchanges of each part of a query's time; None while they are being found.

        The same query gives the same topics as the comparison of an alert. Waits up to `within_s` seconds.
        """

        async def make() -> Topics:
            points, complete = await scored_points(self._store, query, MAX_ANSWERS)
            read = await _read(self._store, [point.sample_id for point in points], _no_names)
            model = await asyncio.to_thread(_fitted_topics, read, points)
            return Topics(model=model, complete=complete)

        return await self._topics.get(query, make, within_s=within_s)

    async def of(self, found: Topics, ids: Sequence[str]) -> Mapping[str, str]:
        """Return the topics of any exchanges by id, each the nearest one of those found."""
        unknown = [sample_id for sample_id in dict.fromkeys(ids) if sample_id not in found.topic]
        read = await _read(self._store, unknown, _no_names)
        others = {name: exchange.question for name, exchange in read.items() if exchange.question}
        more = found.model.of(others) if found.model is not None else {}
        return {
            sample_id: topic
            for sample_id in ids
            if (topic := found.topic.get(sample_id) or more.get(sample_id)) is not None
        }


def _no_names(_: Sample) -> Sequence[str]:
    return ()


def _question(sample: Sample) -> str:
    question = sample.question or ""
    return "" if question.startswith(_HASHED) else question[:_LONGEST_QUESTION]


def _answer(point: Point, read: _Read | None, topic: Mapping[str, str], *, prompts: bool) -> Answer:
    traits = [Trait("model", point.model)]
    traits += [Trait("prompt", point.prompt)] if point.prompt and prompts else []
    traits += [Trait(f"tag:{name}", value) for name, value in sorted(point.tags.items())[:MAX_TAGS]]
    if read is not None:
        traits += [Trait("source", name) for name in read.sources]
    if point.sample_id in topic:
        traits.append(Trait("topic", topic[point.sample_id]))
    return Answer(
        id=point.sample_id,
        started_at=point.started_at,
        rate=point.rate,
        value=point.value or 0.0,
        traits=tuple(traits),
        cluster=point.cluster,
    )
