"""Who is told what, when, how often, and what becomes of it when that fails; on the real embedded store."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from itertools import pairwise

import pytest

from gaugeway.settings.shared import Alerts
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.acknowledgements import Ack, NotLeaderError
from monitors.alerting.delivery import Delivery
from monitors.alerting.notifiers import NotDeliveredError, Route
from monitors.alerting.silences import Matcher, Silence
from tests.support.alerting import Crowd, People
from tests.support.receivers import alert

T0 = 1_760_000_000.0
SHOP = alert(fingerprint="a" * 16)
BANK = alert(fingerprint="b" * 16, app="bank")
TWIN = alert(fingerprint="c" * 16, metric="answer_relevancy")


def over(one):
    return replace(one, state="resolved", ended_at=T0 + 100.0)


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


# --- once, again, and in groups ---


async def test_every_state_is_told_once_also_over_a_restart(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.tick(SHOP)
        await world.tick(after=5.0)
        await world.restart()
        await world.tick(after=5.0)
        await world.tick(over(SHOP), after=5.0)
        await world.restart()
        await world.tick(after=5.0)
        assert people.heard == [("a" * 16, "firing"), ("a" * 16, "resolved")]
        assert world.counts == [("people", "delivered")] * 2


async def test_what_fires_is_told_again_after_the_interval_also_over_a_restart_until_it_is_over(tmp_path):
    people = People()
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), people=people) as world:
        await world.tick(SHOP)
        await world.tick(after=3599.0)
        assert len(people.heard) == 1
        await world.restart()
        await world.tick(after=1.0)
        assert len(people.heard) == 2
        await world.tick(over(SHOP), after=10.0)
        await world.tick(after=9000.0)
        assert [state for _, state in people.heard] == ["firing", "firing", "resolved"]


async def test_a_receiver_that_forgets_is_told_at_least_every_minute_whoever_looks_after_it(tmp_path):
    forgetful = Forgetful()
    async with delivering(tmp_path, forgetful=forgetful) as world:
        times = []
        await world.tick(SHOP, BANK)
        await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=world.now))
        for _ in range(120):
            before = len(forgetful.messages)
            await world.tick(after=5.0)
            times += [world.now] * (len(forgetful.messages) - before)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert max(gaps) <= 60.0
        assert forgetful.messages[0] == forgetful.messages[-1] == [("a", "firing"), ("b", "firing")], (
            "at once, together"
        )


async def test_a_receiver_that_forgets_and_was_away_is_told_within_a_minute_of_its_return(tmp_path):
    forgetful = Forgetful()
    async with delivering(tmp_path, forgetful=forgetful) as world:
        await world.tick(SHOP)
        forgetful.failures = 60
        while forgetful.failures:
            await world.tick(after=5.0)
        told = len(forgetful.messages)
        await world.pass_by(60.0)
        assert len(forgetful.messages) > told


async def test_alerts_of_a_group_wait_for_each_other_and_go_out_together(tmp_path):
    crowd, people = Crowd(), People()
    async with delivering(tmp_path, Alerts(group_wait_s=30.0), crowd=crowd, people=people) as world:
        await world.tick(SHOP)
        await world.tick(SHOP, BANK, after=20.0)
        assert crowd.messages == []
        assert world.delivery.is_waiting, "the next tick is not to be late"
        assert [key[0] for key, _ in people.heard] == ["a", "b"], "who is told one by one does not wait"
        await world.tick(SHOP, BANK, TWIN, after=10.0)
        assert crowd.messages == [[("a", "firing"), ("c", "firing")]]
        await world.tick(after=20.0)
        assert crowd.messages[1:] == [[("b", "firing")]]
        await world.tick(after=5.0)
        assert not world.delivery.is_waiting


async def test_news_of_a_group_that_was_told_wait_for_its_interval(tmp_path):
    crowd = Crowd()
    async with delivering(tmp_path, Alerts(group_wait_s=0.0, group_interval_s=300.0), crowd=crowd) as world:
        await world.tick(SHOP)
        await world.tick(SHOP, TWIN, after=100.0)
        await world.tick(over(SHOP), TWIN, after=100.0)
        assert crowd.messages == [[("a", "firing")]]
        await world.tick(after=100.0)
        assert crowd.messages[1:] == [[("a", "resolved"), ("c", "firing")]]
        await world.tick(over(SHOP), over(TWIN), after=300.0)
        assert crowd.messages[2:] == [[("c", "resolved")]]


async def test_groups_are_made_by_the_labels_that_are_asked_for(tmp_path):
    crowd = Crowd()
    async with delivering(tmp_path, Alerts(group_wait_s=0.0, group_by=("metric",)), crowd=crowd) as world:
        await world.tick(SHOP, BANK, TWIN)
        assert crowd.messages == [[("a", "firing"), ("b", "firing")], [("c", "firing")]]


async def test_without_times_of_their_own_groups_wait_in_proportion_to_the_buckets(tmp_path):
    crowd = Crowd()
    async with delivering(tmp_path, Alerts(bucket_s=10.0), crowd=crowd) as world:
        await world.tick(SHOP)
        await world.tick(after=4.9)
        assert not crowd.messages
        await world.tick(after=0.1)
        assert crowd.messages
        await world.tick(over(SHOP), after=49.9)
        assert len(crowd.messages) == 1
        await world.tick(after=0.1)
        assert len(crowd.messages) == 2


async def test_a_group_that_failed_is_told_as_soon_as_it_may_be(tmp_path):
    crowd = Crowd(failures=1)
    async with delivering(tmp_path, Alerts(group_wait_s=30.0), crowd=crowd) as world:
        await world.tick(SHOP, TWIN)
        await world.tick(after=30.0)
        assert crowd.calls == 1
        await world.tick(after=9.0)
        assert crowd.calls == 1
        await world.tick(after=1.0)
        assert crowd.messages == [[("a", "firing"), ("c", "firing")]]


# --- who is told ---


@pytest.mark.parametrize(
    ("route", "heard"),
    [
        (Route(), "abc"),
        (Route(severities=("page",)), "ac"),
        (Route(severities=("pa*", "warn")), "abc"),
        (Route(severities=()), ""),
        (Route(apps=("sh*",)), "ac"),
        (Route(apps=("none",)), "c"),
    ],
)
async def test_a_route_lets_its_severities_and_apps_pass_and_what_concerns_all_apps(tmp_path, route, heard):
    people = People()
    async with delivering(tmp_path, people=routed(people, route)) as world:
        await world.tick(SHOP, replace(BANK, severity="warn"), replace(TWIN, app="*"))
        assert "".join(key[0] for key, _ in people.heard) == heard


async def test_who_does_not_want_to_know_of_ends_is_not_told_of_them(tmp_path):
    people = People()
    async with delivering(tmp_path, people=routed(people, Route(send_resolved=False))) as world:
        await world.tick(SHOP)
        await world.tick(over(SHOP), after=5.0)
        await world.restart()
        await world.tick(after=5.0)
        assert people.heard == [("a" * 16, "firing")]


# --- silences ---


async def test_a_silenced_alert_is_counted_and_told_when_the_silence_ends_and_it_still_fires(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.silence(600.0, app="shop", metric="faithfulness")
        await world.tick(SHOP, BANK)
        await world.tick(after=300.0)
        await world.restart()
        await world.tick(after=200.0)
        assert people.heard == [("b" * 16, "firing")]
        assert world.counts.count(("people", "silenced")) == 1
        await world.tick(after=100.0)
        assert people.heard[1:] == [("a" * 16, "firing")]


async def test_what_began_and_ended_in_silence_is_never_told(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.silence(600.0, app="shop")
        await world.tick(SHOP)
        await world.tick(over(SHOP), after=100.0)
        await world.tick(after=1000.0)
        assert people.heard == []


async def test_what_began_in_silence_and_ended_after_it_before_anybody_was_told_is_not_told_either(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.silence(600.0, app="shop")
        await world.tick(SHOP)
        await world.tick(over(SHOP), after=700.0)
        assert people.heard == []


async def test_the_end_of_what_was_told_before_the_silence_is_told_after_it(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.tick(SHOP)
        await world.silence(600.0, app="shop")
        await world.tick(over(SHOP), after=100.0)
        assert len(people.heard) == 1
        await world.tick(after=500.0)
        assert people.heard[1:] == [("a" * 16, "resolved")]


async def test_repeats_are_silenced_and_a_silence_that_is_taken_back_is_over(tmp_path):
    people = People()
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), people=people) as world:
        await world.tick(SHOP)
        made = await world.silence(7200.0, app="shop")
        await world.tick(after=3600.0)
        assert len(people.heard) == 1
        assert await world.delivery.acknowledgements.unsilence(made.id)
        assert not await world.delivery.acknowledgements.unsilence(made.id)
        await world.tick(after=5.0)
        assert len(people.heard) == 2


async def test_silences_that_have_been_over_for_long_are_forgotten(tmp_path):
    async with delivering(tmp_path, people=People()) as world:
        await world.silence(10.0, app="shop")
        await world.tick(SHOP, after=6 * 86_400.0)
        assert len(await world.delivery.acknowledgements.silences()) == 1
        await world.tick(after=2 * 86_400.0)
        assert await world.delivery.acknowledgements.silences() == []


# --- acknowledgements ---


async def test_an_acknowledged_alert_is_not_repeated_and_its_end_is_told(tmp_path):
    people, duty = People(), Duty()
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), people=people, duty=duty) as world:
        acks = world.delivery.acknowledgements
        assert not await acks.acknowledge("a" * 16, Ack(by="lee", at=T0)), "nothing fires yet"
        await world.tick(SHOP)
        assert await acks.acknowledge("a" * 16, Ack(by="lee", at=T0))
        await world.tick(after=3600.0)
        await world.restart()
        await world.tick(after=3600.0)
        assert len(people.heard) == 1
        assert duty.acknowledged == ["a" * 16], "told once to who wants to know"
        await world.tick(over(SHOP), after=5.0)
        assert people.heard[1:] == [("a" * 16, "resolved")]
        assert world.delivery.acknowledgements.acks() == {}


async def test_taking_an_acknowledgement_back_brings_the_repeats_back(tmp_path):
    duty = Duty()
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), duty=duty) as world:
        await world.tick(SHOP)
        for _ in range(2):
            await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=T0))
            await world.tick(after=5.0)
            assert await world.delivery.acknowledgements.unacknowledge("a" * 16)
            assert not await world.delivery.acknowledgements.unacknowledge("a" * 16)
            await world.tick(after=5.0)
        await world.tick(after=3600.0)
        assert len(duty.heard) == 2
        assert duty.acknowledged == ["a" * 16] * 2


async def test_an_acknowledgement_that_was_not_taken_is_tried_again(tmp_path):
    duty = Duty()
    async with delivering(tmp_path, duty=duty) as world:
        await world.tick(SHOP)
        await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=T0))
        duty.failures = 2
        await world.pass_by(60.0)
        assert duty.acknowledged == ["a" * 16]
        assert world.counts.count(("duty", "failed")) == 2


# --- failures ---


async def test_a_receiver_that_asks_for_time_gets_it(tmp_path):
    class Busy(People):
        async def notify(self, one):
            self.calls += 1
            raise NotDeliveredError("busy", retry_after_s=120.0)

    busy = Busy()
    async with delivering(tmp_path, busy=busy) as world:
        await world.tick(SHOP)
        await world.pass_by(115.0)
        assert busy.calls == 1
        await world.tick(after=5.0)
        assert busy.calls == 2


async def test_what_cannot_be_delivered_becomes_a_dead_letter_also_over_restarts_and_can_be_sent_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 7200.0)

    deaf = People(failures=10_000)
    async with delivering(tmp_path, Alerts(), deaf=deaf) as world:
        await world.tick(SHOP)
        for _ in range(20):
            await world.restart()
            await world.tick(after=400.0)
        assert world.counts.count(("deaf", "dead")) == 1
        await world.restart()
        (letter,) = await world.delivery.acknowledgements.undelivered()
        assert (letter.notifier, letter.alert, letter.error) == ("deaf", SHOP, "OSError: nobody at home")
        assert letter.at - letter.since >= 7200.0
        assert letter.attempts >= 8
        calls = deaf.calls
        await world.tick(after=5.0)
        assert deaf.calls == calls, "given up"
        with pytest.raises(NotDeliveredError, match="OSError: nobody at home"):
            await world.delivery.acknowledgements.retry(letter.id)
        assert len(await world.delivery.acknowledgements.undelivered()) == 1
        deaf.failures = 0
        await world.tick(over(SHOP), after=5.0)
        assert await world.delivery.acknowledgements.retry(letter.id)
        assert {state for _, state in deaf.heard} == {"resolved"}, "told as it is by now"
        assert not await world.delivery.acknowledgements.retry(letter.id)
        await world.restart()
        assert await world.delivery.acknowledgements.undelivered() == []


async def test_who_was_given_up_is_tried_again_with_the_next_repeat_while_it_fires(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 100.0)

    deaf = People(failures=100)
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), deaf=deaf) as world:
        await world.tick(SHOP)
        await world.tick(after=200.0)
        assert world.counts[-1] == ("deaf", "dead")
        deaf.failures = 0
        await world.tick(after=3599.0)
        assert deaf.heard == []
        await world.tick(after=1.0)
        assert deaf.heard == [("a" * 16, "firing")]


async def test_of_dead_letters_the_latest_hundred_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 10.0)

    async with delivering(tmp_path, Alerts(), deaf=People(failures=1000)) as world:
        many = [alert(fingerprint=f"{i:016}") for i in range(130)]
        await world.tick(*many)
        await world.tick(after=20.0)
        letters = await world.delivery.acknowledgements.undelivered()
        assert [int(one.alert.fingerprint) for one in letters] == list(range(129, 29, -1))


async def test_a_letter_to_a_notifier_that_is_gone_stays_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 10.0)

    async with delivering(tmp_path, Alerts(), deaf=People(failures=1000)) as world:
        await world.tick(SHOP)
        await world.tick(after=20.0)
        world.notifiers = {}
        await world.restart()
        (letter,) = await world.delivery.acknowledgements.undelivered()
        with pytest.raises(NotDeliveredError, match="no notifier is called deaf"):
            await world.delivery.acknowledgements.retry(letter.id)


async def test_one_that_hangs_does_not_keep_the_others_from_their_rounds(tmp_path):
    people, slow = People(), People(delay_s=60.0)
    async with delivering(tmp_path, people=people, slow=slow) as world:
        world.delivery.start([SHOP])
        async with asyncio.timeout(60):
            while not (people.heard and slow.calls):  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)
            while len(people.heard) < 2:
                world.delivery.start([SHOP, BANK])  # as at every tick; the first round of `people` may still end
                await asyncio.sleep(0.01)
        assert [key[0] for key, _ in people.heard] == ["a", "b"]
        assert slow.calls == 1
        slow.delay_s = 0.0
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


# --- the dead man's switch ---


async def test_the_watchdog_beats_as_long_as_the_engine_ticks_and_is_no_business_of_others(tmp_path):
    beaten, people = People(), People()
    async with delivering(
        tmp_path, beaten=routed(beaten, Route(heartbeat=True, severities=())), people=people
    ) as world:
        await world.silence(9000.0, severity="none")
        await world.tick(SHOP)
        await world.pass_by(300.0)
        beats = [one for one in beaten.alerts if one.rule == "watchdog"]
        assert len(beats) == 6
        assert {one.state for one in beats} == {"firing"}
        assert len({one.fingerprint for one in beats}) == 1
        assert [one.rule for one in people.alerts] == ["answers"]
        assert [one.rule for one in beaten.alerts if one.rule != "watchdog"] == []


async def test_a_beat_that_fails_is_counted_and_the_next_one_is_the_next_try(tmp_path):
    beaten = People(failures=2)
    async with delivering(tmp_path, beaten=routed(beaten, Route(heartbeat=True, severities=()))) as world:
        await world.tick(SHOP)
        await world.pass_by(120.0)
        assert world.counts == [("beaten", "failed"), ("beaten", "failed"), ("beaten", "delivered")]
        assert await world.delivery.acknowledgements.undelivered() == []


async def test_before_the_ledger_was_read_nothing_can_be_changed(tmp_path):
    async with delivering(tmp_path) as world:
        closed = Delivery({}, world.store, lambda: T0, world, Alerts()).acknowledgements
        made = Silence(id="1", matchers=(), starts=0.0, ends=1.0, by="lee")
        with pytest.raises(NotLeaderError):
            await closed.silence(made)
        with pytest.raises(NotLeaderError):
            await closed.acknowledge("a" * 16, Ack(by="lee", at=T0))


# --- what became of each message, and what was done ---


def progress(world, name, key="a" * 16):
    return world.delivery.delivery_progress(key)[name]


def events(world, key="a" * 16):
    return [(one.kind, one.notifier or one.by, one.task) for one in world.delivery.acknowledgements.history.of(key)]


async def test_what_was_never_sent_is_not_recorded_as_delivered_also_over_a_restart(tmp_path):
    people, deaf, terse = People(), People(failures=1000), routed(People(), Route(send_resolved=False))
    async with delivering(tmp_path, people=people, deaf=deaf, terse=terse) as world:
        await world.tick(SHOP)
        await world.pass_by(60.0)
        await world.silence(600.0, app="shop")
        await world.tick(over(SHOP), after=60.0)
        await world.restart()
        await world.tick(after=5.0)
        assert (progress(world, "deaf").told, progress(world, "deaf").outcome) == ("resolved", "unheard")
        assert progress(world, "deaf").attempts == 3
        assert [progress(world, one).never_reached for one in ("deaf", "people", "terse")] == [True, False, False]
        assert progress(world, "terse").outcome == "unwanted"
        assert deaf.heard == []
        assert events(world)[-1] == ("not_sent", "deaf", "resolved")
        await world.tick(after=600.0)
        assert people.heard[-1] == ("a" * 16, "resolved")
        assert progress(world, "people").outcome == "delivered"


async def test_what_was_given_up_is_not_recorded_as_delivered(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 60.0)

    deaf = People(failures=1000)
    async with delivering(tmp_path, Alerts(), deaf=deaf) as world:
        await world.tick(SHOP)
        await world.pass_by(120.0)
        await world.restart()
        assert (progress(world, "deaf").told, progress(world, "deaf").outcome) == ("firing", "given_up")
        assert progress(world, "deaf").never_reached
        assert events(world) == [("given_up", "deaf", "firing")], "instead of each of its attempts"
        (event,) = world.delivery.acknowledgements.history.of("a" * 16)
        assert (event.first, event.times, event.error) == (T0, 4, "OSError: nobody at home")
        deaf.failures = 0
        (letter,) = await world.delivery.acknowledgements.undelivered()
        await world.tick(SHOP)
        assert await world.delivery.acknowledgements.retry(letter.id)
        assert not progress(world, "deaf").never_reached


async def test_an_acknowledgement_that_was_given_up_was_not_delivered(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 60.0)

    duty = Duty()
    async with delivering(tmp_path, Alerts(), duty=duty) as world:
        await world.tick(SHOP)
        await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=world.now))
        duty.failures = 1000
        await world.pass_by(120.0)
        assert progress(world, "duty").acknowledgement_given_up
        assert events(world)[-1] == ("given_up", "duty", "acknowledged")
        duty.failures = 0
        await world.delivery.acknowledgements.unacknowledge("a" * 16)
        await world.tick(after=5.0)
        await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=world.now))
        await world.tick(after=5.0)
        assert not progress(world, "duty").acknowledgement_given_up


async def test_acts_and_deliveries_are_kept_over_the_end_and_a_restart_and_dropped_with_the_alert(tmp_path):
    async with delivering(tmp_path, people=People()) as world:
        acts = world.delivery.acknowledgements
        await world.tick(SHOP, BANK)
        await acts.acknowledge("a" * 16, Ack(by="lee", at=world.now, comment="x" * 9000))
        await acts.unacknowledge("a" * 16, "kim")
        await acts.acknowledge("a" * 16, Ack(by="kim", at=world.now))
        made = await world.silence(600.0, app="shop")
        await acts.unsilence(made.id, "kim")
        world.delivery.baseline_reset("answers", "shop")
        await world.tick(over(SHOP), BANK, after=10.0)
        await world.restart()
        expected = [
            ("delivered", "people", "firing"),
            ("acknowledged", "lee", None),
            ("unacknowledged", "kim", None),
            ("acknowledged", "kim", None),
            ("silenced", "lee", None),
            ("unsilenced", "kim", None),
            ("rebaselined", "", None),
            ("delivered", "people", "resolved"),
        ]
        assert events(world) == expected
        assert events(world, "b" * 16) == expected[:1]
        history = world.delivery.acknowledgements.history
        assert history.acknowledged_by("a" * 16) == "kim"
        assert len(history.of("a" * 16)[1].comment) == 500
        assert world.delivery.acknowledgements.acks() == {}
        await world.tick(BANK, after=5.0)
        assert events(world) == []


async def test_the_history_has_what_the_first_and_the_latest_message_said_and_is_bounded(tmp_path):
    async with delivering(tmp_path, Alerts(repeat_interval_s=3600.0), people=People()) as world:
        for index in range(10):
            seen = replace(SHOP, mean_since=0.5 + index / 100)
            await world.tick(seen, after=3600.0)
        first, latest = world.delivery.acknowledgements.history.of("a" * 16)
        assert (first.mean_since, first.times) == (0.5, 1)
        assert (latest.mean_since, latest.times, latest.first) == (0.59, 9, T0 + 7200.0)
        for _ in range(60):
            await world.delivery.acknowledgements.acknowledge("a" * 16, Ack(by="lee", at=world.now))
            await world.delivery.acknowledgements.unacknowledge("a" * 16)
        assert len(world.delivery.acknowledgements.history.of("a" * 16)) == 50


@pytest.mark.full
async def test_a_silence_that_was_removed_stays_listed_as_such_and_new_ones_are_not_refused_for_it(tmp_path):
    async with delivering(tmp_path, people=People()) as world:
        acts = world.delivery.acknowledgements
        await world.tick(SHOP)
        for index in range(510):
            made = replace(await world.silence(600.0, app="shop"), id=f"n{index}")
            await acts.unsilence(f"s{world.now}")
            await acts.silence(made)
            assert await acts.unsilence(made.id)
            assert not await acts.unsilence(made.id)
        listed = await acts.silences()
        assert len(listed) == 500
        assert all(one.removed and one.state(world.now) == "expired" for one in listed)
        assert not acts.muted(SHOP)
