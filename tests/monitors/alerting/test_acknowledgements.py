"""Silences, acknowledgements, and the record of what became of each message; on the real embedded store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from gaugeway.settings.shared import Alerts
from monitors.alerting.acknowledgements import Ack
from monitors.alerting.alert_history import MAX_EVENTS, MAX_NOTES
from monitors.alerting.notifiers import Route
from tests.support.alerting import People
from tests.support.delivering import (
    BANK,
    SHOP,
    T0,
    Duty,
    delivering,
    events,
    over,
    progress,
    routed,
)

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


# --- what became of each message, and what was done ---


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
            made = structs.replace(await world.silence(600.0, app="shop"), id=f"n{index}")
            await acts.unsilence(f"s{world.now}")
            await acts.silence(made)
            assert await acts.unsilence(made.id)
            assert not await acts.unsilence(made.id)
        listed = await acts.silences()
        assert len(listed) == 500
        assert all(one.removed and one.state(world.now) == "expired" for one in listed)
        assert not acts.muted(SHOP)


# --- notes and assignees ---


async def test_notes_and_the_assignee_outlive_a_restart_and_any_number_of_deliveries(tmp_path):
    people = People()
    async with delivering(tmp_path, people=people) as world:
        await world.tick(SHOP)
        desk = world.delivery.acknowledgements
        await desk.note(SHOP.fingerprint, "index rebuilt", "Sam")
        await desk.assign(SHOP.fingerprint, "Kim", "Sam")
        for n in range(2 * MAX_EVENTS):
            await desk.acknowledge(SHOP.fingerprint, Ack(by=f"a{n}", at=T0 + n))
        await world.restart()
        history = world.delivery.acknowledgements.history
        assert [(note.by, note.comment) for note in history.notes(SHOP.fingerprint)] == [("Sam", "index rebuilt")]
        assert history.assignee(SHOP.fingerprint) == "Kim"
        assert history.notes(BANK.fingerprint) == []
        assert len(history.of(SHOP.fingerprint)) == MAX_EVENTS + 2
        await world.delivery.acknowledgements.assign(SHOP.fingerprint, "", "Kim")
        assert history.assignee(SHOP.fingerprint) == ""


async def test_an_alert_takes_so_many_notes_and_no_more(tmp_path):
    async with delivering(tmp_path, people=People()) as world:
        await world.tick(SHOP)
        desk = world.delivery.acknowledgements
        for n in range(MAX_NOTES):
            await desk.note(SHOP.fingerprint, str(n), "Sam")
        with pytest.raises(ValueError, match="has 20 notes already"):
            await desk.note(SHOP.fingerprint, "one too many", "Sam")
        assert len(desk.history.notes(SHOP.fingerprint)) == MAX_NOTES
