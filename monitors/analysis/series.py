"""Means of a metric over time, step by step: read from the store within a time budget, settled steps from a cache."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace as replace_struct

from gaugeway.records import Alert
from gaugeway.runtime.tasks import spawn
from gaugeway.settings.shared import Rule
from gaugeway.storage.stores import Query, Store, Summary
from gaugeway.storage.sums import WeightedSums
from monitors.alerting.changes import Version
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL, name_of
from monitors.analysis.quality import largest
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.weighted_mean import hajek_from_sums

HOUR_S = 3600.0
STEPS_S = (60.0, 120.0, 300.0, 900.0, 1800.0, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S, 7 * 24 * HOUR_S)
"""The steps there are: they begin at multiples of their length, so that all who ask share what was read."""
MAX_POINTS, USUAL_POINTS = 400, 170
"""Steps of an answer, and of one whose step nobody chose."""
MAX_GROUPS = 20
"""Groups of an answer: those with the most scores."""
MAX_SLICES = 200
"""Groups of a step that are kept."""
MAX_STREAMS = 1000
"""Apps and metrics of an hour that are kept: those with the most scores."""
MAX_YOUNG_STREAMS = 300
"""Of a shorter step, of which the overview reads more."""
MAX_REMEMBERED = 50_000
"""Sums that are kept, of all steps together."""
MAX_STEPS = 5_000  # internal bound: names of metrics of each, a tenth of the sums
"""Steps of an app of which it is known what metrics have scores in them."""
MAX_READING = 16
"""Steps that are read at once, of all requests together."""
FRESH_S, RECENT_S, SETTLED_S, OLD_S = 10.0, 60.0, 2 * HOUR_S, 900.0
"""A step is read again after 10 s; after a minute if it ended 5 minutes before, after 15 if it ended 2 hours before."""
_LATE_S = 300.0
HELD_S = 120.0
"""A step that is to be read again is shown for so long while that goes on: a busy machine may take longer than 10 s to
read all steps of a view, which would then never be complete."""
FEW_POINTS, PER_STEP, CALM_STEPS, CALM = 40, 13, 24, 100
"""Steps that are read first where nobody chose a step. The ones shown have about 13 effective scores each, more than
the 10 that a mean needs; up to 100, where that leaves 24 steps: their intervals are narrow enough to see a change."""
DAILY_FROM_S = 14 * 24 * HOUR_S
"""Longer ranges have daily steps, unless others are asked for: the stores have the sums of days beforehand."""
READING_S = 0.2
"""How long a request waits for the store; what it has read by then is remembered for the next one."""

Stream: TypeAlias = tuple[str, str]
"""App and metric."""
Effects = Mapping[tuple[str, str, str], float]


class SeriesPoint(Struct, frozen=True, kw_only=True):
    """The mean of a step that begins at `at` (Unix time, seconds), from `n` scores.

    `mean` and its 95 % interval are None below an effective sample size `n_eff` of 10.
    """

    at: float
    n: int
    n_eff: float
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


class SeriesGroup(Struct, frozen=True, kw_only=True):
    """The steps of one group that have a score, the oldest first; `slice` is "" without a grouping or value.

    `total` is of all steps together; its interval stays valid however often it is looked at.
    """

    slice: str
    n: int
    points: Sequence[SeriesPoint]
    total: SeriesPoint


class SeriesQuery(Struct, frozen=True, kw_only=True):
    """What to read: a metric of an app by "", "model", "prompt" or "tag:NAME".

    From the step that holds `since` to the one before `until` (Unix times); `step_s` as `chosen_step` gives it.
    """

    app: str
    metric: str
    since: float
    until: float
    step_s: float
    by: str = ""

    @property
    def steps(self) -> range:
        """The indexes of the steps; one begins at its index times `step_s`."""
        return range(math.floor(self.since / self.step_s), math.ceil(self.until / self.step_s))


class Series(Struct, frozen=True, kw_only=True):
    """Groups with the most scores first. `more_groups` are left out.

    Without `complete` only the steps from `read_since` on were read in time: repeat the request to read more.
    """

    groups: Sequence[SeriesGroup]
    more_groups: int
    complete: bool
    read_since: float


def chosen_step(seconds: float, asked_s: float | None = None, points: int = USUAL_POINTS) -> float:
    """The step for a range: the smallest of at least `asked_s` that gives `MAX_POINTS` at most; in weeks beyond those.

    Without `asked_s` it gives `points` at most.

    >>> chosen_step(3600.0), chosen_step(86_400.0), chosen_step(30 * 86_400.0), chosen_step(86_400.0, 60.0)
    (60.0, 900.0, 86400.0, 300.0)
    """
    most = MAX_POINTS if asked_s is not None else points
    least_s = max(asked_s or 0.0, seconds / (most - 1))
    if asked_s is None and seconds > DAILY_FROM_S:
        least_s = max(least_s, 24 * HOUR_S)
    week = STEPS_S[-1]
    return next((step_s for step_s in STEPS_S if step_s >= least_s), math.ceil(least_s / week) * week)


def fitted(query: SeriesQuery, found: Series, points: int = USUAL_POINTS) -> SeriesQuery:
    """The query with the shortest steps whose scores allow a mean, `points` of them at most.

    A range whose first half has no score begins at the first one, so that the first hour of an app is no single dot.
    """
    if not found.complete or not found.groups:
        return query
    starts = [point.at for group in found.groups for point in group.points]
    first = max(query.since, min(starts))
    since = first if first > (query.since + query.until) / 2 else query.since
    scored_s = min(query.until, max(starts) + query.step_s) - first
    scores = max(1.0, found.groups[0].total.n_eff)
    needed_s = max(PER_STEP, min(CALM, scores / CALM_STEPS)) * scored_s / scores
    step_s = max(needed_s, chosen_step(query.until - since, points=points))
    return replace_struct(query, since=since, step_s=next((step for step in STEPS_S if step >= step_s), query.step_s))


def lifetime(over_s: float) -> float:
    """How long the sums of a step hold that ended `over_s` before they were read: late scores become rare.

    >>> lifetime(-5.0), lifetime(600.0), lifetime(86_400.0)
    (10.0, 60.0, 900.0)
    """
    return OLD_S if over_s > SETTLED_S else RECENT_S if over_s > _LATE_S else FRESH_S


@dataclass(frozen=True, slots=True)
class _Key:
    """One step of a metric of an app; of all apps and metrics where these are ""."""

    app: str
    metric: str
    by: str
    step_s: float
    index: int

    @property
    def start(self) -> float:
        return self.index * self.step_s

    @property
    def end(self) -> float:
        return self.start + self.step_s


class SeriesReader:
    """Reads series from a store. `effects` gives the design effects of the watched streams by app, metric and slice.

    Steps that are over and as long as an hour or more are read for every app at once, because the stores keep such
    sums; others by app and metric.
    """

    def __init__(
        self, store: Store, *, effects: Callable[[], Effects] = dict, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.effects = effects
        self._clock = clock
        self._known: LRUCache[_Key, tuple[float, Sequence[Summary]]] = LRUCache(
            MAX_REMEMBERED, getsizeof=lambda read: 1 + len(read[1])
        )
        self._over: LRUCache[_Key, tuple[float, Collection[str]]] = LRUCache(MAX_STEPS)
        self._reading: dict[_Key, asyncio.Task[None]] = {}
        self._reading_all: dict[float, asyncio.Task[None]] = {}

    def stop(self) -> None:
        """Stop reading: the store is about to be closed."""
        for task in (*self._reading.values(), *self._reading_all.values()):
            task.cancel()

    async def read(self, query: SeriesQuery, within_s: float = READING_S) -> Series:
        """Read a series, the latest steps first, for at most about `within_s` seconds. Raises the store's errors."""
        deadline = time.monotonic() + within_s
        parts: dict[str, list[tuple[float, Summary]]] = {}
        read_since, complete = query.steps.stop * query.step_s, True
        keys = [_Key(query.app, query.metric, query.by, query.step_s, index) for index in reversed(query.steps)]
        for key in keys:  # what this request has no time for, the next one finds
            if self._fresh(key) is None and not self._begin(key):
                break
        for key in keys:
            found = await self._step(key, deadline)
            if found is None:
                complete = False
                break
            read_since = key.start
            for summary in found:
                parts.setdefault(summary.slice, []).append((key.start, summary))
        ordered = sorted(parts.items(), key=lambda pair: (-sum(summary.n for _, summary in pair[1]), pair[0]))
        effects, now = self.effects(), self._clock()
        groups = [_group(query, name, some, effects, now) for name, some in ordered[:MAX_GROUPS]]
        return Series(
            groups=[group for group in groups if group.n],
            more_groups=max(0, len(ordered) - MAX_GROUPS),
            complete=complete,
            read_since=read_since,
        )

    async def read_fitted(
        self, query: SeriesQuery, within_s: float = READING_S, points: int = USUAL_POINTS
    ) -> tuple[SeriesQuery, Series]:
        """Read a series with steps that fit its scores (`fitted`), and return the query with these steps.

        Until those are read it returns the steps of the query, and that these are not complete.
        """
        deadline = time.monotonic() + within_s
        rough = await self.read(query, within_s)
        better = fitted(query, rough, points)
        if better == query:
            return query, rough
        fine = await self.read(better, max(0.0, deadline - time.monotonic()))
        if fine.complete:
            return better, fine
        return query, replace_struct(rough, complete=False)

    async def recent(
        self, step_s: float, count: int, within_s: float
    ) -> tuple[dict[Stream, list[tuple[float, Summary]]], bool]:
        """The sums of the last `count` steps by app and metric, the oldest first, and whether every step was read.

        Waits for at most `within_s` seconds; what was read earlier is returned while reading goes on.
        """
        last = math.floor(self._clock() / step_s)
        keys = [_Key("", "", "", step_s, index) for index in range(last - count + 1, last + 1)]
        stale = [key for key in reversed(keys) if self._fresh(key) is None]
        task = self._reading_all.get(step_s)
        if stale and (task is None or task.done()):
            task = self._reading_all[step_s] = spawn(self._load_all(stale), name="reading the latest steps")
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=within_s)
        found: dict[Stream, list[tuple[float, Summary]]] = {}
        for key in keys:
            for summary in self._known.get(key, (0.0, ()))[1]:
                found.setdefault((summary.app, summary.metric), []).append((key.start, summary))
        return found, all(key in self._known for key in keys)

    async def _load_all(self, keys: Sequence[_Key]) -> None:
        for key in keys:
            await self._load(key)

    async def _step(self, key: _Key, deadline: float) -> Sequence[Summary] | None:
        """The sums of a step; those of before if they are not read again by the deadline, None if there are none.

        Reading goes on after the deadline.
        """
        while (found := self._fresh(key)) is None:
            held, left = self._fresh(key, HELD_S), deadline - time.monotonic()
            if left <= 0.0 and held is None:
                return None
            mine = self._begin(key)
            if left <= 0.0:
                return held
            waiting = [mine] if mine is not None else list(self._reading.values())
            done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if mine is not None and mine in done:
                mine.result()
        return found

    def _begin(self, key: _Key) -> asyncio.Task[None] | None:
        """Return what reads a step, begun before or now; None while too many are being read."""
        name = replace(key, metric="") if self._is_over(key) else key
        if name not in self._reading and len(self._reading) < MAX_READING:
            task = self._reading[name] = spawn(self._load(key), name="reading a series")
            task.add_done_callback(lambda _: self._reading.pop(name, None))
        return self._reading.get(name)

    def _fresh(self, key: _Key, more_s: float = 0.0) -> Sequence[Summary] | None:
        read = self._known.get(key)
        if read is None:
            read_at, metrics = self._over.get(replace(key, metric=""), (0.0, (key.metric,)))
            if key.metric in metrics:
                return None
            read = read_at, ()  # it has no score in a step of which all metrics were read
        return read[1] if self._clock() - read[0] < lifetime(read[0] - key.end) + more_s else None

    def _is_over(self, key: _Key) -> bool:
        """Whether a step is read for all metrics at once."""
        return key.step_s >= HOUR_S and key.end < self._clock() - SETTLED_S

    async def _load(self, key: _Key) -> None:
        now = self._clock()
        if key.start >= now:
            self._known[key] = now, ()
            return
        if not key.metric:
            found = await self.store.summary(Query(since=key.start, until=key.end))
            self._known[key] = now, largest(found, MAX_STREAMS if key.step_s >= HOUR_S else MAX_YOUNG_STREAMS)
            return
        query, whole = Query(since=key.start, until=key.end), self._is_over(key)
        if not whole:
            query = replace(query, app=key.app, metric=key.metric)
        found = await self.store.summary(query, key.by)
        of_app: dict[str, list[Summary]] = {key.metric: []}
        for summary in found:
            if summary.app == key.app:
                of_app.setdefault(summary.metric, []).append(summary)
        for metric, some in of_app.items():
            self._known[replace(key, metric=metric)] = now, largest(some, MAX_SLICES)
        if whole:
            self._over[replace(key, metric="")] = now, frozenset(of_app)


def estimated_point(at: float, sums: WeightedSums, *, effect: float = 1.0, over: bool = True) -> SeriesPoint:
    """Estimate the mean of a step with the design effect of its stream.

    While a step is not `over` it is looked at again and again, which a confidence sequence allows; then the interval
    is the narrower one of a closed window.

    >>> found = estimated_point(0.0, WeightedSums(n=20, w=20.0, wx=16.0, w2=20.0, w2x=16.0, w2x2=14.0))
    >>> round(found.mean, 2), round(found.ci_low, 2), round(found.ci_high, 2)
    (0.8, 0.61, 0.89)
    """
    found = hajek_from_sums(sums)
    if found is None:
        return SeriesPoint(at=at, n=0, n_eff=0.0)
    found = found.widened(effect)
    if found.n_eff < MIN_N_EFF:
        return SeriesPoint(at=at, n=found.n, n_eff=found.n_eff)
    low, high = closed_window(found) if over else confidence_sequence(found)
    mean = min(1.0, max(0.0, found.mean))
    return SeriesPoint(at=at, n=found.n, n_eff=found.n_eff, mean=mean, ci_low=low, ci_high=high)


def _group(
    query: SeriesQuery, name: str, parts: Sequence[tuple[float, Summary]], effects: Effects, now: float
) -> SeriesGroup:
    whole = effects.get((query.app, query.metric, ""), 1.0)
    effect = effects.get((query.app, query.metric, f"{query.by}={name}"), whole) if query.by else whole
    points = [
        estimated_point(at, sums, effect=effect, over=at + query.step_s <= now)
        for at, sums in sorted(parts, key=lambda pair: pair[0])
        if sums.n
    ]
    total = sum((sums for _, sums in parts), WeightedSums())
    return SeriesGroup(
        slice=name,
        n=total.n,
        points=points,
        total=estimated_point(query.steps.start * query.step_s, total, effect=effect, over=False),
    )


MAX_MARKS = 100
"""Marks of a chart: the latest."""


class Mark(Struct, frozen=True, kw_only=True):
    """Something that happened at `at` (Unix time, seconds), up to `until` if it lasted; None while it lasts.

    `kind` is "alert", "model", "prompt" or "tag:NAME"; `value` the version that appeared, or the alert's state.
    `fingerprint` is that of an alert.
    """

    at: float
    kind: str
    value: str
    slice: str = ""
    until: float | None = None
    fingerprint: str | None = None


class ReferenceLine(Struct, frozen=True, kw_only=True):
    """A mean that a rule compares with: the `slo`, or the `baseline` that it has learned."""

    kind: Literal["slo", "baseline"]
    value: float
    rule: str


def marks_of(
    changes: Iterable[Version], alerts: Iterable[Alert], *, app: str, metric: str, since: float, until: float
) -> tuple[Sequence[Mark], int]:
    """The marks of an app's metric in a range, the oldest first, and how many older ones are left out."""
    found = [
        Mark(at=version.first_seen, until=version.first_seen, kind=version.kind, value=version.value)
        for version in changes
        if version.app == app and since <= version.first_seen < until
    ]
    for alert in alerts:
        begun, ended = alert.finding.onset, alert.ended_at
        if alert.app in (app, ALL) and alert.metric == metric and begun < until and (ended is None or ended > since):
            found.append(
                Mark(
                    at=begun,
                    until=ended,
                    kind="alert",
                    value=alert.state,
                    slice=alert.slice,
                    fingerprint=alert.fingerprint,
                )
            )
    found.sort(key=lambda mark: (mark.at, mark.kind, mark.value))
    return found[-MAX_MARKS:], max(0, len(found) - MAX_MARKS)


def reference_lines(
    streams: Iterable[StreamStatus], rules: Iterable[Rule], *, app: str, metric: str, lower_is_better: bool
) -> Sequence[ReferenceLine]:
    """What the rules compare the metric of the whole app with; none of a rule that is still learning.

    The objectives come from the configured `rules`, the baselines from the `streams`.
    """
    objectives = [
        ReferenceLine(kind="slo", value=rule.slo, rule=name_of(rule, lower_is_better=lower_is_better))
        for rule in rules
        if rule.slo is not None and rule.metric == metric and any(fnmatchcase(app, pattern) for pattern in rule.apps)
    ]
    fixed = {line.rule for line in objectives}
    baselines = [
        ReferenceLine(kind="baseline", value=stream.m0, rule=stream.rule)
        for stream in streams
        if stream.metric == metric
        and stream.app in (app, ALL)
        and not stream.slice
        and stream.m0 is not None
        and stream.rule not in fixed
    ]
    return [*objectives, *baselines]
