"""The alert engine on the real embedded store: time, failures, restarts and telling people."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from gaugeway.settings.shared import Rule
from monitors.alerting import delivery, stream
from monitors.alerting import engine as engine_module
from monitors.alerting.notifiers.message import summary, title
from monitors.alerting.rule_watch import name_of
from tests.support.alerting import RULE, T0, People, World, alerting, replace_config, run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.mark.full
def test_one_tick_after_everything_finds_what_ticks_all_along_find(tmp_path):
    rng = np.random.default_rng(2)
    values = np.clip(np.concatenate([rng.normal(0.9, 0.1, 60), rng.normal(0.6, 0.1, 30)]), 0, 1)

    async def all_along(world):
        await world.minutes(values)
        await world.later()
        return world.engine.alerts(), world.engine.streams()

    async def at_the_end(world):
        await world.tick()
        await world.minutes(values, tick=False)
        await world.later()
        return world.engine.alerts(), world.engine.streams()

    async def restarted(world):
        for value in values:
            world.restart()
            await world.minutes([value])
        world.restart()
        await world.later()
        return world.engine.alerts(), world.engine.streams()

    results = [run(tmp_path / f"{i}.db", play) for i, play in enumerate([all_along, at_the_end, restarted])]
    assert results[0][0]
    assert results[0] == results[1] == results[2]


def test_pages_of_scores_make_no_difference(tmp_path, monkeypatch):
    async def scenario(world):
        await world.tick()
        await world.minutes([0.95] * 10 + [0.5] * 20, tick=False)
        await world.later()
        return world.engine.alerts(), world.engine.streams()

    whole = run(tmp_path / "whole.db", scenario)
    for size in (1, 4, 7):
        monkeypatch.setattr(engine_module, "PAGE", size)
        alerts, streams = run(tmp_path / f"{size}.db", scenario)
        assert streams == whole[1]
        assert [alert.fingerprint for alert in alerts] == [alert.fingerprint for alert in whole[0]]


async def test_failures_of_the_store_come_out_and_nothing_is_taken_in_twice_or_left_out(tmp_path):
    values = [0.95] * 20 + [0.4] * 20

    async with alerting(tmp_path / "smooth.db", rules=(RULE, Rule(metric="faithfulness", slo=0.8))) as world:
        await world.minutes(values)
        expected = world.engine.alerts(), world.engine.streams()
    assert [alert.state for alert in expected[0]].count("firing") == 2
    async with alerting(tmp_path / "rough.db", rules=(RULE, Rule(metric="faithfulness", slo=0.8))) as world:
        for minute, value in enumerate(values):
            await world.minutes([value], tick=False)
            world.store.failing = {("series", "save", "sample")[minute % 3]: 1 + minute % 2}
            failed = 0
            for _ in range(4):
                try:
                    await world.tick()
                except OSError:
                    failed += 1
                    if minute % 4 == 0:
                        world.restart()
            assert failed or minute % 3 == 2 or minute < 5  # before the first bucket closes nothing is to be saved
        assert (world.engine.alerts(), world.engine.streams()) == expected


async def test_nobody_is_told_what_is_not_saved(path):
    people = People()
    async with alerting(path, people=people) as world:
        await world.tick()
        await world.minutes([0.95] * 10 + [0.3] * 20, tick=False)
        world.now += 300.0
        world.store.failing = {"save": 1}
        with pytest.raises(OSError, match="save"):
            await world.tick()
        assert people.calls == 0
        await world.tick()
        assert people.calls == 1


async def test_buckets_close_behind_the_watermark_and_behind_the_oldest_sample_in_the_queue(path):
    async with alerting(path) as world:
        assert world.engine.closed_until("faithfulness", "shop") == 0.0
        await world.minutes([0.9] * 10)
        assert world.engine.closed_until("faithfulness", "shop") == T0 + 300.0
        world.now += 59.0
        world.oldest = T0 + 310.0
        await world.tick()
        assert world.engine.closed_until("faithfulness", "shop") == T0 + 300.0
        await world.later(3600.0)
        assert world.engine.closed_until("faithfulness", "shop") == T0 + 300.0
        world.oldest = None
        await world.tick()
        assert world.engine.closed_until("faithfulness", "shop") == T0 + 600.0, "no further than there are scores"
        assert world.engine.closed_until("other", "shop") == 0.0


async def test_a_score_that_comes_late_is_told_apart_and_changes_no_evidence(path):
    async with alerting(path) as world:
        await world.minutes([0.9] * 20)
        before = world.shown[0].evidence_log10
        sample = await world.add(T0 + 60.0, 0.0)
        assert world.engine.late(sample, "faithfulness")
        assert not world.engine.late(sample, "other")
        assert not world.engine.late(replace(sample, started_at=world.now), "faithfulness")
        await world.tick()
        assert world.shown[0].evidence_log10 == before


async def test_a_clock_that_is_an_hour_ahead_for_a_while_hides_no_drop(path):
    people = People()
    async with alerting(path, people=people) as world:
        await world.minutes([0.95] * 15)
        for hour in (3600.0, -3600.0):
            world.now += hour
            await world.tick()
        await world.minutes([0.2] * 15)
        assert world.alert.state == "firing"
        assert people.heard == [(world.alert.fingerprint, "firing")]


async def test_a_month_without_scores_costs_no_time(path):
    async with alerting(path, config=replace_config(bucket_s=1.0)) as world:
        await world.minutes([0.95] * 10 + [0.6] * 3)
        evidence = world.shown[0].evidence_log10
        begun = time.process_time()
        await world.later(30 * 86_400.0)
        assert time.process_time() - begun < 5.0
        assert world.shown[0].evidence_log10 > evidence
        evidence = world.shown[0].evidence_log10
        await world.later(300 * 86_400.0)
        assert world.shown[0].evidence_log10 == evidence


async def test_a_notifier_that_fails_is_tried_again_ever_more_slowly_and_the_others_are_told_once(path):
    deaf, good = People(failures=5), People()
    async with alerting(path, deaf=deaf, good=good) as world:
        await world.minutes([0.95] * 10)
        while not deaf.calls:
            await world.minutes([0.3])
        assert (deaf.calls, good.calls) == (1, 1)
        calls = []
        begun = world.now
        while deaf.failures:
            before = deaf.calls
            await world.later(1.0)
            calls += [world.now - begun] * (deaf.calls - before)
        assert np.diff(calls).tolist() == sorted(np.diff(calls).tolist())
        assert np.diff(calls)[-1] > 2 * np.diff(calls)[0]
        while not deaf.alerts:
            await world.later(60.0)
        await world.later(3600.0)
        assert deaf.heard == good.heard == [(world.alert.fingerprint, "firing")]


async def test_every_attempt_to_tell_is_counted(path):
    async with alerting(path, deaf=People(failures=2), good=People()) as world:
        await world.minutes([0.95] * 10 + [0.3] * 20)
        for _ in range(3):
            await world.later(60.0)
        assert world.notifications.count(("deaf", "failed")) == 2
        assert world.notifications.count(("deaf", "delivered")) == 1
        assert world.notifications.count(("good", "delivered")) == 1
        assert len(world.notifications) == 4


async def test_an_alert_that_cannot_be_described_is_saved_and_told_like_the_others_and_described_later(path, caplog):
    people = People()
    async with alerting(path, people=people) as world:
        await world.tick()
        await world.minutes([0.95] * 10 + [0.3] * 20, tick=False)
        await world.minutes([0.95] * 10 + [0.3] * 20, app="other", tick=False)
        world.now += 300.0
        world.store.failing = {"sample": 1}  # looked up while the first alert is described
        await world.tick()
        first, second = sorted(world.engine.alerts(), key=lambda alert: alert.at_alarm is not None)
        assert (first.state, first.at_alarm) == ("firing", None)
        assert [first.mean_since, second.mean_since] == pytest.approx([0.3, 0.3], abs=0.01), "known before the cause"
        assert len(people.alerts) == 2
        assert world.failed_descriptions == caplog.text.count("has no description") == 1
        world.store.failing = {"sample": 1}
        await world.tick()
        assert caplog.text.count("has no description") == 1, "said once"
        await world.tick()
        assert all(alert.mean_since == pytest.approx(0.3, abs=0.01) for alert in world.engine.alerts())
        world.restart()
        await world.tick()
        assert all(alert.mean_since is not None for alert in world.engine.alerts())


async def test_a_notifier_that_hangs_holds_up_nothing_and_is_given_up(path, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVERY_TIMEOUT_S", 1.0)

    slow = People(delay_s=60.0)
    async with alerting(path, slow=slow) as world:
        await world.tick()
        await world.minutes([0.95] * 10 + [0.3] * 15, tick=False)
        world.now += 300.0
        for _ in range(3):
            await world.engine.tick()
        await asyncio.sleep(0.01)
        assert (slow.calls, slow.under_way) == (1, 1)
        await world.engine.aclose()
        assert (slow.calls, slow.under_way, slow.alerts) == (1, 0, [])
        slow.delay_s = 0.0
        await world.later(10.0)
        assert slow.heard == [(world.alert.fingerprint, "firing")]


async def test_after_a_restart_nobody_is_told_again_and_a_new_notifier_hears_of_open_alerts_only(path):
    old, new = People(), People()
    async with alerting(path, old=old) as world:
        await world.minutes([0.95] * 10 + [0.3] * 20 + [0.97] * 30 + [0.3] * 80)
        firing, resolved = world.engine.alerts()
        assert old.heard == [
            *((resolved.fingerprint, "firing"), (resolved.fingerprint, "resolved"), (firing.fingerprint, "firing")),
        ]
        world.notifiers = {"old": old, "new": new}
        world.restart()
        await world.later()
        await world.later()
        assert len(old.heard) == 3
        assert new.heard == [(firing.fingerprint, "firing")]


async def test_an_alert_of_a_rule_that_is_gone_ends_without_a_claim_of_recovery(path):
    people = People()
    async with alerting(path, people=people) as world:
        await world.minutes([0.95] * 10 + [0.3] * 20)
        assert world.alert.state == "firing"
        rules, world.rules = world.rules, (Rule(metric="other", slo=0.5),)
        world.restart()
        await world.later()
        assert (world.alert.state, world.alert.ended_at, world.alert.unwatched) == ("resolved", world.now, True)
        assert people.heard[-1] == (world.alert.fingerprint, "resolved")
        assert "is no longer watched since" in summary(people.alerts[-1])
        assert "recovered at" not in summary(people.alerts[-1])
        assert title([people.alerts[-1]]) == "faithfulness of shop is no longer watched"
        assert title([people.alerts[-1], people.alerts[0]]) == "1 firing and 1 no longer watched: GaugewayQualityDrop"
        world.rules = rules
        world.restart()
        await world.minutes([0.3] * 20)
        again, ended = world.engine.alerts()
        assert (again.state, again.ended_at, ended.unwatched) == ("firing", None, True)


async def test_another_promise_under_the_same_name_starts_afresh_where_the_old_one_stopped(path):
    async with alerting(path) as world:
        await world.minutes([0.95] * 10 + [0.3] * 20)
        closed = world.engine.closed_until("faithfulness", "shop")
        world.rules = (Rule(metric="faithfulness", slo=0.2, name="answers"),)
        world.restart()
        await world.tick()
        assert world.engine.closed_until("faithfulness", "shop") == closed
        assert world.shown[0].evidence_log10 == -300.0
        await world.minutes([0.95] * 60)
        assert world.alert.state == "resolved"


@pytest.mark.full
async def test_history_is_bounded_and_keeps_what_still_fires(path, monkeypatch):
    monkeypatch.setattr(stream, "HISTORY", 3)

    async with alerting(path) as world:
        await world.minutes([0.95] * 5 + [0.3] * 20, app="steady")
        for number in range(4):
            await world.minutes([0.3] * 25 + [0.99] * 40, app=f"shop-{number}")
        alerts = world.engine.alerts()
        assert len(alerts) == 3
        assert [alert.since for alert in alerts] == sorted((alert.since for alert in alerts), reverse=True)
        assert [(alert.app, alert.state) for alert in alerts if alert.state == "firing"] == [("steady", "firing")]


def test_two_rules_of_one_name_are_refused(path):
    with pytest.raises(ValueError, match="two alert rules"):
        World(path, rules=(RULE, RULE))


def test_a_rule_without_a_name_is_called_what_it_says():
    assert name_of(Rule(metric="faithfulness", slo=0.85), lower_is_better=False) == "faithfulness-below-0.85"
    assert name_of(Rule(metric="hallucination", slo=0.1), lower_is_better=True) == "hallucination-above-0.1"
    assert name_of(RULE, lower_is_better=False) == "answers"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_notification_does_not_wait_for_the_cause_which_follows_as_an_update(path, restarted):
    people = People()
    async with alerting(path, people=people) as world:
        await world.tick()
        await world.minutes([0.95] * 10 + [0.3] * 20, tick=False)
        world.now += 300.0
        held = world.store.held["sample"] = asyncio.Event()
        world.notify_within_s = 0.2
        world.restart()
        await world.tick()
        ((first, state),) = people.heard
        assert (state, people.alerts[0].at_alarm, people.alerts[0].changes) == ("firing", None, None)
        assert people.alerts[0].mean_since == pytest.approx(0.3, abs=0.01)
        await world.tick()
        assert len(people.heard) == 1, "nothing is known yet"
        if restarted:
            await world.engine.aclose()
            world.restart()
        held.set()
        world.store.held.clear()
        world.engine._notify_within_s = 300.0  # noqa: SLF001 - from here on the description is waited for
        await world.tick()
        await world.tick()
        assert people.heard == [(first, "firing")] * 2
        update = people.alerts[1]
        assert update.at_alarm is not None
        assert title([update]).startswith("Update: faithfulness of shop fell from 0.95 to 0.30")
        world.now += 60.0
        await world.tick()
        assert len(people.heard) == 2, "one update"
