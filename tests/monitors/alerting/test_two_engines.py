"""Two alert engines on one store: one leads, the other shows what it saved, and either can go on from there."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.alerting.acknowledgements import Ack, NotLeaderError
from tests.support.alerting import People, alerting


@pytest.mark.full
async def test_engines_that_lead_by_turns_find_what_one_alone_finds_and_tell_it_once(tmp_path):
    rng = np.random.default_rng(2)
    values = np.clip(np.concatenate([rng.normal(0.9, 0.1, 60), rng.normal(0.6, 0.1, 30)]), 0, 1)

    told = [People(), People()]
    async with alerting(tmp_path / "alone.db", people=told[0]) as world:
        await world.minutes(values)
        await world.later()
        expected = world.engine.alerts(), world.engine.streams()
    async with alerting(tmp_path / "turns.db", people=told[1]) as world:
        pair = [world.restart(), world.restart()]
        for minute, value in enumerate(values):
            world.engine = pair[minute // 7 % 2]
            await world.minutes([value])
            follower = pair[1 - minute // 7 % 2]
            await follower.follow()
            assert follower.alerts() == world.engine.alerts()
            assert follower.streams() == world.engine.streams()
        await world.later()
        assert (world.engine.alerts(), world.engine.streams()) == expected
    assert told[1].heard == told[0].heard != []


async def test_who_follows_shows_no_gauges_tells_nobody_and_takes_no_changes(tmp_path):
    people = People()

    async with alerting(tmp_path / "s.db", people=people) as world:
        leader = world.engine
        await world.minutes([0.95] * 10 + [0.3] * 20)
        assert world.alert.state == "firing"
        people.alerts.clear()
        follower = world.restart()
        await follower.follow()
        assert [one.fingerprint for one in follower.alerts()] == [one.fingerprint for one in leader.alerts()]
        assert world.shown == ()
        with pytest.raises(NotLeaderError, match="another process leads"):
            await follower.acknowledgements.acknowledge(leader.alerts()[0].fingerprint, Ack(by="me", at=1.0))
        with pytest.raises(NotLeaderError):
            follower.rebaseline("answers")
        assert people.alerts == []
        world.engine = follower
        await world.tick()
        assert follower.rebaseline("answers") == 1


async def test_a_leader_that_was_deposed_and_leads_again_goes_on_from_what_the_other_saved(tmp_path):
    async with alerting(tmp_path / "s.db") as world:
        first, second = world.engine, world.restart()
        world.engine = first
        await world.minutes([0.95] * 10)
        world.engine = second
        await second.follow()
        await world.minutes([0.3] * 20)
        saved = second.streams()
        await first.follow()
        world.engine = first
        await world.tick()
        assert first.streams() == saved
        assert world.alert.state == "firing"
