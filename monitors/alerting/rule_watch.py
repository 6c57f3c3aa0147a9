"""The state of one rule: its budget and its streams by app and slice. Pure: no clock, no I/O."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from gaugeway.settings.shared import Rule
from gaugeway.storage.stores import Point
from monitors.alerting.detectors import Baseline, Detector
from monitors.alerting.slices import Counts, Slices
from monitors.alerting.stream import HOUR_S, Case, SavedStream, Stream, usable
from monitors.statistics.multiple_testing import affected, per_period, share

MAX_STREAMS = 200
"""Streams of a rule. Clients choose app names, and each stream stays in the state store for good."""
MIN_COVERAGE = 0.5
"""Share of an app's evaluations that must give scores for these to count: the others may be the bad ones."""
ALL = "*"
DAY_S = 86_400.0
_LISTED_AT = 0.1
_log = logging.getLogger("gaugeway")


class SavedWatch(Struct, frozen=True, kw_only=True):
    """A rule's state in the state store; streams in the order of their discovery."""

    metric: str
    closed_until: float
    streams: tuple[SavedStream, ...]
    slices: Counts = {}
    coverage: dict[str, tuple[float, float, float]] = {}


class FeedReport(Struct):
    """Scores of a page that were not used: apps over the limit of streams, and scores in low-coverage buckets."""

    over_limit: set[str] = set()
    low_coverage: int = 0


class Batch(NamedTuple):
    """The scores of one app that started in [start, start + seconds)."""

    app: str
    start: float
    seconds: float
    points: Sequence[Point]


class Coverage:
    """The share of evaluations that gave a score, by app, decaying over an hour; `sums` is the state to save.

    Evaluations do not fail at random: long answers fail first. Where most fail, the remaining scores are no sample of
    the traffic. Whether a bucket counts is decided by the buckets before it.

    >>> coverage = Coverage()
    >>> coverage.add("a", 0.0, scored=5, failed=95)
    >>> coverage.ratio("a"), coverage.ratio("b")
    (0.05, 1.0)
    """

    def __init__(self) -> None:
        self.sums: dict[str, tuple[float, float, float]] = {}

    def ratio(self, app: str) -> float:
        """Return the share; 1.0 without evaluations."""
        scored, failed, _ = self.sums.get(app, (0.0, 0.0, 0.0))
        return scored / (scored + failed) if scored + failed else 1.0

    def add(self, app: str, at: float, *, scored: int, failed: int) -> None:
        """Count the evaluations of a bucket that began at Unix time `at`."""
        old_scored, old_failed, last = self.sums.get(app, (0.0, 0.0, at))
        decay = math.exp(min(0.0, last - at) / HOUR_S)
        self.sums[app] = old_scored * decay + scored, old_failed * decay + failed, at


def name_of(rule: Rule, *, lower_is_better: bool) -> str:
    """Return the rule's name, or one built from its metric, threshold, severity and apps.

    >>> name_of(Rule(metric="faithfulness", slo=0.85, apps=("support",)), lower_is_better=False)
    'faithfulness-below-0.85-support'
    >>> name_of(Rule(metric="faithfulness", baseline="auto", severity="warn"), lower_is_better=False)
    'faithfulness-drop-warn'
    """
    side = "above" if lower_is_better else "below"
    apps = () if rule.apps == (ALL,) else rule.apps
    what = [side, f"{rule.slo:g}"] if rule.slo is not None else ["rise" if lower_is_better else "drop"]
    severity = [] if rule.severity in (None, "page") else [rule.severity]
    return rule.name or "-".join([rule.metric, *what, *severity, *apps])


@dataclass(slots=True, kw_only=True)
class RuleWatch:
    """The state of a rule: its streams by app and slice, and the time up to which scores were fed.

    `closed_until` is None before the first bucket. With `by_app` each app has a stream, else all traffic is one. Half
    of the budget goes to whole apps and half to their slices; without slices all of it goes to the apps. Scores count
    only while at least `min_coverage` of the evaluations give scores.
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
        """Return whether the rule matches `app`."""
        return any(fnmatchcase(app, pattern) for pattern in self.rule.apps)

    def stream(self, app: str, part: str = "") -> Stream | None:
        """Return the stream of a slice of `app` ("" for the whole app), created if new; None above `MAX_STREAMS`."""
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
                severity=self.rule.severity or "page",
                budget_per_s=budget,
                flipped=self.flipped,
                detector=self.detector(budget),
                baseline=self.baseline(),
            )
        return self.streams[app, part]

    def feed(
        self, points: Iterable[Point], *, until: float, bucket_s: float, cases: MutableMapping[str, Case]
    ) -> FeedReport:
        """Feed all points of [closed_until, until), oldest first; update the alerts in `cases`.

        Synchronous, so the points are fed if and only if this returns. Of several scores of one exchange (by another
        version of the metric) only the first counts: two judgements of one answer are not independent given the past.
        """
        buckets: dict[tuple[int, str], dict[str, Point]] = {}
        failed: dict[tuple[int, str], int] = {}
        last, report = round(until / bucket_s) - 1, FeedReport()
        covers = cache(self.covers)
        for point in points:
            if covers(point.app):
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
                report.low_coverage += len(some)
            elif some and not self._take(Batch(app, index * bucket_s, bucket_s, some), cases):
                report.over_limit.add(app)
        self.closed_until = until
        return report

    def affected(self, app: str, onset: float, slack_s: float = 0.0) -> tuple[str, ...]:
        """Return the slices of `app` that fell since `onset`, by e-d-BH on their own evidence; the strongest first.

        Those whose evidence began more than `slack_s` before fell in an earlier incident.
        """
        evidence = {
            part: per_period(stream.evidence_since(onset, slack_s), stream.budget_per_s, DAY_S)
            for (of, part), stream in self.streams.items()
            if of == app and part
        }
        return tuple(affected(evidence, _LISTED_AT)) if evidence else ()

    def rebaseline(self, app: str | None = None) -> int:
        """Re-learn the baselines of `app`, or of all apps; return the number of streams."""
        chosen = [stream for (of, _), stream in self.streams.items() if app in (None, of)]
        for stream in chosen:
            stream.reset()
        return len(chosen)

    def saved(self) -> SavedWatch:
        """Return the state to save."""
        return SavedWatch(
            metric=self.rule.metric,
            closed_until=self.closed_until or 0.0,
            streams=tuple(stream.saved() for stream in self.streams.values()),
            slices=self.slices.counts,
            coverage=self.coverage.sums,
        )

    def restore(self, saved: SavedWatch, cases: Mapping[str, Case]) -> None:
        """Restore a saved state; a stream with another SLO or baseline is reset."""
        if saved.metric != self.rule.metric:
            return
        self.closed_until = saved.closed_until
        self.slices.counts, self.coverage.sums = saved.slices, saved.coverage
        for state in saved.streams:
            stream = self.stream(state.app, state.slice)
            if stream is None:
                return
            case = cases.get(state.case or "")
            try:
                stream.restore(state, case)
            except ValueError:
                _log.info("rule %s changed: restarting the evidence for %s", self.name, state.app)
                stream.reset()
                stream.recovery, stream.case = None, case

    def _take(self, batch: Batch, cases: MutableMapping[str, Case]) -> bool:
        """Feed a bucket to its app's streams; return False if the app is above `MAX_STREAMS`."""
        whole = self.stream(batch.app)
        if whole is None:
            return False
        self._feed(whole, batch, cases, quiet=False)
        for part, points in sorted(self.slices.cut(batch.app, batch.points, at=batch.start).items()):
            if (stream := self.stream(batch.app, part)) is not None:
                self._feed(stream, batch._replace(points=points), cases, quiet=whole.state == "firing")
        return True

    def _feed(self, stream: Stream, batch: Batch, cases: MutableMapping[str, Case], *, quiet: bool) -> None:
        if stream.has_new_scorer(batch.points) and self.rule.slo is None:
            stream.reset()
        before = stream.case
        stream.take(stream.bucket(batch.start, batch.seconds, batch.points), quiet=quiet)
        if before is not None and before is not stream.case and before.alert.state == "pending":
            cases.pop(before.alert.fingerprint, None)
        if stream.case is not None:
            cases[stream.case.alert.fingerprint] = stream.case
