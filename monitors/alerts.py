"""The alert engine: closes buckets from the store, keeps every state in the ledger, tells the notifiers."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from monitors.alerting import MAX_STREAMS, WORST, Case, SavedWatch, Watch, blindness, described, name_of, side
from monitors.config import Alerts, Rule
from monitors.notifiers import Notifier
from monitors.records import JUDGE_BLIND, Alert, AlertState, Sample
from monitors.stores import Ledger, Point, Query, Store
from monitors.tasks import spawn

DAY_S = 86_400.0
HISTORY = 200
PAGE = 20_000
DELIVERY_TIMEOUT_S = 30.0
FIRST_RETRY_S, LAST_RETRY_S = 10.0, 900.0
_NEVER = 1e18
_CASES, _TOLD, _WATCH = "alerts/cases", "alerts/told", "alerts/rule/"
_log = logging.getLogger("gaugeway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One stream for gauges and people. `m0` is the promised mean on the metric's own scale; evidence 0 is an alarm."""

    rule: str
    metric: str
    app: str
    m0: float
    evidence_log10: float
    state: Literal["quiet", "pending", "firing"]
    closed_until: float


class Observer(Protocol):
    """Shows the streams, as Prometheus gauges for one."""

    def watched(self, streams: Sequence[Watched]) -> None:
        """Take in all streams as they are after a tick."""


class Counts(Protocol):
    """Counts what only shows in the log otherwise."""

    def notified(self, notifier: str, result: Literal["delivered", "failed"]) -> None:
        """One attempt to tell one alert was made."""

    def undescribed(self) -> None:
        """The means, cause and examples of one alert could not be looked up; a later tick tries again."""

    def unwatched(self, app: str) -> None:
        """Scores of `app` were not taken in, because its rule watches too many apps already."""


class Uncounted:
    """Counts nothing."""

    def notified(self, notifier: str, result: Literal["delivered", "failed"]) -> None: ...
    def undescribed(self) -> None: ...
    def unwatched(self, app: str) -> None: ...


class Delivery:
    """Tells every notifier every alert's state until it was told once; each notifier counts for itself.

    Runs in the background, one round at a time, with a time limit for each call. A failed one is tried again on a
    later round, after 10 s, 20 s ... 15 min. At least once: a crash between telling and saving tells again.
    """

    def __init__(
        self, notifiers: Mapping[str, Notifier], ledger: Ledger, clock: Callable[[], float], counts: Counts
    ) -> None:
        self._notifiers = dict(notifiers)
        self._counts = counts
        self._ledger = ledger
        self._clock = clock
        self._told: dict[str, dict[str, AlertState]] = {}
        self._failures: dict[tuple[str, str, AlertState], tuple[int, float]] = {}
        self._unsaved = False
        self._round: asyncio.Task[None] | None = None

    def restore(self, saved: bytes | None, alerts: Sequence[Alert]) -> None:
        """Continue from what was saved; a notifier that is new is not told of alerts that are over."""
        told = msgspec.json.decode(saved, type=dict[str, dict[str, AlertState]]) if saved else {}
        over: dict[str, AlertState] = {alert.fingerprint: "resolved" for alert in alerts if alert.state == "resolved"}
        self._told = {name: told.get(name, dict(over)) for name in self._notifiers}
        self._unsaved = self._told != told

    def start(self, alerts: Sequence[Alert]) -> None:
        """Begin a round for what is due, unless the last one is still under way."""
        if self._round is not None and not self._round.done():
            return
        known = {alert.fingerprint for alert in alerts}
        self._told = {name: {key: told[key] for key in told if key in known} for name, told in self._told.items()}
        self._failures = {key: value for key, value in self._failures.items() if key[1] in known}
        due = [(name, alert) for name in self._notifiers for alert in alerts if self._due(name, alert)]
        if due or self._unsaved:
            self._round = spawn(self._deliver(due), name="alert delivery")

    async def aclose(self) -> None:
        """Wait for the round under way, which its time limits end."""
        if self._round is not None:
            await asyncio.wait([self._round])

    def _due(self, name: str, alert: Alert) -> bool:
        if alert.state == "pending" or self._told[name].get(alert.fingerprint) == alert.state:
            return False
        _, not_before = self._failures.get((name, alert.fingerprint, alert.state), (0, 0.0))
        return self._clock() >= not_before

    async def _deliver(self, due: Sequence[tuple[str, Alert]]) -> None:
        await asyncio.gather(*(self._tell(name, alert) for name, alert in due))
        if self._unsaved:
            await self._ledger.save({_TOLD: msgspec.json.encode(self._told)})
            self._unsaved = False

    async def _tell(self, name: str, alert: Alert) -> None:
        key = (name, alert.fingerprint, alert.state)
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                await self._notifiers[name].notify(alert)
        except Exception as error:  # noqa: BLE001 - whatever a notifier raises means "not delivered"
            failures = self._failures.get(key, (0, 0.0))[0] + 1
            pause = min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 10))
            self._failures[key] = failures, self._clock() + pause
            _log.warning(
                "notifier %s was not told about alert %s (%s: %s); next try in %.0f s",
                *(name, alert.fingerprint, type(error).__name__, error, pause),
            )
            self._counts.notified(name, "failed")
        else:
            self._counts.notified(name, "delivered")
            self._failures.pop(key, None)
            self._told[name][alert.fingerprint] = alert.state
            self._unsaved = True


class AlertEngine:
    """Watches every rule on every app it matches, and keeps the budget of false alarms (STATISTICS 1.5, 1.6).

    `tick` reads the scores of closed buckets from the store, so each is taken in once and in the order of time: a
    bucket closes when its end is `watermark_s` ago and nothing that started before it waits in the queue. Scores
    stored later count for estimates only; `late` tells them. A rule seen for the first time looks one day back.

    The budget is split evenly over the rules, and in a rule over its apps by `alerting.share`: with threshold 1 and
    start weights of budget x seconds, E[false alarms of all streams in T] <= T * false_alerts_per_30d / 30 days,
    whatever the dependence between them. Names of notifiers tell them apart across restarts.

    While the judge is blind (`blind_since` gives the time its failures began) no rule on a `judged` metric fires or
    resolves; an alert of its own says so. One engine at a time for one ledger.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        config: Alerts,
        store: Store,
        ledger: Ledger,
        *,
        queue_oldest: Callable[[], Awaitable[float | None]],
        notifiers: Mapping[str, Notifier],
        lower_is_better: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
        observer: Observer | None = None,
        counts: Counts | None = None,
        blind_since: Callable[[], float | None] = lambda: None,
        judged: Collection[str] = (),
    ) -> None:
        self._config = config
        self._blind_since = blind_since
        self._judged = frozenset(judged)
        self._store = store
        self._ledger = ledger
        self._queue_oldest = queue_oldest
        self._lower_is_better = lower_is_better
        self._clock = clock
        self._observer = observer
        self._counts = counts or Uncounted()
        self._complaints: set[str] = set()
        self._delivery = Delivery(notifiers, ledger, clock, self._counts)
        self._cases: dict[str, Case] = {}
        self._watches: dict[str, Watch] = {}
        self._restored = False
        self._unsaved = False
        budget_per_s = config.false_alerts_per_30d / (30.0 * DAY_S) / max(1, len(rules))
        for rule in rules:
            flipped = lower_is_better(rule.metric)
            name = name_of(rule, lower_is_better=flipped)
            if name in self._watches:
                raise ValueError(f"two alert rules are called {name!r}: give one another `name`")
            self._watches[name] = Watch(rule=rule, name=name, flipped=flipped, budget_per_s=budget_per_s)

    async def tick(self) -> None:
        """Close what can be closed, save, tell. What the store or ledger raises comes out; the next tick goes on."""
        if not self._restored:
            await self._restore()
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
        await self._save()
        if self._observer is not None:
            self._observer.watched(self.streams())
        self._delivery.start(self.alerts())

    def alerts(self) -> Sequence[Alert]:
        """The open alerts and the latest of those that are over, newest first."""
        return sorted((case.alert for case in self._cases.values()), key=lambda alert: alert.since, reverse=True)

    def streams(self) -> Sequence[Watched]:
        """Every stream discovered so far."""
        return [
            Watched(
                rule=watch.name,
                metric=watch.rule.metric,
                app=stream.app,
                m0=watch.rule.slo,
                evidence_log10=stream.detector.evidence_log10,
                state=stream.state,
                closed_until=watch.closed_until or 0.0,
            )
            for watch in self._watches.values()
            for stream in watch.streams.values()
        ]

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

    async def _restore(self) -> None:
        states = await self._ledger.load()
        cases = msgspec.json.decode(states[_CASES], type=list[Case]) if _CASES in states else []
        self._cases = {case.alert.fingerprint: case for case in cases}
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
        self._delivery.restore(states.get(_TOLD), self.alerts())
        self._restored = True

    async def _advance(self, watch: Watch, up_to: float) -> None:
        """Take in the scores of [closed_until, up_to) in pages of whole buckets.

        Every await comes before `feed`, which moves `closed_until` with what it took in: whatever is raised in here,
        no score is fed twice and none is left out.
        """
        if watch.closed_until is None:
            watch.closed_until = self._edge(up_to - DAY_S)
        while (since := watch.closed_until) < up_to:
            until = up_to
            query = Query(since=since, until=until, metric=watch.rule.metric, limit=PAGE)
            points = await self._store.series(query)
            if len(points) >= PAGE:
                until = self._edge(points[-1].started_at)
                if until > since:
                    points = [point for point in points if point.started_at < until]
                else:  # one bucket holds more than a page
                    until = min(up_to, self._edge(since) + self._config.bucket_s)
                    points = await self._store.series(replace(query, until=until, limit=None))
            unwatched = watch.feed(points, until=until, bucket_s=self._config.bucket_s, cases=self._cases)
            self._unsaved = True
            if unwatched:
                self._complain(f"rule {watch.name} watches {MAX_STREAMS} apps and no more; give it a pattern in `apps`")
            for app in unwatched:
                self._counts.unwatched(app)

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

    async def _describe(self, case: Case, until: float) -> None:
        """Look up what people want to know: up to a day before the onset against the time from there to `until`."""
        alert, onset = case.alert, case.alert.finding.onset
        flipped = self._lower_is_better(alert.metric)
        before = Query(since=onset - DAY_S, until=onset, app=alert.app, order="newest", limit=PAGE)
        since = replace(before, since=onset, until=until)
        worst = replace(since, metric=alert.metric, order="highest" if flipped else "lowest", limit=5 * WORST)
        old, new = await self._store.series(before), await self._store.series(since)
        examples = await self._store.series(worst)
        failing = {point.metric for point in (*old, *new) if point.outcome == "failed"}
        sides = [
            side(
                points,
                lower_is_better=self._lower_is_better,
                failing=failing,
                versions=await self._versions(points, alert),
            )
            for points in (old, new)
        ]
        worst_ids = [point.sample_id for point in examples]
        case.alert = described(alert, before=sides[0], since=sides[1], worst=worst_ids, flipped=flipped)
        case.described_until = until
        self._unsaved = True

    async def _versions(self, points: Sequence[Point], alert: Alert) -> frozenset[tuple[str, str]]:
        """Who made the newest of these scores."""
        for point in points:
            if point.metric == alert.metric and point.outcome == "score":
                found = await self._store.sample(point.sample_id)
                evaluations = found[1] if found is not None else ()
                return frozenset((e.version, e.judge or "") for e in evaluations if e.metric == alert.metric)
        return frozenset()

    async def _save(self) -> None:
        """Save all states in one transaction, after dropping the oldest of too many alerts that are over."""
        if not self._unsaved:
            return
        over = [alert for alert in self.alerts() if alert.state == "resolved"]
        for alert in over[max(0, HISTORY - (len(self._cases) - len(over))) :]:
            del self._cases[alert.fingerprint]
        states = {_CASES: msgspec.json.encode(list(self._cases.values()))}
        for name, watch in self._watches.items():
            if watch.closed_until is not None:
                states[_WATCH + name] = msgspec.json.encode(watch.saved())
        await self._ledger.save(states)
        self._unsaved = False
