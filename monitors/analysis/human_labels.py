"""Human labels: the judge's mean corrected by them, agreement with the judge, and how many labels are needed."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from cachetools import LRUCache
from msgspec import Struct

from gaugeway.records import Sample, Supplement
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import LabelledScore, Point, Query, ScoreSums, Store
from gaugeway.storage.stores.rollup_windows import next_step
from monitors.alerting.stream import on_scale, usable
from monitors.metrics import lower_is_better
from monitors.metrics.registry import THRESHOLD, THRESHOLD_IF_LOW_IS_GOOD, Catalogue, zero_is_best
from monitors.statistics.agreement import MIN_LABELS, Corrected, Interval, corrected_mean, kappa, labels_needed, rates

T = TypeVar("T")
HALF_WIDTH = 0.03
WINDOW_S = 30 * 86_400.0
LABEL_PASSES = 0.5
_UNLIKE = 3.0
_EQUAL = 1.01
_STEP_S = 86_400.0


class Passing(Struct, frozen=True, kw_only=True):
    """The passing rule of a metric: at least `threshold`, or at most if 0 is best (`flipped`)."""

    threshold: float
    flipped: bool

    def passes(self, score: float) -> bool:
        """Return whether the score passes."""
        return score <= self.threshold if self.flipped else score >= self.threshold


Passings: TypeAlias = Callable[[str], Passing]


def label_of(sample: Sample, metric: str, word: str, by: str, now: float) -> Supplement:
    """The label as it is stored: for this metric, by this person, for exchanges of the answer's own app only."""
    return Supplement(
        id=uuid.uuid4().hex,
        received_at=now,
        source="feedback",
        exchange_id=sample.id,
        app=sample.app,
        label=f"{metric}:{word}",
        by=by,
    )


class Labelled(Struct, frozen=True, kw_only=True):
    """The labels of one app and metric, on the metric's own scale.

    `raw` is the judge's mean over `scores` answers, `people` the mean of the `labels`. The corrected mean and its 95 %
    interval need 10 labels and are valid for randomly drawn answers. Agreement compares label >= 1/2 with the metric's
    threshold; it is None without labels of both kinds. `needed` is the total number of labels for an interval of
    +- `half_width`, None if no number suffices. `notes` are problems with the labels.
    """

    app: str
    metric: str
    source: Literal["rating", "reference"]
    scores: int
    labels: int
    raw: float
    half_width: float
    people: float | None = None
    corrected_mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    correlation: float | None = None
    saving: float | None = None
    kappa: Interval | None = None
    sensitivity: Interval | None = None
    specificity: Interval | None = None
    needed: int | None = None
    notes: tuple[str, ...] = ()


def label(
    rated: Sequence[LabelledScore], scored: Iterable[ScoreSums], *, passing: Passings, half_width: float = HALF_WIDTH
) -> list[Labelled]:
    """Evaluate the labels of a window by app, metric and source of the labels; `scored` are the sums of all scores.

    Of several scores of one answer the last counts, of several labels their mean. Apps and metrics without labels are
    included, for the number needed. Raises ValueError for a half-width that is not positive.
    """
    if not half_width > 0.0:
        raise ValueError(f"the half-width must be positive, got {half_width!r}")
    scores = _labelled_scores(rated)
    totals = {(sums.app, sums.metric): sums for sums in scored}
    said: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    for labelled_score in rated:
        by_source = said.setdefault((labelled_score.app, labelled_score.metric), {})
        given = by_source.setdefault(labelled_score.source, {})
        given.setdefault(labelled_score.sample_id, []).append(labelled_score.rating)
    found = []
    for app, metric in sorted(totals):
        of, sources = scores.get((app, metric), {}), said.get((app, metric), {})
        for source in ("rating", "reference"):
            if source in sources or (source == "rating" and not sources):
                means = {name: math.fsum(all_) / len(all_) for name, all_ in sources.get(source, {}).items()}
                labels = {name: mean for name, mean in means.items() if name in of}
                total = totals[app, metric]
                found.append(_labelled(total, source, of, labels, passing=passing(metric), half_width=half_width))
    return found


def _labelled_scores(rated: Iterable[LabelledScore]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the scores of the labelled answers, by app and metric."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for labelled_score in rated:
        if 0.0 <= labelled_score.value <= 1.0 and 0.0 < labelled_score.rate <= 1.0:
            own = found.setdefault((labelled_score.app, labelled_score.metric), {})
            own[labelled_score.sample_id] = labelled_score.value
    return found


def sums_of(points: Iterable[Point]) -> list[ScoreSums]:
    """Add up scores by app and metric, of several scores of one answer the last."""
    last: dict[tuple[str, str], dict[str, Point]] = {}
    for point in filter(usable, points):
        last.setdefault((point.app, point.metric), {})[point.sample_id] = point
    found = []
    for (app, metric), some in last.items():
        values = [point.value or 0.0 for point in some.values()]
        rates_ = [point.rate for point in some.values()]
        x, x2 = math.fsum(values), math.fsum(value * value for value in values)
        sums = ScoreSums(
            app=app, metric=metric, n=len(values), x=x, x2=x2, least_rate=min(rates_), most_rate=max(rates_)
        )
        found.append(sums)
    return found


def drawn(ids: Iterable[str], count: int) -> list[str]:
    """Return the first `count` ids in a stable pseudo-random order, so that a larger draw extends a smaller one.

    >>> drawn(["a", "b", "c"], 2), drawn(["c", "b", "a"], 3)
    (['b', 'c'], ['b', 'c', 'a'])
    """
    return sorted(ids, key=position)[:count]


def position(sample_id: str) -> bytes:
    """Return an exchange's place in the random order in which answers are drawn for labelling."""
    return blake2b(sample_id.encode(), digest_size=8, person=b"labels").digest()


def _labelled(
    total: ScoreSums,
    source: Literal["rating", "reference"],
    scores: Mapping[str, float],
    labels: Mapping[str, float],
    *,
    passing: Passing,
    half_width: float,
) -> Labelled:
    names = list(labels)
    judged = [scores[name] for name in names]
    own = [on_scale(labels[name], flipped=passing.flipped) for name in names]
    found = corrected_mean(own, judged, total.n, x=total.x) if len(own) >= MIN_LABELS else None
    good = [labels[name] >= LABEL_PASSES for name in names]
    said = [passing.passes(score) for score in judged]
    sensitivity, specificity = _or_none(lambda: rates(good, said)) or (None, None)
    needed, notes = _plan(own, found, half_width, total.n)
    return Labelled(
        app=total.app,
        metric=total.metric,
        source=source,
        scores=total.n,
        labels=len(own),
        raw=total.x / total.n,
        half_width=half_width,
        people=math.fsum(own) / len(own) if own else None,
        corrected_mean=found.corrected.value if found else None,
        ci_low=found.corrected.low if found else None,
        ci_high=found.corrected.high if found else None,
        correlation=found.correlation if found else None,
        saving=found.saving if found else None,
        kappa=_or_none(lambda: kappa(_table(good, said))),
        sensitivity=sensitivity,
        specificity=specificity,
        needed=needed,
        notes=(*notes, *_doubts(judged, total)),
    )


def _plan(
    labels: Sequence[float], found: Corrected | None, half_width: float, answers: int
) -> tuple[int | None, list[str]]:
    """Return the number of labels needed; without labels, for the largest variance and an uncorrelated judge."""
    sd = 0.5
    if found is not None:
        sd = min(sd, math.sqrt((0.25 + len(labels) * float(np.var(labels))) / (len(labels) + 1.0)))
    try:
        correlation = found.correlation if found else 0.0
        return labels_needed(half_width, sd=sd, correlation=correlation, n_all=answers), []
    except ValueError as error:
        return None, [str(error)]


def _doubts(judged: Sequence[float], total: ScoreSums) -> list[str]:
    """Return signs that the labels are not a random sample of the traffic."""
    doubts = []
    if len(judged) >= MIN_LABELS and total.n > len(judged):
        mean = total.x / total.n
        sd = math.sqrt(max(0.0, total.x2 / total.n - mean * mean))
        error = sd * math.sqrt(1.0 / len(judged) - 1.0 / total.n)
        seen = float(np.mean(judged))
        if error > 0.0 and abs(seen - mean) > _UNLIKE * error:
            doubts.append(
                f"the labelled answers are not a random sample: judge's mean {seen:.3f} on them, {mean:.3f} on all"
            )
    if total.most_rate > _EQUAL * total.least_rate:
        doubts.append("sampling rates changed in this time: the means are over the judged answers, not all traffic")
    return doubts


def _table(labels: Sequence[bool], verdicts: Sequence[bool]) -> list[list[int]]:
    pairs = list(zip(labels, verdicts, strict=True))
    return [[pairs.count((people, judge)) for judge in (True, False)] for people in (True, False)]


def _or_none(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except ValueError:  # undefined for labels of one kind only, or none
        return None


def default_passing(metric: str) -> Passing:
    """Return the default passing rule of a metric."""
    flipped = zero_is_best(metric.partition("~")[0])
    return Passing(threshold=THRESHOLD_IF_LOW_IS_GOOD if flipped else THRESHOLD, flipped=flipped)


def passings(catalogue: Catalogue) -> Passings:
    """Return the passing rules of the enabled metrics; defaults for all others."""
    known = {
        enabled.metric.name: Passing(threshold=enabled.threshold, flipped=lower_is_better(enabled.metric))
        for enabled in catalogue.enabled
    }
    return lambda metric: known.get(metric.partition("~")[0]) or default_passing(metric)


async def labelled(
    store: Store, query: Query, *, passing: Passings = default_passing, half_width: float = HALF_WIDTH
) -> list[Labelled]:
    """Evaluate the labels of a window: all labelled metrics, and the query's metric even without labels."""
    rated = await store.ratings(query)
    streams = {(labelled_score.app, labelled_score.metric) for labelled_score in rated}
    if query.metric is None and not streams:
        return []
    try:
        sums = await store.scored(query)
    except Unsupported:  # this engine keeps no sums
        metrics = {query.metric} if query.metric is not None else {metric for _, metric in streams}
        points = [point for metric in sorted(metrics) for point in await scores(store, replace(query, metric=metric))]
        sums = await asyncio.to_thread(sums_of, points)  # hundreds of thousands would block the event loop
    if query.metric is None:
        sums = [stream_sums for stream_sums in sums if (stream_sums.app, stream_sums.metric) in streams]
    return await asyncio.to_thread(label, rated, sums, passing=passing, half_width=half_width)


async def scores(store: Store, query: Query) -> list[Point]:
    """Read the scores of a query, a day at a time so that no single query is long."""
    found: list[Point] = []
    at = query.since
    while at < query.until:
        until = min(at + _STEP_S, query.until)
        found += await store.series(replace(query, since=at, until=until, outcome="score"))
        at = until
    return found


MAX_DRAWN = 5_000
"""Answers that are kept of one app and metric; more are not labelled within 30 days."""
MAX_DRAWS = 16
"""Apps and metrics whose draws are kept."""
FRESH_S = 600.0
"""After so long the answers that were judged meanwhile are drawn from, too."""
STEP_S, LEAST_STEP_S, QUICK_S = 3_600.0, 60.0, 0.05
"""Scores are read in steps that take about `QUICK_S`, so that other queries wait for a moment only."""


class Draw(Struct, frozen=True, kw_only=True):
    """Judged answers of the last 30 days in random order, `answers` of which were read; all if `complete`."""

    ids: Sequence[str]
    answers: int
    complete: bool

    def following(self, after: str, without: Collection[str]) -> Iterator[str]:
        """Yield the ids after `after` and then those before it, except `without`; from the start for ""."""
        start = bisect_right(self.ids, position(after), key=position) if after else 0
        return (
            sample_id
            for sample_id in (*self.ids[start:], *self.ids[:start])
            if sample_id not in without and sample_id != after
        )


class _Reading(Struct, kw_only=True):
    """A draw in progress."""

    began: float
    places: list[tuple[bytes, str]] = []
    answers: int = 0
    complete: bool = False
    task: asyncio.Task[None] | None = None

    def add(self, ids: Collection[str]) -> None:
        self.answers += len(ids)
        found = {*self.places, *((position(sample_id), sample_id) for sample_id in ids)}
        self.places = heapq.nsmallest(MAX_DRAWN, found)

    def draw(self) -> Draw:
        return Draw(ids=[name for _, name in self.places], answers=self.answers, complete=self.complete)


class ReviewDraws:
    """Draws answers that have a score of a metric, each with the same probability, whatever its score.

    The order is that of `human_labels.drawn`: the answers labelled so far are at any time a simple random sample of the
    judged answers, as `corrected_mean` requires, and labels that `gaugeway labels --output` asked for fit in.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float] = time.time, stopping: asyncio.Event | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._stopping = stopping or asyncio.Event()
        self._done: LRUCache[tuple[str, str], _Reading] = LRUCache(MAX_DRAWS)
        self._running: dict[tuple[str, str], _Reading] = {}

    async def draw(self, app: str, metric: str, within_s: float) -> Draw:
        """Return the draw, as far as it was read within `within_s` seconds; reading goes on after that.

        A draw is read again after `FRESH_S`; until that is done the earlier one is returned.
        """
        key = (app, metric)
        known = self._done.get(key)
        if known is not None and self._clock() - known.began < FRESH_S:
            return known.draw()
        reading = self._running.get(key)
        if reading is None:
            if len(self._running) >= MAX_DRAWS:
                return known.draw() if known is not None else Draw(ids=(), answers=0, complete=False)
            reading = self._running[key] = _Reading(began=self._clock())
            reading.task = spawn(self._read(key, reading), name="drawing answers to label")
        assert reading.task is not None  # noqa: S101 - for the type checker
        await asyncio.wait({reading.task}, timeout=within_s)
        if reading.task.done() and (error := reading.task.exception()) is not None:
            raise error
        return known.draw() if known is not None and not reading.complete else reading.draw()

    async def _read(self, key: tuple[str, str], reading: _Reading) -> None:
        """Read the scores of the last 30 days, the latest first, until `stopping` is set."""
        app, metric = key
        until, step_s = reading.began + 1.0, STEP_S
        first = until - WINDOW_S
        try:
            while until > first:
                if self._stopping.is_set():
                    return
                since, began = max(first, until - step_s), time.monotonic()
                query = Query(since=since, until=until, app=app, metric=metric, outcome="score")
                reading.add({point.sample_id for point in await self._store.series(query)})
                until = since
                took = time.monotonic() - began
                step_s = next_step(step_s, took, quick_s=QUICK_S, least_s=LEAST_STEP_S, most_s=WINDOW_S / 4)
                await asyncio.sleep(took)  # others take turns
            reading.complete = True
            self._done[key] = reading
        finally:
            self._running.pop(key, None)
