"""A rule at work: its budget, its streams by app and slice, and what a page of new scores does to them. Pure."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from monitors.alerting.detectors import Baseline, Detector
from monitors.alerting.slices import Counts, Slices
from monitors.alerting.stream import HOUR_S, Case, SavedStream, Stream, usable
from monitors.config import Rule
from monitors.statistics.multiple_testing import affected, per_period, share
from monitors.storage.stores import Point

MAX_STREAMS = 200
"""Streams of a rule; apps' names are the clients' choice, and every one of them stays in the ledger for good."""
ALL = "*"
DAY_S = 86_400.0
_LISTED_AT = 0.1
_log = logging.getLogger("gaugeway")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWatch:
    """A rule's progress as the ledger keeps it; its streams in the order of their discovery."""

    metric: str
    closed_until: float
    streams: tuple[SavedStream, ...]
    slices: Counts = field(default_factory=dict)
    coverage: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class FeedReport:
    """What became of a page of scores: apps there was no room for, and how many scores were left out, and why."""

    unwatched: set[str] = field(default_factory=set)
    uncovered: int = 0


class Batch(NamedTuple):
    """The scores of one app that started in [start, start + seconds)."""

    app: str
    start: float
    seconds: float
    points: Sequence[Point]


class Coverage:
    """The share of evaluations that gave a score, by app, over about the last hour.

    Evaluations do not fail by chance: long answers fail first. Where most of them fail, the scores that are left say
    little about the traffic. Only what came before a bucket decides about it.

    >>> coverage = Coverage()
    >>> coverage.add("a", 0.0, scored=5, failed=95)
    >>> coverage.ratio("a"), coverage.ratio("b")
    (0.05, 1.0)
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float, float]] = {}

    def ratio(self, app: str) -> float:
        """The share; 1.0 while nothing is known."""
        scored, failed, _ = self._sums.get(app, (0.0, 0.0, 0.0))
        return scored / (scored + failed) if scored + failed else 1.0

    def add(self, app: str, at: float, *, scored: int, failed: int) -> None:
        """Count the evaluations of a bucket that began at Unix time `at`."""
        old_scored, old_failed, last = self._sums.get(app, (0.0, 0.0, at))
        fade = math.exp(min(0.0, last - at) / HOUR_S)
        self._sums[app] = old_scored * fade + scored, old_failed * fade + failed, at

    def saved(self) -> dict[str, tuple[float, float, float]]:
        """What the ledger keeps."""
        return dict(self._sums)

    def restore(self, sums: Mapping[str, tuple[float, float, float]]) -> None:
        """Continue from what the ledger kept."""
        self._sums = dict(sums)


def name_of(rule: Rule, *, lower_is_better: bool) -> str:
    """The rule's own name, or one made of what it says.

    >>> name_of(Rule(metric="faithfulness", slo=0.85, apps=("support",)), lower_is_better=False)
    'faithfulness-below-0.85-support'
    >>> name_of(Rule(metric="faithfulness", baseline="auto", severity="warn"), lower_is_better=False)
    'faithfulness-drop-warn'
    """
    side = "above" if lower_is_better else "below"
    apps = () if rule.apps == (ALL,) else rule.apps
    what = [side, f"{rule.slo:g}"] if rule.slo is not None else ["rise" if lower_is_better else "drop"]
    severity = [] if rule.severity == "page" else [rule.severity]
    return rule.name or "-".join([rule.metric, *what, *severity, *apps])


@dataclass(slots=True, kw_only=True)
class RuleWatch:
    """A rule at work: its streams by app and slice, and the time up to which their scores were taken in.

    `closed_until` None: not begun. `by_app` keeps apps apart, else all traffic is one stream. Half of the budget goes
    to whole apps and half to their slices, all of it to the apps where nothing is sliced. `min_coverage` is the share
    of evaluations that must give scores for these to be taken in.
    """

    rule: Rule
    name: str
    flipped: bool
    budget_per_s: float
    detector: Callable[[float], Detector]
    baseline: Callable[[], Baseline]
    slices: Slices
    by_app: bool = True
    sliced: bool = False
    min_coverage: float = 0.0
    closed_until: float | None = None
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    def covers(self, app: str) -> bool:
        """Whether the rule is about `app`."""
        return any(fnmatchcase(app, pattern) for pattern in self.rule.apps)

    def stream(self, app: str, part: str = "") -> Stream | None:
        """The stream of a slice of `app` ("" for all of it), discovered now if it is new and there is room."""
        if (app, part) not in self.streams:
            if len(self.streams) >= MAX_STREAMS:
                return None
            order = sum(bool(known) == bool(part) for _, known in self.streams)
            budget = self.budget_per_s * share(order) * (0.5 if self.sliced else 1.0)
            self.streams[app, part] = Stream(
                rule=self.name,
                metric=self.rule.metric,
                app=app,
                slice=part,
                severity=self.rule.severity,
                budget_per_s=budget,
                flipped=self.flipped,
                detector=self.detector(budget),
                baseline=self.baseline(),
            )
        return self.streams[app, part]

    def feed(
        self, points: Iterable[Point], *, until: float, bucket_s: float, cases: MutableMapping[str, Case]
    ) -> FeedReport:
        """Take in all points of [closed_until, until), oldest first; add alerts to `cases`, drop doubts that passed.

        There is no await in here: the points count as taken in if and only if this returns. Times without points cost
        nothing. Of several scores for one exchange (another version of the metric) the first counts: two judgements of
        the same answer are not independent given the past.
        """
        buckets: dict[tuple[int, str], dict[str, Point]] = {}
        failed: dict[tuple[int, str], int] = {}
        last, fed = round(until / bucket_s) - 1, FeedReport()
        for point in points:
            if self.covers(point.app):
                # a quotient of floats may round up to the edge: such a point is the last bucket's
                key = min(last, math.floor(point.started_at / bucket_s)), point.app if self.by_app else ALL
                if usable(point):
                    buckets.setdefault(key, {}).setdefault(point.sample_id, point)
                elif point.outcome == "failed":
                    failed[key] = failed.get(key, 0) + 1
        for index, app in sorted(buckets.keys() | failed.keys()):
            some = list(buckets.get((index, app), {}).values())
            enough = self.coverage.ratio(app) >= self.min_coverage
            self.coverage.add(app, index * bucket_s, scored=len(some), failed=failed.get((index, app), 0))
            if not enough:
                fed.uncovered += len(some)
            elif some and not self._take(Batch(app, index * bucket_s, bucket_s, some), cases):
                fed.unwatched.add(app)
        self.closed_until = until
        return fed

    def affected(self, app: str, onset: float) -> tuple[str, ...]:
        """The slices of `app` whose own scores say that they fell, by e-d-BH; the clearest first."""
        evidence = {
            part: per_period(stream.evidence_since(onset), stream.budget_per_s, DAY_S)
            for (of, part), stream in self.streams.items()
            if of == app and part
        }
        return tuple(affected(evidence, _LISTED_AT)) if evidence else ()

    def rebaseline(self, app: str | None = None) -> int:
        """Learn the baselines of `app`, or of all apps, afresh; return how many streams begin anew."""
        chosen = [stream for (of, _), stream in self.streams.items() if app in (None, of)]
        for stream in chosen:
            stream.start_anew()
        return len(chosen)

    def saved(self) -> SavedWatch:
        """What the ledger keeps."""
        return SavedWatch(
            metric=self.rule.metric,
            closed_until=self.closed_until or 0.0,
            streams=tuple(stream.saved() for stream in self.streams.values()),
            slices=self.slices.saved(),
            coverage=self.coverage.saved(),
        )

    def restore(self, saved: SavedWatch, cases: Mapping[str, Case]) -> None:
        """Continue from what the ledger kept; a stream made for another SLO, baseline or budget starts afresh."""
        if saved.metric != self.rule.metric:
            return
        self.closed_until = saved.closed_until
        self.slices.restore(saved.slices)
        self.coverage.restore(saved.coverage)
        for state in saved.streams:
            stream = self.stream(state.app, state.slice)
            if stream is None:
                return
            case = cases.get(state.case or "")
            try:
                stream.restore(state, case)
            except ValueError:
                _log.info("rule %s changed: restarting the evidence for %s", self.name, state.app)
                stream.start_anew()
                stream.recovery, stream.case = None, case

    def _take(self, batch: Batch, cases: MutableMapping[str, Case]) -> bool:
        """Give a bucket to its app's streams; False when there is no room for the app."""
        whole = self.stream(batch.app)
        if whole is None:
            return False
        self._feed(whole, batch, cases, quiet=False)
        for part, points in sorted(self.slices.cut(batch.app, batch.points, at=batch.start).items()):
            if (stream := self.stream(batch.app, part)) is not None:
                self._feed(stream, batch._replace(points=points), cases, quiet=whole.state == "firing")
        return True

    def _feed(self, stream: Stream, batch: Batch, cases: MutableMapping[str, Case], *, quiet: bool) -> None:
        if stream.made_anew(batch.points) and self.rule.slo is None:
            stream.start_anew()
        before = stream.case
        stream.take(stream.bucket(batch.start, batch.seconds, batch.points), quiet=quiet)
        if before is not None and before is not stream.case and before.alert.state == "pending":
            cases.pop(before.alert.fingerprint, None)
        if stream.case is not None:
            cases[stream.case.alert.fingerprint] = stream.case
