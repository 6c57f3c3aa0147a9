"""One stream of scores with its alert, and all alerts, open and resolved. Pure: no clock, no I/O."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Literal

import msgspec

from gaugeway.records import JUDGE_BLIND, NOT_JUDGED, Alert, Finding
from gaugeway.storage.stores import Point
from monitors.alerting.detectors import Baseline, Bucket, Detector
from monitors.alerting.detectors.recovery import Recovery
from monitors.statistics.clusters import Clusters, SavedClusters
from monitors.statistics.dependence import SerialDependence

PENDING_LOG10 = -1.0
"""From a tenth of the evidence for an alarm, an alert is pending: shown, but not sent."""
HOUR_S, DAY_HOURS = 3600.0, 24
_KEPT_MAKERS = 16


class Case(msgspec.Struct, kw_only=True):
    """An alert, the time of its alarm, and the time up to which it has been described."""

    alert: Alert
    alarm_at: float = 0.0
    described_until: float = 0.0

    def to_describe(self, closed_until: float) -> float | None:
        """Return the time up to which the alert is to be described now, or None.

        Due at the alarm, then whenever the time since the onset has doubled while it fires: a severe drop alarms within
        a dozen scores, too few for an interval or a cause. What came after a recovery began is not part of the drop.
        The result does not depend on when this is called.
        """
        if self.alert.state == "pending":
            return None
        onset, ended, back = self.alert.finding.onset, self.alert.ended_at, self.alert.recovering_since
        length = self.alarm_at - onset
        end = min(closed_until if ended is None else ended, math.inf if back is None else back)
        doublings = math.floor(math.log2(max(1.0, (end - onset) / length)))
        until = onset + length * 2.0**doublings
        return until if until > self.described_until else None


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in the state store; `case` is the fingerprint of its open alert."""

    app: str
    detector: str
    recovery: str | None
    case: str | None
    rates: dict[int, float] = {}
    slice: str = ""
    baseline: str | None = None
    makers: tuple[str, ...] = ()
    fell: tuple[float, float] | None = None
    clusters: SavedClusters | None = None
    dependence: tuple[float, ...] = ()


def alert_about(metric: str, rule: str, severity: str, *, since: float, name: str) -> Alert:
    """Return a firing alert that no score raised: about the judge, the monitors or a notifier."""
    finding = Finding(evidence_log10=0.0, baseline=0.0, onset=since, n=0)
    return Alert(
        fingerprint=name,
        rule=rule,
        metric=metric,
        app="*",
        severity=severity,
        state="firing",
        since=since,
        finding=finding,
    )


def judge_outage(since: float) -> Alert:
    """Return the alert for a judge that fails since Unix time `since`."""
    name = fingerprint(JUDGE_BLIND, "judge", "*", "", since)
    return replace(alert_about("judge", JUDGE_BLIND, "page", since=since, name=name), likely_cause="judge")


def fingerprint(rule: str, metric: str, app: str, part: str, since: float) -> str:
    """Return the alert's id, 16 hex digits, the same on every replica and after a restart."""
    names = [rule, metric, app, *([part] if part else []), repr(since)]
    return blake2b("\0".join(names).encode(), digest_size=8).hexdigest()


class Stream(msgspec.Struct, kw_only=True):
    """One rule on one slice of one app. Scores go in, in the order of time; `case` is the open alert, if any.

    A score has the weight that was stored with it: the lowest rate of its moment over its own. For scores of older
    releases it is the smallest rate of the day before the bucket (or of the last hour with scores, if older) over the
    score's own. A smaller rate counts from the next bucket on, because weights must be fixed before the scores are
    seen; only the first bucket uses its own smallest rate. `rates` holds the smallest rate by hour of Unix time. `fell`
    is (time, log10 evidence) of an alarm that was suppressed because the whole app had an alert.
    """

    rule: str
    metric: str
    app: str
    severity: str
    flipped: bool
    budget_per_s: float
    detector: Detector
    baseline: Baseline
    slice: str = ""
    recovery: Recovery | None = None
    rates: dict[int, float] = {}
    makers: tuple[str, ...] = ()
    fell: tuple[float, float] | None = None
    case: Case | None = None
    clusters: Clusters = msgspec.field(default_factory=Clusters)
    dependence: SerialDependence = msgspec.field(default_factory=SerialDependence)

    @property
    def state(self) -> Literal["quiet", "pending", "firing"]:
        """The state shown by gauges and the page."""
        if self.case is None:
            return "quiet"
        return "firing" if self.case.alert.state == "firing" else "pending"

    def bucket(self, start: float, seconds: float, points: Sequence[Point]) -> Bucket:
        """Build the bucket of these points on the "higher is better" scale; record their smallest rate."""
        lowest, hour = min(point.rate for point in points), math.floor(start / HOUR_S)
        recent = {at: rate for at, rate in self.rates.items() if at >= hour - DAY_HOURS}
        recent = recent or dict(sorted(self.rates.items())[-1:])
        known = min(recent.values(), default=lowest)
        self.rates = recent | {hour: min(lowest, recent.get(hour, lowest))}
        scores = [on_scale(point.value or 0.0, flipped=self.flipped) for point in points]
        weights = [min(1.0, known / point.rate) if point.weight is None else point.weight for point in points]
        return self.observed(start, seconds, scores, weights, [point.cluster for point in points])

    def observed(
        self,
        start: float,
        seconds: float,
        scores: Sequence[float],
        weights: Sequence[float],
        names: Sequence[str | None],
    ) -> Bucket:
        """Build the bucket of scores with these weights and cluster names; learn what they share."""
        means = self.clusters.means(scores, weights, names, at=start)
        effect = self.dependence.design_effect
        if self.state != "firing":  # a drop is no dependence
            if (expected := self.baseline.expected(start)) is not None:
                self.dependence.forecast(math.floor(start / HOUR_S), *expected)
            self.dependence.add([mean.score for mean in means], [mean.weight for mean in means])
        return Bucket.of_clusters(start, seconds, means, effect)

    def has_new_scorer(self, points: Sequence[Point]) -> bool:
        """Return whether most of these scores come from a metric version or judge new to this stream; record it.

        Another judge has another scale, so the baseline learned from the old one does not apply.
        """
        maker, _ = Counter(f"{point.version} {point.judge or ''}" for point in points).most_common(1)[0]
        if maker in self.makers:
            return False
        first = not self.makers
        self.makers = (*self.makers, maker)[-_KEPT_MAKERS:]
        return not first

    def reset(self) -> None:
        """Reset the baseline and the evidence; a firing alert stays open until its recovery is detected."""
        self.baseline.rebaseline()
        self.detector.reset()

    def take(self, bucket: Bucket, *, quiet: bool = False) -> None:
        """Feed the detector and, while the alert fires, the recovery; update the alert. `quiet` opens no alert.

        While the alert fires, further alarms are ignored and the baseline learns nothing yet. At the resolution the
        detector is reset: its evidence is about the drop, and would exceed the false-alarm budget afterwards.
        """
        m0 = self.baseline.m0(bucket.start)
        if m0 is None:
            self.baseline.update(bucket)
            return
        finding = self.detector.update(replace(bucket, m0_variance=self.baseline.variance(bucket.start)), m0)
        end = bucket.start + bucket.seconds
        firing = self.case is not None and self.case.alert.state == "firing"
        if not firing and finding is None:
            self.baseline.update(bucket)
        if firing:
            self.baseline.hold(bucket)
            self._update_recovery(bucket, m0, end)
        elif quiet:
            self.case = None
            if finding is not None:
                self.fell = end, finding.evidence_log10
        elif finding is None and self.detector.evidence_log10 < PENDING_LOG10:
            self.case = None
        else:
            self.case = self.case or self._opened(end)
            self.case.alert = replace(self.case.alert, finding=finding or self.detector.current())
            if finding is not None:
                self.case.alert = replace(self.case.alert, state="firing")
                self.case.alarm_at = end

    def evidence_since(self, moment: float, slack_s: float = 0.0) -> float:
        """Return the strongest log10 evidence of a drop that began at Unix time `moment` or later.

        Onsets are estimates: one up to `slack_s` earlier counts. An alert that fired before `moment` never does.
        """
        earliest = moment - slack_s
        fell = []
        if self.detector.current().onset >= earliest:
            fell.append(self.detector.evidence_log10)
        if self.case is not None and self.state == "firing" and self.case.alarm_at > moment:
            finding = self.case.alert.finding
            fell += [finding.evidence_log10] if finding.onset >= earliest else []
        if self.fell is not None and self.fell[0] >= moment:
            fell.append(self.fell[1])
        return max(fell, default=-math.inf)

    def saved(self) -> SavedStream:
        """Return the state to save."""
        return SavedStream(
            app=self.app,
            detector=self.detector.dumps(),
            recovery=self.recovery.dumps() if self.recovery is not None else None,
            case=self.case.alert.fingerprint if self.case is not None else None,
            rates=self.rates,
            slice=self.slice,
            baseline=self.baseline.dumps(),
            makers=self.makers,
            fell=self.fell,
            clusters=self.clusters.state,
            dependence=self.dependence.state,
        )

    def restore(self, saved: SavedStream, case: Case | None) -> None:
        """Restore a saved state. Raises ValueError for the state of another SLO or baseline.

        With another budget or detector the evidence starts again, and the baseline stays: it does not depend on them.
        """
        self.rates, self.makers, self.fell, self.case = dict(saved.rates), tuple(saved.makers), saved.fell, case
        if saved.clusters is not None:
            self.clusters.state = saved.clusters
        if len(saved.dependence) == len(self.dependence.state):
            self.dependence.state = saved.dependence
        if saved.baseline is not None:
            self.baseline.loads(saved.baseline)
        try:
            self.detector.loads(saved.detector)
        except (ValueError, KeyError):
            self.detector.reset()
        if saved.recovery is not None and case is not None:
            recovery = Recovery()
            recovery.loads(saved.recovery)
            self.recovery = recovery

    def _update_recovery(self, bucket: Bucket, m0: float, end: float) -> None:
        if self.case is None:
            return
        found = self.case.alert.finding
        depth = 0.0 if found.estimate is None else found.baseline - found.estimate
        self.recovery = self.recovery or Recovery(depth=depth, n=found.n)
        over = self.recovery.update(bucket, m0)
        progress, since = self.recovery.progress, self.recovery.since
        self.case.alert = replace(self.case.alert, recovery=progress, recovering_since=since)
        if over:
            self.case.alert = replace(self.case.alert, state="resolved", ended_at=end, recovery=None)
            self.case = self.recovery = None
            self.detector.reset()
            self.baseline.release()

    def _opened(self, since: float) -> Case:
        return Case(
            alert=Alert(
                fingerprint=fingerprint(self.rule, self.metric, self.app, self.slice, since),
                rule=self.rule,
                metric=self.metric,
                app=self.app,
                severity=self.severity,
                state="pending",
                since=since,
                finding=self.detector.current(),
                slice=self.slice,
                direction="rise" if self.flipped else "drop",
            )
        )


def usable(point: Point) -> bool:
    """Return whether a point is a score in [0, 1] with a rate in (0, 1]."""
    return (
        point.outcome == "score" and point.value is not None and 0.0 <= point.value <= 1.0 and 0.0 < point.rate <= 1.0
    )


def on_scale(value: float, *, flipped: bool) -> float:
    """Convert a value of a metric whose best is 0 to the "higher is better" scale, and back."""
    return 1.0 - value if flipped else value


HISTORY = 200
"""Alerts that are kept; the oldest resolved ones above this are dropped."""
_NEVER = 1e18


class Cases:
    """All cases by their alert's fingerprint.

    >>> cases = Cases()
    >>> cases.track_judge_outage(1000.0, now=1060.0), cases.track_judge_outage(1000.0, now=1120.0)
    (True, False)
    >>> cases.track_judge_outage(None, now=1180.0), cases.alerts()[0].ended_at
    (True, 1180.0)
    """

    def __init__(self) -> None:
        self.by_fingerprint: dict[str, Case] = {}

    def __iter__(self) -> Iterator[Case]:
        return iter(list(self.by_fingerprint.values()))

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts, newest first."""
        return sorted((case.alert for case in self), key=lambda alert: alert.since, reverse=True)

    def earlier(self, alert: Alert) -> tuple[tuple[float, float], ...]:
        """Return the times, onset to end, of earlier alerts of the same app and metric, cut at this alert's onset.

        An alert of a slice counts for that slice only: the rest of the app was well.
        """
        onset, found = alert.finding.onset, []
        for other in (case.alert for case in self if case.alert.state != "pending"):
            same = (other.app, other.metric) == (alert.app, alert.metric) and other.slice in ("", alert.slice)
            if same and other.finding.onset < onset:
                found.append((other.finding.onset, min(onset, onset if other.ended_at is None else other.ended_at)))
        return tuple(sorted(found))

    def unresolved(self) -> dict[str, Case]:
        """Return the cases that have not ended, by fingerprint."""
        return {name: case for name, case in self.by_fingerprint.items() if case.alert.state != "resolved"}

    def load(self, state: bytes) -> None:
        """Replace the cases with a state from `dump`."""
        cases = msgspec.json.decode(state, type=list[Case])
        self.by_fingerprint = {case.alert.fingerprint: case for case in cases}

    def dump(self) -> bytes:
        """Return the state to save."""
        return msgspec.json.encode(list(self.by_fingerprint.values()))

    def close_orphans(self, tracked: Collection[str], now: float) -> None:
        """End firing alerts whose fingerprint no stream tracks (their rule was removed); drop pending ones."""
        for case in self:
            if case.alert.fingerprint in tracked or case.alert.rule == JUDGE_BLIND:
                continue
            if case.alert.state == "pending":
                del self.by_fingerprint[case.alert.fingerprint]
            elif case.alert.state == "firing":
                case.alert = replace(case.alert, state="resolved", ended_at=now, recovery=None, unwatched=True)

    def judge_outage_since(self) -> float | None:
        """Return the start of the judge's outage whose alert fires; None without one."""
        opened = self._judge_outage()
        return None if opened is None else opened.alert.since

    def track_judge_outage(self, since: float | None, now: float, *, in_use: bool = True) -> bool:
        """Open an alert for a judge that fails `since` then, or resolve it (None); return whether anything changed.

        With `in_use` False it resolves because no metric is judged any more.
        """
        opened = self._judge_outage()
        if since is None and opened is not None:
            why = "" if in_use else NOT_JUDGED
            opened.alert = replace(opened.alert, state="resolved", ended_at=now, cause_detail=why)
            return True
        if since is not None and opened is None:
            alert = judge_outage(since)
            self.by_fingerprint[alert.fingerprint] = Case(alert=alert, alarm_at=_NEVER, described_until=_NEVER)
            return True
        return False

    def _judge_outage(self) -> Case | None:
        return next((case for case in self if case.alert.rule == JUDGE_BLIND and case.alert.state == "firing"), None)

    def drop_old(self) -> Sequence[str]:
        """Drop the oldest resolved alerts above `HISTORY`; return their fingerprints."""
        resolved = [alert.fingerprint for alert in self.alerts() if alert.state == "resolved"]
        dropped = resolved[max(0, HISTORY - (len(self.by_fingerprint) - len(resolved))) :]
        for fingerprint in dropped:
            del self.by_fingerprint[fingerprint]
        return dropped
