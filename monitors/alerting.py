"""From scores to alerts without any I/O: what a rule watches, one stream's detector, its doubt, alarm and recovery."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Literal

from monitors.causes import Side, likely_cause
from monitors.config import Rule
from monitors.detectors import Bucket
from monitors.detectors.esr import MixtureESR
from monitors.detectors.recovery import Recovery
from monitors.records import JUDGE_BLIND, Alert, Finding
from monitors.statistics.estimators import Estimate, hajek
from monitors.statistics.intervals import MIN_N_EFF, confidence_sequence
from monitors.stores import Point

DOUBT_LOG10 = -1.0
"""From a tenth of the evidence an alarm needs, an alert is pending: shown, and told to nobody."""
WORST = 5
MAX_STREAMS = 200
"""Apps a rule watches; their names are the clients' choice, and every one of them stays in the ledger for good."""
HOUR_S, DAY_HOURS = 3600.0, 24
NO_CONTEXTS = "no_contexts"
_log = logging.getLogger("gaugeway")


@dataclass(slots=True, kw_only=True)
class Case:
    """An alert with the time of its alarm, and the time up to which its means, cause and examples were looked up."""

    alert: Alert
    alarm_at: float = 0.0
    described_until: float = 0.0

    def to_describe(self, closed_until: float) -> float | None:
        """Until when to look its scores up now, or None when there is nothing to look up.

        First at the alarm, then each time that the time since the onset has doubled, as long as it fires: a severe drop
        is found within a dozen scores, too few for an interval or a cause. Does not depend on when it is asked.
        """
        if self.alert.state == "pending":
            return None
        onset, end = self.alert.finding.onset, self.alert.ended_at
        length = self.alarm_at - onset
        doublings = math.floor(math.log2(max(1.0, ((closed_until if end is None else end) - onset) / length)))
        until = onset + length * 2.0**doublings
        return until if until > self.described_until else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStream:
    """A stream as the ledger keeps it; `case` is the fingerprint of its open alert."""

    app: str
    detector: str
    recovery: str | None
    case: str | None
    rates: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWatch:
    """A rule's progress as the ledger keeps it; its streams in the order of their discovery."""

    metric: str
    closed_until: float
    streams: tuple[SavedStream, ...]


def name_of(rule: Rule, *, lower_is_better: bool) -> str:
    """The rule's own name, or one made of what it says.

    >>> name_of(Rule(metric="faithfulness", slo=0.85, apps=("support",)), lower_is_better=False)
    'faithfulness-below-0.85-support'
    """
    side = "above" if lower_is_better else "below"
    apps = () if rule.apps == ("*",) else rule.apps
    return rule.name or "-".join([rule.metric, side, f"{rule.slo:g}", *apps])


def share(order: int) -> float:
    """The part of a rule's budget that the stream discovered as number `order` (from 0) gets, for good.

    1/((order + 1)(order + 2)): the sum is 1 - 1/(n + 1) for n streams, below 1 however many apps turn up, and no
    stream's budget changes when another one does. The price: one stream alone uses half of the budget.

    >>> [round(share(order), 3) for order in range(3)], sum(map(share, range(10_000))) < 1
    ([0.5, 0.167, 0.083], True)
    """
    return 1.0 / ((order + 1) * (order + 2))


def blindness(since: float) -> Alert:
    """The alert that the judge fails since Unix time `since`."""
    return Alert(
        fingerprint=fingerprint(JUDGE_BLIND, "judge", "*", since),
        rule=JUDGE_BLIND,
        metric="judge",
        app="*",
        severity="page",
        state="firing",
        since=since,
        finding=Finding(evidence_log10=0.0, baseline=0.0, onset=since, n=0),
        likely_cause="judge",
    )


def fingerprint(rule: str, metric: str, app: str, since: float) -> str:
    """16 hex digits that stay the same for one alert, on every replica and after a restart."""
    return blake2b("\0".join([rule, metric, app, repr(since)]).encode(), digest_size=8).hexdigest()


@dataclass(slots=True, kw_only=True)
class Stream:
    """One rule on one app: scores in the order of time go in, `case` is the alert that comes out, if any.

    Weights are the smallest rate of the last day (before each bucket, or of the last hour with scores if that is longer
    ago) over a score's own. A smaller one counts from the next bucket on, because weights must be fixed before the
    scores are seen; only the very first bucket uses its own smallest. `rates` are the smallest by hour of Unix time.
    """

    rule: str
    metric: str
    app: str
    severity: str
    flipped: bool
    detector: MixtureESR
    recovery: Recovery | None = None
    rates: dict[int, float] = field(default_factory=dict)
    case: Case | None = None

    @property
    def state(self) -> Literal["quiet", "pending", "firing"]:
        """What gauges and people are shown."""
        if self.case is None:
            return "quiet"
        return "firing" if self.case.alert.state == "firing" else "pending"

    def bucket(self, start: float, seconds: float, points: Sequence[Point]) -> Bucket:
        """Make a bucket of one time's points, on the "higher is better" scale; remember their smallest rate."""
        lowest, hour = min(point.rate for point in points), math.floor(start / HOUR_S)
        recent = {at: rate for at, rate in self.rates.items() if at >= hour - DAY_HOURS}
        recent = recent or dict(sorted(self.rates.items())[-1:])
        known = min(recent.values(), default=lowest)
        self.rates = recent | {hour: min(lowest, recent.get(hour, lowest))}
        return Bucket(
            start=start,
            seconds=seconds,
            scores=tuple(on_scale(point.value or 0.0, flipped=self.flipped) for point in points),
            weights=tuple(min(1.0, known / point.rate) for point in points),
        )

    def take(self, bucket: Bucket) -> None:
        """Feed the detector and, while the alert fires, the recovery; move the alert on.

        While it fires, further alarms of the detector say nothing new. When it is resolved, the detector starts afresh:
        what it gathered during the drop is no evidence about the time after, and would exceed the budget there.
        """
        finding = self.detector.update(bucket)
        end = bucket.start + bucket.seconds
        if self.case is not None and self.case.alert.state == "firing":
            self.recovery = self.recovery or Recovery(self.detector.m0)
            if self.recovery.update(bucket):
                self.case.alert = replace(self.case.alert, state="resolved", ended_at=end)
                self.case = self.recovery = None
                self.detector.reset()
        elif finding is None and self.detector.evidence_log10 < DOUBT_LOG10:
            self.case = None
        else:
            self.case = self.case or self._opened(end)
            self.case.alert = replace(self.case.alert, finding=finding or self.detector.current())
            if finding is not None:
                self.case.alert = replace(self.case.alert, state="firing")
                self.case.alarm_at = end

    def _opened(self, since: float) -> Case:
        return Case(
            alert=Alert(
                fingerprint=fingerprint(self.rule, self.metric, self.app, since),
                rule=self.rule,
                metric=self.metric,
                app=self.app,
                severity=self.severity,
                state="pending",
                since=since,
                finding=self.detector.current(),
            )
        )


@dataclass(slots=True, kw_only=True)
class Watch:
    """A rule at work: its streams by app, and the time up to which their scores were taken in (None: not begun)."""

    rule: Rule
    name: str
    flipped: bool
    budget_per_s: float
    closed_until: float | None = None
    streams: dict[str, Stream] = field(default_factory=dict)

    @property
    def m0(self) -> float:
        """The mean that H0 allows, on the "higher is better" scale."""
        return on_scale(self.rule.slo, flipped=self.flipped)

    def covers(self, app: str) -> bool:
        """Whether the rule is about `app`."""
        return any(fnmatchcase(app, pattern) for pattern in self.rule.apps)

    def stream(self, app: str) -> Stream | None:
        """The stream of `app`, discovered now if it is new and there is room."""
        if app not in self.streams:
            if len(self.streams) >= MAX_STREAMS:
                return None
            self.streams[app] = Stream(
                rule=self.name,
                metric=self.rule.metric,
                app=app,
                severity=self.rule.severity,
                flipped=self.flipped,
                detector=MixtureESR(self.m0, self.budget_per_s * share(len(self.streams))),
            )
        return self.streams[app]

    def feed(
        self, points: Iterable[Point], *, until: float, bucket_s: float, cases: MutableMapping[str, Case]
    ) -> set[str]:
        """Take in all points of [closed_until, until), oldest first; add alerts to `cases`, drop doubts that passed.

        Returns the apps there was no room for. There is no await in here: the points count as taken in if and only if
        this returns. Times without points cost nothing. Of several scores for one exchange (another version of the
        metric) the first counts: two judgements of the same answer are not independent given the past.
        """
        buckets: dict[tuple[int, str], dict[str, Point]] = {}
        last = round(until / bucket_s) - 1
        unwatched = set()
        for point in points:
            if usable(point) and self.covers(point.app):
                # a quotient of floats may round up to the edge: such a point is the last bucket's
                key = min(last, math.floor(point.started_at / bucket_s)), point.app
                buckets.setdefault(key, {}).setdefault(point.sample_id, point)
        for index, app in sorted(buckets):
            stream = self.stream(app)
            if stream is None:
                unwatched.add(app)
                continue
            before = stream.case
            stream.take(stream.bucket(index * bucket_s, bucket_s, list(buckets[index, app].values())))
            if before is not None and before is not stream.case and before.alert.state == "pending":
                cases.pop(before.alert.fingerprint, None)
            if stream.case is not None:
                cases[stream.case.alert.fingerprint] = stream.case
        self.closed_until = until
        return unwatched

    def saved(self) -> SavedWatch:
        """What the ledger keeps."""
        return SavedWatch(
            metric=self.rule.metric,
            closed_until=self.closed_until or 0.0,
            streams=tuple(
                SavedStream(
                    app=stream.app,
                    detector=stream.detector.dumps(),
                    recovery=stream.recovery.dumps() if stream.recovery is not None else None,
                    case=stream.case.alert.fingerprint if stream.case is not None else None,
                    rates=stream.rates,
                )
                for stream in self.streams.values()
            ),
        )

    def restore(self, saved: SavedWatch, cases: Mapping[str, Case]) -> None:
        """Continue from what the ledger kept; a detector made for another SLO or budget starts afresh."""
        if saved.metric != self.rule.metric:
            return
        self.closed_until = saved.closed_until
        for state in saved.streams:
            stream = self.stream(state.app)
            if stream is None:
                return
            stream.rates = dict(state.rates)
            stream.case = cases.get(state.case or "")
            try:
                stream.detector.loads(state.detector)
                if state.recovery is not None:
                    recovery = Recovery(self.m0)
                    recovery.loads(state.recovery)
                    stream.recovery = recovery
            except ValueError:
                _log.info("rule %s changed: the evidence about %s starts afresh", self.name, state.app)


def usable(point: Point) -> bool:
    """Whether a point is a score that a detector can take."""
    return (
        point.outcome == "score" and point.value is not None and 0.0 <= point.value <= 1.0 and 0.0 < point.rate <= 1.0
    )


def on_scale(value: float, *, flipped: bool) -> float:
    """Turn a value of a metric whose best is 0 to the "higher is better" scale, and back."""
    return 1.0 - value if flipped else value


def side(
    points: Iterable[Point],
    *,
    lower_is_better: Callable[[str], bool],
    failing: set[str],
    versions: frozenset[tuple[str, str]],
) -> Side:
    """Summarise one side of the onset for `likely_cause`.

    `failing` are the metrics that failed at least once on either side: the others would only thin the ratio out.
    """
    scores: dict[str, list[Point]] = {}
    failed: list[tuple[float, float]] = []
    found: dict[str, tuple[float, float]] = {}
    for point in points:
        if usable(point):
            scores.setdefault(point.metric, []).append(point)
            found.setdefault(point.sample_id, (1.0, point.rate))
        elif point.reason == NO_CONTEXTS:
            found[point.sample_id] = (0.0, point.rate)
        if point.metric in failing and point.outcome != "skipped":
            failed.append((float(point.outcome == "failed"), point.rate))
    means: dict[str, Estimate] = {}
    for metric, of_metric in scores.items():
        flipped = lower_is_better(metric)
        values = [on_scale(point.value or 0.0, flipped=flipped) for point in of_metric]
        means[metric] = hajek(values, [point.rate for point in of_metric])
    return Side(means=means, failed=estimate_of(failed), found=estimate_of(found.values()), versions=versions)


def estimate_of(pairs: Iterable[tuple[float, float]]) -> Estimate | None:
    """Hajek's estimate from (value, rate) pairs, or None when there are none."""
    known = [(value, rate) for value, rate in pairs if 0.0 < rate <= 1.0]
    return hajek([value for value, _ in known], [rate for _, rate in known]) if known else None


def described(alert: Alert, *, before: Side, since: Side, worst: Sequence[str], flipped: bool) -> Alert:
    """The alert with its estimates, interval, cause and examples; no interval below `MIN_N_EFF` effective scores.

    The onset was chosen because the scores since then were low, so their mean is on the pessimistic side.
    """
    old, new = before.means.get(alert.metric), since.means.get(alert.metric)
    interval = confidence_sequence(new) if new is not None and new.n_eff >= MIN_N_EFF else None
    ci = interval
    if interval is not None and flipped:
        ci = 1.0 - interval[1], 1.0 - interval[0]
    return replace(
        alert,
        finding=replace(
            alert.finding,
            n=new.n if new is not None else alert.finding.n,
            estimate=new.mean if new is not None else None,
            interval=interval,
        ),
        mean_before=on_scale(old.mean, flipped=flipped) if old is not None else None,
        mean_since=on_scale(new.mean, flipped=flipped) if new is not None else None,
        ci=ci,
        likely_cause=likely_cause(before, since),
        worst_exchanges=tuple(dict.fromkeys(worst))[:WORST],
    )
