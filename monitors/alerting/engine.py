"""The alert engine: feeds closed buckets of scores to the rules, saves all state, starts deliveries."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from gaugeway.records import Alert, Sample
from gaugeway.runtime.tasks import spawn
from gaugeway.settings.shared import Alerts, Rule
from gaugeway.storage.stores import Point, Query, StateStore, Store
from monitors.alerting.acknowledgements import Acknowledgements, NotLeaderError
from monitors.alerting.changes import Version, Versions
from monitors.alerting.delivery import Delivery, DeliveryObserver
from monitors.alerting.description import Describer, JudgeSignals
from monitors.alerting.notifiers import Notifier
from monitors.alerting.notifiers.factory import NotifierTests
from monitors.alerting.repeat_policy import Progress
from monitors.alerting.rule_watch import MAX_STREAMS, FeedReport, RuleWatch, SavedWatch
from monitors.alerting.rules import budget_parts, is_flipped, watch_of
from monitors.alerting.stream import Case, Cases, Stream, on_scale

DAY_S = 86_400.0
NOTIFY_WITHIN_S = 2.0
"""How long a notification waits for the description of its alert."""
DESCRIBED_AT_ONCE = 4
PAGE = 250
"""Scores per page: catching up on a day must not block the event loop for long, which is 0.3 s at 2,000."""
_DISTINCT_WARNINGS = 200
_CASES, _WATCH, _VERSIONS = "alerts/cases", "alerts/rule/", "alerts/versions"
_log = logging.getLogger("gaugeway")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """The state of one stream, for gauges and the page.

    `m0` is the baseline mean on the metric's own scale, None while it is being learned (`learned` of `needed` scores
    seen); the alarm is at `evidence_log10` 0. `margin` is how far it lies below the learned mean. `slice` is "" for the
    whole app, `severity` that of the rule. `named` is the share of scores whose conversation is known, `design_effect`
    how many scores count as an independent one because of what nothing names.
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
    margin: float = 0.0
    severity: str = "page"
    named: float = 0.0
    design_effect: float = 1.0


class AlertObserver(DeliveryObserver):
    """Receives the engine's state and failures; each method does nothing unless a subclass overrides it."""

    def show_streams(self, streams: Sequence[StreamStatus]) -> None:
        """Take all streams, after each tick."""

    def show_versions(self, versions: Sequence[Version]) -> None:
        """Take the versions that appeared in the traffic, oldest first, after each tick."""

    def description_failed(self) -> None:
        """Count an alert whose means, cause and examples could not be looked up; a later tick retries."""

    def app_over_limit(self, app: str) -> None:
        """Count scores of `app` that were dropped because its rule already has the maximum number of streams."""

    def low_coverage(self, metric: str, scores: int) -> None:
        """Count scores that were dropped because too many evaluations in their bucket failed."""


class AlertEngine:
    """Evaluates every rule on every app it matches, within the budget of false alarms.

    See docs/explanation/alerts.md#what-is-guaranteed.

    `tick` reads the scores of closed buckets from the store, each once and in the order of time. A bucket closes when
    it ended `watermark_s` ago and no earlier sample waits in the queue. Scores stored later count for estimates only;
    `late` identifies them. Buckets without scores are not closed, so a wrong clock loses no scores. A new rule starts
    one day back.

    The budget is split over the rules (`rules.budget_parts`), and within a rule over its apps and slices by
    `multiple_testing.share`: with threshold 1 and start weights of budget x seconds, E[false alarms of all streams in
    T] <= T * false_alerts_per_30d / 30 days, for any dependence between streams. Delivery
    state is kept by notifier name.

    While the judge fails (`judge.failing_since`), no rule on one of its metrics fires or resolves, and an alert about
    the judge is open; a restart or another leader takes the outage over. Only one engine at a time may use a
    state store.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        config: Alerts,
        store: Store,
        state_store: StateStore,
        *,
        queue_oldest: Callable[[], Awaitable[float | None]],
        notifiers: Mapping[str, Notifier],
        lower_is_better: Callable[[str], bool],
        judge: JudgeSignals | None = None,
        observer: AlertObserver | None = None,
        clock: Callable[[], float] = time.time,
        notify_within_s: float = NOTIFY_WITHIN_S,
    ) -> None:
        self._config = config
        self._state_store = state_store
        self._queue_oldest = queue_oldest
        self._judge = judge or JudgeSignals()
        self._observer = observer or AlertObserver()
        self._clock = clock
        self._reader = _BucketReader(store, config.bucket_s)
        self._describer = Describer(store, lower_is_better=lower_is_better, judge=self._judge, content=config.content)
        self._delivery = Delivery(notifiers, state_store, clock, self._observer, config)
        self.notifier_tests = NotifierTests(notifiers, clock)
        self._notify_within_s = notify_within_s
        self._describing: dict[str, asyncio.Task[None]] = {}
        self._describers = asyncio.Semaphore(DESCRIBED_AT_ONCE)
        self._cases = Cases()
        self._watches = _watches(rules, config, lower_is_better)
        self._logged: set[str] = set()
        self._restored = self._following = self._unsaved = False
        self.versions = Versions()

    async def tick(self) -> None:
        """Close due buckets, save, start deliveries. Errors of the stores propagate; the next tick resumes."""
        if not self._restored:
            self._restore(await self._state_store.load())
            self._restored, self._following = True, False
            if (since := self._cases.judge_outage_since()) is not None and self._judge.in_use:
                self._judge.resume(since)
        edge = self._clock() - self._config.watermark_s
        oldest = await self._queue_oldest()  # before the scores are read: what has left the queue is in the store
        up_to = self._reader.edge(edge if oldest is None else min(edge, oldest))
        outage = self._judge.failing_since()
        self._unsaved |= self._cases.track_judge_outage(outage, self._clock(), in_use=self._judge.in_use)
        for watch in self._watches.values():
            # The few scores a failing judge still gives are no sample of the traffic: they wait until it recovers.
            if outage is None or watch.rule.metric not in self._judge.metrics:
                await self._advance(watch, up_to)
        await self._start_describing()
        await self._save()
        self._observer.show_streams(self.streams())
        self._observer.show_versions(self.versions.changes())
        self._delivery.start(self.alerts())

    def name_passages_with(self, salt: str) -> None:
        """Set the salt of the hashes that name passages without id and source; before the first tick."""
        self._describer.salt = salt

    async def follow(self) -> None:
        """Show the state the leading engine has saved, without changing it; the next tick resumes from there."""
        self._restored, self._following = False, True
        self._restore(await self._state_store.load())
        self.acknowledgements.close()
        self._observer.show_streams(())

    def alerts(self) -> Sequence[Alert]:
        """Return the open alerts and the latest resolved ones, newest first."""
        return self._cases.alerts()

    def streams(self) -> Sequence[StreamStatus]:
        """Return the status of every stream found so far."""
        return [
            status_of(watch, stream, watch.closed_until or 0.0)
            for watch in self._watches.values()
            for stream in watch.streams.values()
        ]

    def design_effects(self) -> Mapping[tuple[str, str, str], float]:
        """Return how much what scores share, named or not, widens each mean's variance, by app, metric and slice."""
        return {
            (stream.app, stream.metric, stream.slice): stream.clusters.effect.value * stream.dependence.estimate
            for watch in self._watches.values()
            for stream in watch.streams.values()
        }

    @property
    def has_news(self) -> bool:
        """Whether an alert is being described or waits for others of its group: the next tick must not be late."""
        return bool(self._describing) or self._delivery.is_waiting

    @property
    def acknowledgements(self) -> Acknowledgements:
        """Silences, acknowledgements and undelivered notifications."""
        return self._delivery.acknowledgements

    def delivery_progress(self, fingerprint: str) -> Mapping[str, Progress]:
        """Return each notifier's progress with an alert."""
        return self._delivery.delivery_progress(fingerprint)

    def rebaseline(self, rule: str, app: str | None = None) -> int:
        """Re-learn a rule's baselines, for one app or all; return the number of streams.

        Raises KeyError for an unknown rule, NotLeaderError when another process leads.
        """
        if self._following:
            raise NotLeaderError("another process leads; try again")
        self._unsaved = True
        streams = self._watches[rule].rebaseline(app)
        self._delivery.baseline_reset(rule, app)
        return streams

    def closed_until(self, metric: str, app: str) -> float:
        """Return the end of the last closed bucket of `metric` on `app`, 0.0 without a rule or before the first one."""
        watches = (watch for watch in self._watches.values() if watch.rule.metric == metric and watch.covers(app))
        return max((watch.closed_until or 0.0 for watch in watches), default=0.0)

    def is_watched(self, metric: str, app: str) -> bool:
        """Return whether a rule covers `metric` on `app`, even if it has taken in no score of it yet."""
        return any(watch.rule.metric == metric and watch.covers(app) for watch in self._watches.values())

    def late(self, sample: Sample, metric: str) -> bool:
        """Return whether a score stored now is too late for the detectors."""
        return sample.started_at < self.closed_until(metric, sample.app)

    async def aclose(self) -> None:
        """Stop describing, and wait for running deliveries."""
        for task in list(self._describing.values()):
            task.cancel()
        if self._describing:
            await asyncio.wait(list(self._describing.values()))
        await self._delivery.aclose()

    def _restore(self, states: Mapping[str, bytes]) -> None:
        """Replace all state with the saved one."""
        for watch in self._watches.values():
            watch.closed_until = None
            watch.streams.clear()
        self._cases.load(states.get(_CASES, b"[]"))
        if _VERSIONS in states:
            self.versions.loads(states[_VERSIONS])
        for name, watch in self._watches.items():
            if (saved := states.get(_WATCH + name)) is not None:
                watch.restore(msgspec.json.decode(saved, type=SavedWatch), self._cases.unresolved())
        streams = (stream for watch in self._watches.values() for stream in watch.streams.values())
        self._cases.close_orphans({stream.case.alert.fingerprint for stream in streams if stream.case}, self._clock())
        self._delivery.restore(states, self.alerts())

    async def _advance(self, watch: RuleWatch, up_to: float) -> None:
        """Feed the scores of [closed_until, up_to).

        `feed` moves `closed_until` along with what it took in, and nothing is awaited between a page and its feed: if
        anything raises, no score is fed twice and none is skipped.
        """
        if watch.closed_until is None:
            watch.closed_until = self._reader.edge(up_to - DAY_S)
        async for points, until in self._reader.pages(watch.rule.metric, watch.closed_until, up_to):
            begin = time.monotonic()
            report = watch.feed(points, until=until, bucket_s=self._config.bucket_s, cases=self._cases.by_fingerprint)
            self.versions.notice(points)
            self._unsaved = True
            self._count(watch, report)
            await asyncio.sleep(time.monotonic() - begin)  # a page is answered in many turns of the event loop

    def _count(self, watch: RuleWatch, report: FeedReport) -> None:
        if report.over_limit:
            self._warn_once(
                f"rule {watch.name} has reached the limit of {MAX_STREAMS} streams; narrow it with a pattern in `apps`"
            )
        for app in report.over_limit:
            self._observer.app_over_limit(app)
        if report.low_coverage:
            self._observer.low_coverage(watch.rule.metric, report.low_coverage)

    async def _start_describing(self) -> None:
        """Describe the alerts that are due; wait `notify_within_s` at most: a later cause is sent as an update."""
        for case in self._cases:
            rule, name = self._watches.get(case.alert.rule), case.alert.fingerprint
            until = self._describer.due(case, (rule and rule.closed_until) or 0.0)
            if until is not None and name not in self._describing:
                task = spawn(self._describe(case, until), name=f"description of alert {name}")
                self._describing[name] = task
                task.add_done_callback(lambda _, name=name: self._describing.pop(name, None))  # type: ignore[misc]
        if self._describing:
            await asyncio.wait(list(self._describing.values()), timeout=self._notify_within_s)

    async def _describe(self, case: Case, until: float) -> None:
        """Describe an alert; on failure a later tick retries, because an alert without its means must still go out."""
        watch = self._watches.get(case.alert.rule)
        onset = case.alert.finding.onset
        slack_s = case.alarm_at - onset  # the scores that the onset was dated by
        slices = watch.affected(case.alert.app, onset, slack_s) if watch and not case.alert.slice else ()
        try:
            async with self._describers:
                await self._describer.describe_case(case, until, slices, self._cases.earlier(case.alert))
        except Exception as error:  # noqa: BLE001 - a bad row of one alert must not block the others; counted
            self._warn_once(f"alert {case.alert.fingerprint} has no description: {type(error).__name__}: {error}")
            self._observer.description_failed()
        finally:
            self._unsaved = True

    def _warn_once(self, text: str) -> None:
        """Log a warning that would otherwise repeat at every tick."""
        if text not in self._logged and len(self._logged) < _DISTINCT_WARNINGS:
            self._logged.add(text)
            _log.warning("%s", text)

    async def _save(self) -> None:
        """Save all state in one transaction, without the oldest resolved alerts."""
        if not self._unsaved:
            return
        self._describer.forget(self._cases.drop_old())
        states = {_CASES: self._cases.dump(), _VERSIONS: self.versions.dumps()}
        for name, watch in self._watches.items():
            if watch.closed_until is not None:
                states[_WATCH + name] = msgspec.json.encode(watch.saved())
        self._unsaved = False
        try:
            await self._state_store.save(states)
        except BaseException:
            self._unsaved = True
            raise


async def saved_alert(state_store: StateStore, fingerprint: str) -> Alert:
    """Return an alert that the leading engine saved. Raises ValueError for an unknown fingerprint."""
    cases = Cases()
    cases.load((await state_store.load()).get(_CASES, b"[]"))
    if fingerprint not in cases.by_fingerprint:
        raise ValueError(f"no alert has the fingerprint {fingerprint}")
    return cases.by_fingerprint[fingerprint].alert


class _BucketReader:
    """Reads scores in pages that end at the edges of buckets, multiples of `bucket_s`."""

    def __init__(self, store: Store, bucket_s: float) -> None:
        self._store = store
        self._bucket_s = bucket_s

    def edge(self, moment: float) -> float:
        """Return the last edge that is not after `moment`, despite rounding."""
        edge = math.floor(moment / self._bucket_s) * self._bucket_s
        return edge if edge <= moment else edge - self._bucket_s

    async def pages(self, metric: str, since: float, up_to: float) -> AsyncIterator[tuple[Sequence[Point], float]]:
        """Yield (points, end of their last bucket) of [since, up_to), oldest first, as long as there are points."""
        more = True
        while more and since < up_to:
            until = up_to
            query = Query(since=since, until=until, metric=metric, limit=PAGE)
            points = await self._store.series(query)
            if not points:
                return
            if more := len(points) >= PAGE:
                until = self.edge(points[-1].started_at)
                if until > since:
                    points = [point for point in points if point.started_at < until]
                else:  # one bucket holds more than a page
                    until = min(up_to, self.edge(since) + self._bucket_s)
                    points = await self._store.series(replace(query, until=until, limit=None))
            else:  # stop at the last score: a clock that is ahead must not close buckets that still fill
                until = min(up_to, self._edge_after(points[-1].started_at))
            yield points, until
            since = until

    def _edge_after(self, moment: float) -> float:
        edge = self.edge(moment) + self._bucket_s
        return edge if edge > moment else edge + self._bucket_s


def _watches(rules: Sequence[Rule], config: Alerts, lower_is_better: Callable[[str], bool]) -> dict[str, RuleWatch]:
    watches: dict[str, RuleWatch] = {}
    for rule, part in zip(rules, budget_parts(rules, config), strict=True):
        watch = watch_of(rule, config, part=part, flipped=is_flipped(rule, lower_is_better))
        if watch.name in watches:
            raise ValueError(f"two alert rules have the name {watch.name!r}; set another `name` for one of them")
        watches[watch.name] = watch
    return watches


def status_of(watch: RuleWatch, stream: Stream, closed_until: float) -> StreamStatus:
    """Return the status of one stream."""
    m0 = stream.baseline.m0(closed_until)
    learned, needed = stream.baseline.progress()
    return StreamStatus(
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
        margin=stream.baseline.tolerance,
        severity=stream.severity,
        named=stream.clusters.named,
        design_effect=stream.dependence.design_effect,
    )
