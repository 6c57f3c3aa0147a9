"""Deliveries on a real store with a clock of one's own, and those who are notified."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from gaugeway.settings.shared import Alerts
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.acknowledgements import Matcher, Silence
from monitors.alerting.delivery import Delivery
from monitors.alerting.notifiers import NotDeliveredError
from tests.support.alerting import People
from tests.support.receivers import alert

T0 = 1_760_000_000.0
SHOP = alert(fingerprint="a" * 16)
BANK = alert(fingerprint="b" * 16, app="bank")
TWIN = alert(fingerprint="c" * 16, metric="answer_relevancy")


def over(one):
    return replace(one, state="resolved", ended_at=T0 + 100.0)


class Crowd(People):
    """People who take several alerts at once."""

    takes_groups = True

    def __init__(self, **options):
        super().__init__(**options)
        self.messages = []

    async def notify(self, one):
        await self.notify_all([one])

    async def notify_all(self, alerts):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise NotDeliveredError("nobody at home")
        self.messages.append([(one.fingerprint[0], one.state) for one in alerts])
        self.alerts += alerts


class Forgetful(Crowd):
    resend_s = 45.0


class Duty(People):
    """People who take acknowledgements."""

    takes_acknowledgements = True

    def __init__(self, **options):
        super().__init__(**options)
        self.acknowledged = []

    async def acknowledge(self, one):
        if self.failures:
            self.failures -= 1
            raise OSError("nobody at home")
        self.acknowledged.append(one.fingerprint)


class World:
    """A store, a clock and whoever is told."""

    def __init__(self, path, config, notifiers):
        self.store = SQLiteStore(path)
        self.now = T0
        self.counts = []
        self.alerts = []
        self.config, self.notifiers = config, notifiers

    async def restart(self):
        self.delivery = Delivery(self.notifiers, self.store, lambda: self.now, self, self.config)
        self.delivery.restore(await self.store.load(), self.alerts)

    def notified(self, notifier, result):
        self.counts.append((notifier, result))

    async def tick(self, *alerts, after=0.0):
        self.now += after
        self.alerts = alerts or self.alerts
        self.delivery.start(self.alerts)
        await self.delivery.aclose()

    async def pass_by(self, seconds, step=5.0):
        for _ in range(int(seconds / step)):
            await self.tick(after=step)

    async def silence(self, seconds, **labels):
        matchers = tuple(Matcher(name=name, op="=", value=value) for name, value in labels.items())
        made = Silence(id=f"s{self.now}", matchers=matchers, starts=self.now, ends=self.now + seconds, by="lee")
        await self.delivery.acknowledgements.silence(made)
        return made


def routed(notifier, route):
    notifier.route = route
    return notifier


@contextlib.asynccontextmanager
async def delivering(tmp_path, config=None, **notifiers):
    world = World(tmp_path / "store.db", config or Alerts(), notifiers)
    await world.restart()
    try:
        yield world
    finally:
        await world.store.aclose()


def progress(world, name, key="a" * 16):
    return world.delivery.delivery_progress(key)[name]


def events(world, key="a" * 16):
    return [(one.kind, one.notifier or one.by, one.task) for one in world.delivery.acknowledgements.history.of(key)]
