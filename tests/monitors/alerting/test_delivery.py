"""Who is told what, when, how often, and what becomes of it when that fails; on the real embedded store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from gaugeway.settings.shared import Alerts
from monitors.alerting.acknowledgements import Ack, NotLeaderError, Silence
from monitors.alerting.delivery import Delivery
from monitors.alerting.notifiers import NotDeliveredError, Route
from tests.support.alerting import Crowd, People
from tests.support.delivering import (
    BANK,
    SHOP,
    T0,
    TWIN,
    Forgetful,
    delivering,
    over,
    routed,
)
from tests.support.receivers import alert

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
