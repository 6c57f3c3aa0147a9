"""A store, a clock, rules and people to tell, for the tests of the alert engine."""

from __future__ import annotations

import asyncio
import contextlib

from msgspec.structs import replace

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.settings.shared import Alerts, Rule
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine, AlertObserver
from monitors.alerting.notifiers import NO_PAGE, NotDeliveredError, Notifier
from monitors.alerting.notifiers.webhook import group_body
from monitors.alerting.rules import MONTH_S, watch_of

T0 = 1_760_000_040.0  # the edge of a minute
CONFIG = Alerts(false_alerts_per_30d=1.0, bucket_s=60.0, watermark_s=300.0, slices=("app",), group_wait_s=0.0)
RULE = Rule(metric="faithfulness", slo=0.85, name="answers")
TRIO = ("lexical_groundedness", "context_relevancy", "faithfulness")


def replace_config(**changes):
    return replace(CONFIG, **changes)


def watching(budget_per_s=1e-6, rule=RULE, **changes):
    """A rule at work by itself, with a budget of false alarms a second."""
    config = replace_config(false_alerts_per_30d=budget_per_s * MONTH_S, **changes)
    return watch_of(rule, config, part=1.0, flipped=False)


def webhook_body(alert, links=NO_PAGE):
    return group_body([alert], links)


class People(Notifier):
    """A notifier that remembers, and fails as often as it is asked to."""

    def __init__(self, failures=0, delay_s=0.0):
        self.alerts = []
        self.calls = 0
        self.under_way = 0
        self.failures = failures
        self.delay_s = delay_s

    async def notify(self, alert):
        self.calls += 1
        self.under_way += 1
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.under_way -= 1
        if self.failures:
            self.failures -= 1
            raise OSError("nobody at home")
        self.alerts.append(alert)

    @property
    def heard(self):
        return [(alert.fingerprint, alert.state) for alert in self.alerts]


class Crowd(People):
    """People who take several alerts at once; `messages` has the first letter and the state of those in each."""

    takes_groups = True

    def __init__(self, failures=0):
        super().__init__(failures)
        self.messages = []

    async def notify(self, alert):
        await self.notify_all([alert])

    async def notify_all(self, alerts):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise NotDeliveredError("nobody at home")
        self.messages.append([(alert.fingerprint[0], alert.state) for alert in alerts])
        self.alerts += alerts


class Stubborn:
    """A store in front of the real one whose next calls of one method fail."""

    def __init__(self, store):
        self._store = store
        self.failing = {}
        self.held = {}
        """Events that calls wait for, by method."""

    def __getattr__(self, name):
        async def call(*args):
            if name in self.held:
                await self.held[name].wait()
            if self.failing.get(name, 0):
                self.failing[name] -= 1
                raise OSError(f"{name} does not answer")
            return await getattr(self._store, name)(*args)

        return call


class World(AlertObserver):
    """A store, a clock and whoever is told; engines come and go."""

    def __init__(self, path, rules=(RULE,), config=CONFIG, **notifiers):
        self.store = Stubborn(SQLiteStore(path))
        self.now = T0
        self.oldest = None
        self.rules, self.config, self.notifiers = rules, config, notifiers
        self.shown, self.notifications, self.failed_descriptions = [], [], 0
        self.blind_since, self.judged = None, True
        self.delay_s = lambda _: 0.0
        self.count = 0
        self.notify_within_s = 300.0  # a busy machine describes an alert in its own time
        self.engine = self.restart()

    def restart(self):
        async def oldest():
            return self.oldest

        self.engine = AlertEngine(
            self.rules,
            self.config,
            self.store,
            self.store,
            queue_oldest=oldest,
            notifiers=self.notifiers,
            clock=lambda: self.now,
            lower_is_better=lambda metric: metric == "hallucination",
            observer=self,
            notify_within_s=self.notify_within_s,
            judge=JudgeSignals(
                metrics=TRIO,
                failing_since=lambda: self.blind_since,
                resume=self.resume,
                in_use=self.judged,
                delay_s=self.delay_s,
            ),
        )
        return self.engine

    def resume(self, since):
        self.blind_since = since

    def show_streams(self, streams):
        self.shown = streams

    def notified(self, notifier, result):
        self.notifications.append((notifier, result))

    def description_failed(self):
        self.failed_descriptions += 1

    def show_versions(self, versions):
        self.versions = versions

    async def add(
        self, started_at, outcome, *, metrics=("faithfulness",), app="shop", rate=1.0, judge="j", version="1"
    ):
        self.count += 1
        sample = Sample(id=f"x{self.count:05}", started_at=started_at, app=app)
        if not isinstance(outcome, (Score, Skipped, Failed)):
            outcome = Score(float(outcome))
        evaluations = [
            Evaluation(sample_id=sample.id, metric=m, version="1", judge=judge, outcome=outcome) for m in metrics
        ]
        await self.store.add(sample, evaluations)
        return sample

    async def minutes(self, values, *, per_minute=3, tick=True, **about):
        """Let one minute pass for each of `values`, with scores of that value, and tick at its end."""
        for value in values:
            for k in range(per_minute):
                await self.add(self.now + 60.0 * k / per_minute, value, **about)
            self.now += 60.0
            if tick:
                await self.tick()

    async def tick(self):
        await self.engine.tick()
        await self.engine.aclose()

    async def later(self, seconds=300.0):
        self.now += seconds
        await self.tick()

    @property
    def alert(self):
        (alert,) = self.engine.alerts()
        return alert


@contextlib.asynccontextmanager
async def alerting(path, **options):
    """An engine on a store at `path`, with whoever is told."""
    world = World(path, **options)
    try:
        yield world
    finally:
        await world.engine.aclose()
        await world.store.aclose()


def run(path, scenario, **options):
    """Run what takes such a world, where several in turn are compared."""

    async def main():
        async with alerting(path, **options) as world:
            return await scenario(world)

    return asyncio.run(main())
