"""The alert engine: closes buckets from the store, keeps every state in the ledger, tells the notifiers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from monitors.alerting.acknowledgements import Acknowledgements, DeskClosedError
from monitors.alerting.causes import JudgeEvidence
from monitors.alerting.delivery import Delivery, Result
from monitors.alerting.description import Describer, ScoreCompletion
from monitors.alerting.notifiers import Notifier
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.rule_watch import MAX_STREAMS, FeedReport, RuleWatch, SavedWatch
from monitors.alerting.rules import watch_of
from monitors.alerting.stream import Case, Stream, blindness, on_scale
from monitors.alerting.versions import Version, Versions
from monitors.config import Alerts, Rule
from monitors.records import JUDGE_BLIND, Alert, Sample
from monitors.storage.stores import Query, StateStore, Store

DAY_S = 86_400.0
HISTORY = 200
PAGE = 2_000
"""Points taken in at once: reading a day back must not hold up the others for long."""
_NEVER = 1e18
_CASES, _WATCH, _VERSIONS = "alerts/cases", "alerts/rule/", "alerts/versions"
_log = logging.getLogger("gaugeway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One stream for gauges and people.

    `m0` is the mean it is held against, on the metric's own scale, None while that is being learned (`learned` of
    `needed` scores are there); evidence 0 is an alarm. `slice` is "" for all of the app.
    """

    rule: str
    metric: str
    app: str
    m0: float | None
    evidence_log10: float
    state: Literal["quiet", "pending", "firing"]
    closed_until: float
    slice: str = ""
    learned: int = 0
    needed: int = 0


class Observer(Protocol):
    """Shows the streams, as Prometheus gauges for one."""

    def watched(self, streams: Sequence[Watched]) -> None:
        """Take in all streams as they are after a tick."""

    def seen(self, versions: Sequence[Version]) -> None:
        """Take in the versions that came into the traffic, in the order of time."""


class Counts(Protocol):
    """Counts what only shows in the log otherwise."""

    def notified(self, notifier: str, result: Result) -> None:
        """One attempt to tell one alert was made."""

    def undescribed(self) -> None:
        """The means, cause and examples of one alert could not be looked up; a later tick tries again."""

    def unwatched(self, app: str) -> None:
        """Scores of `app` were not taken in, because its rule watches too many streams already."""

    def uncovered(self, metric: str, scores: int) -> None:
        """Scores were not taken in, because too many evaluations beside them failed."""


class Uncounted:
    """Counts nothing."""

    def notified(self, notifier: str, result: Result) -> None: ...
    def undescribed(self) -> None: ...
    def unwatched(self, app: str) -> None: ...
    def uncovered(self, metric: str, scores: int) -> None: ...


class AlertEngine:
    """Watches every rule on every app it matches, and keeps the budget of false alarms (STATISTICS 1.5, 1.6).

    `tick` reads the scores of closed buckets from the store, so each is taken in once and in the order of time: a
    bucket closes when its end is `watermark_s` ago and nothing that started before it waits in the queue. Scores
    stored later count for estimates only; `late` tells them. Where there are no scores yet nothing is closed, so that a
    clock that is wrong costs none. A rule seen for the first time looks one day back.

    The budget is split evenly over the rules, and in a rule over its apps and slices by `watching.share`: with
    threshold 1 and start weights of budget x seconds, E[false alarms of all streams in T] <= T * false_alerts_per_30d
    / 30 days, whatever the dependence between them. Names of notifiers tell them apart across restarts.

    While the judge is blind (`blind_since` gives the time its failures began) no rule on a `judged` metric fires or
    resolves; an alert of its own says so. One engine at a time for one ledger.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        config: Alerts,
        store: Store,
        ledger: StateStore,
        *,
        queue_oldest: Callable[[], Awaitable[float | None]],
        notifiers: Mapping[str, Notifier],
        lower_is_better: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
        observer: Observer | None = None,
        counts: Counts | None = None,
        blind_since: Callable[[], float | None] = lambda: None,
        judged: Collection[str] = (),
        judge_evidence: Callable[[str], JudgeEvidence | None] = lambda _: None,
        on_alarm: Callable[[], None] = lambda: None,
        cause_judging: ScoreCompletion | None = None,
    ) -> None:
        self._config = config
        self._blind_since = blind_since
        self._judged = frozenset(judged)
        self._store = store
        self._ledger = ledger
        self._queue_oldest = queue_oldest
        self._describer = Describer(
            store, lower_is_better=lower_is_better, judge=judge_evidence, content=config.content, more=cause_judging
        )
        self._judge_evidence = judge_evidence
        self._described_by: dict[str, JudgeEvidence | None] = {}
        self._on_alarm = on_alarm
        self.versions = Versions()
        self._clock = clock
        self._observer = observer
        self._counts = counts or Uncounted()
        self._complaints: set[str] = set()
        self._delivery = Delivery(notifiers, ledger, clock, self._counts, config)
        self._cases: dict[str, Case] = {}
        self._watches: dict[str, RuleWatch] = {}
        self._restored = self._following = False
        self._unsaved = False
        for rule in rules:
            watch = watch_of(rule, config, rules=len(rules), lower_is_better=lower_is_better(rule.metric))
            if watch.name in self._watches:
                raise ValueError(f"two alert rules are called {watch.name!r}: give one another `name`")
            self._watches[watch.name] = watch

    async def tick(self) -> None:
        """Close what can be closed, save, tell. What the store or ledger raises comes out; the next tick goes on."""
        if not self._restored:
            self._take_up(await self._ledger.load())
            self._restored, self._following = True, False
        edge = self._clock() - self._config.watermark_s
        oldest = await self._queue_oldest()  # before the scores are read: what left the queue by now is in the store
        up_to = self._edge(edge if oldest is None else min(edge, oldest))
        blind_since = self._blind_since()
        self._tell_blindness(blind_since)
        for watch in self._watches.values():
            # The few scores of a judge that fails say nothing: they are taken in when it sees again.
            if blind_since is None or watch.rule.metric not in self._judged:
                await self._advance(watch, up_to)
        for case in list(self._cases.values()):
            rule = self._watches.get(case.alert.rule)
            if (until := case.to_describe((rule and rule.closed_until) or 0.0)) is not None:
                await self._try_to_describe(case, until)
            elif self._judge_is_known_better(case):
                await self._try_to_describe(case, case.described_until)
        await self._save()
        if self._observer is not None:
            self._observer.watched(self.streams())
            self._observer.seen(self.versions.changes())
        self._delivery.start(self.alerts())

    async def follow(self) -> None:
        """Show what the engine that leads has saved, and change nothing; the next tick goes on from there."""
        self._restored, self._following = False, True
        self._take_up(await self._ledger.load())
        self.desk.close()
        if self._observer is not None:
            self._observer.watched(())

    def alerts(self) -> Sequence[Alert]:
        """The open alerts and the latest of those that are over, newest first."""
        return sorted((case.alert for case in self._cases.values()), key=lambda alert: alert.since, reverse=True)

    def streams(self) -> Sequence[Watched]:
        """Every stream discovered so far."""
        return [
            watched(watch, stream, watch.closed_until or 0.0)
            for watch in self._watches.values()
            for stream in watch.streams.values()
        ]

    @property
    def desk(self) -> Acknowledgements:
        """Silences, acknowledgements and dead letters."""
        return self._delivery.desk

    def delivery_progress(self, fingerprint: str) -> Mapping[str, Progress]:
        """How far each notifier is with an alert."""
        return self._delivery.delivery_progress(fingerprint)

    def rebaseline(self, rule: str, app: str | None = None) -> int:
        """Learn a rule's baselines afresh, of one app or of all; return how many streams that are.

        Raises KeyError, and DeskClosedError where another process leads.
        """
        if self._following:
            raise DeskClosedError("another process leads; try again")
        self._unsaved = True
        return self._watches[rule].rebaseline(app)

    def closed_until(self, metric: str, app: str) -> float:
        """Up to when the buckets of `metric` on `app` are closed; 0.0 when no rule watches them or none began."""
        watches = (watch for watch in self._watches.values() if watch.rule.metric == metric and watch.covers(app))
        return max((watch.closed_until or 0.0 for watch in watches), default=0.0)

    def late(self, sample: Sample, metric: str) -> bool:
        """Whether a score stored now comes too late for the detectors."""
        return sample.started_at < self.closed_until(metric, sample.app)

    async def aclose(self) -> None:
        """Wait for the deliveries under way."""
        await self._delivery.aclose()

    def _edge(self, moment: float) -> float:
        """The last edge of a bucket that is not after `moment`, whatever the rounding."""
        edge = math.floor(moment / self._config.bucket_s) * self._config.bucket_s
        return edge if edge <= moment else edge - self._config.bucket_s

    def _edge_after(self, moment: float) -> float:
        """The first edge of a bucket after `moment`."""
        edge = self._edge(moment) + self._config.bucket_s
        return edge if edge > moment else edge + self._config.bucket_s

    def _take_up(self, states: Mapping[str, bytes]) -> None:
        """Go on from what was saved, whatever was known before."""
        for watch in self._watches.values():
            watch.closed_until = None
            watch.streams.clear()
        cases = msgspec.json.decode(states[_CASES], type=list[Case]) if _CASES in states else []
        self._cases = {case.alert.fingerprint: case for case in cases}
        if _VERSIONS in states:
            self.versions.loads(states[_VERSIONS])
        for name, watch in self._watches.items():
            if (saved := states.get(_WATCH + name)) is not None:
                watch.restore(msgspec.json.decode(saved, type=SavedWatch), self._cases)
        watched = {
            stream.case.alert.fingerprint
            for w in self._watches.values()
            for stream in w.streams.values()
            if stream.case
        }
        for key, case in list(self._cases.items()):
            if case.alert.state == "pending" and key not in watched:
                del self._cases[key]
            elif case.alert.state == "firing" and key not in watched:  # its rule is gone from the configuration
                case.alert = replace(case.alert, state="resolved", ended_at=self._clock())
        self._delivery.restore(states, self.alerts())

    async def _advance(self, watch: RuleWatch, up_to: float) -> None:
        """Take in the scores of [closed_until, up_to) in pages of whole buckets.

        Every await comes before `feed`, which moves `closed_until` with what it took in: whatever is raised in here,
        no score is fed twice and none is left out.
        """
        if watch.closed_until is None:
            watch.closed_until = self._edge(up_to - DAY_S)
        more = True
        while more and (since := watch.closed_until) < up_to:
            until = up_to
            query = Query(since=since, until=until, metric=watch.rule.metric, limit=PAGE)
            points = await self._store.series(query)
            if not points:
                return
            if more := len(points) >= PAGE:
                until = self._edge(points[-1].started_at)
                if until > since:
                    points = [point for point in points if point.started_at < until]
                else:  # one bucket holds more than a page
                    until = min(up_to, self._edge(since) + self._config.bucket_s)
                    points = await self._store.series(replace(query, until=until, limit=None))
            else:  # no further than there are scores: a clock that is ahead must not close what is still to come
                until = min(up_to, self._edge_after(points[-1].started_at))
            fed = watch.feed(points, until=until, bucket_s=self._config.bucket_s, cases=self._cases)
            self.versions.notice(points)
            self._unsaved = True
            self._count(watch, fed)

    def _count(self, watch: RuleWatch, fed: FeedReport) -> None:
        if fed.unwatched:
            self._complain(f"rule {watch.name} watches {MAX_STREAMS} streams and no more; give it a pattern in `apps`")
        for app in fed.unwatched:
            self._counts.unwatched(app)
        if fed.uncovered:
            self._counts.uncovered(watch.rule.metric, fed.uncovered)

    def _tell_blindness(self, since: float | None) -> None:
        """Open an alert when the judge fails, and end it when the judge sees again."""
        open_case = next(
            (one for one in self._cases.values() if one.alert.rule == JUDGE_BLIND and one.alert.state == "firing"), None
        )
        if since is None and open_case is not None:
            open_case.alert = replace(open_case.alert, state="resolved", ended_at=self._clock())
            self._unsaved = True
        elif since is not None and open_case is None:
            alert = blindness(since)
            self._cases[alert.fingerprint] = Case(alert=alert, alarm_at=_NEVER, described_until=_NEVER)
            self._unsaved = True

    async def _try_to_describe(self, case: Case, until: float) -> None:
        """Describe, or leave it to a later tick: an alert without its means must still be saved and told."""
        try:
            await self._describe(case, until)
        except Exception as error:  # noqa: BLE001 - one row of one alert must not silence all the others
            self._complain(f"alert {case.alert.fingerprint} has no description: {type(error).__name__}: {error}")
            self._counts.undescribed()

    def _complain(self, what: str) -> None:
        """Say it once: it is likely to be met again at every tick."""
        if what not in self._complaints and len(self._complaints) < HISTORY:
            self._complaints.add(what)
            _log.warning("%s", what)

    def _judge_is_known_better(self, case: Case) -> bool:
        """Whether the anchors said something since a firing alert was described: that may be another cause."""
        alert = case.alert
        if alert.state != "firing" or alert.metric not in self._judged or not case.described_until:
            return False
        now = self._judge_evidence(alert.metric)
        return now is not None and not now.pending and now != self._described_by.get(alert.fingerprint)

    async def _describe(self, case: Case, until: float) -> None:
        if not case.described_until and case.alert.metric in self._judged:
            self._on_alarm()
        judge = self._judge_evidence(case.alert.metric)
        watch = self._watches.get(case.alert.rule)
        parts = watch.affected(case.alert.app, case.alert.finding.onset) if watch and not case.alert.slice else ()
        case.alert = await self._describer.describe(case.alert, until, parts)
        case.described_until = until
        self._described_by[case.alert.fingerprint] = judge
        self._unsaved = True

    async def _save(self) -> None:
        """Save all states in one transaction, after dropping the oldest of too many alerts that are over."""
        if not self._unsaved:
            return
        over = [alert for alert in self.alerts() if alert.state == "resolved"]
        for alert in over[max(0, HISTORY - (len(self._cases) - len(over))) :]:
            del self._cases[alert.fingerprint]
            self._described_by.pop(alert.fingerprint, None)
        states = {_CASES: msgspec.json.encode(list(self._cases.values())), _VERSIONS: self.versions.dumps()}
        for name, watch in self._watches.items():
            if watch.closed_until is not None:
                states[_WATCH + name] = msgspec.json.encode(watch.saved())
        await self._ledger.save(states)
        self._unsaved = False


def watched(watch: RuleWatch, stream: Stream, closed_until: float) -> Watched:
    """Show one stream."""
    m0 = stream.baseline.m0(closed_until)
    learned, needed = stream.baseline.progress()
    return Watched(
        rule=watch.name,
        metric=watch.rule.metric,
        app=stream.app,
        m0=None if m0 is None else on_scale(m0, flipped=watch.flipped),
        evidence_log10=stream.detector.evidence_log10,
        state=stream.state,
        closed_until=closed_until,
        slice=stream.slice,
        learned=learned,
        needed=needed,
    )
