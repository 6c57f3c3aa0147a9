"""The arithmetic of limits that several processes share, and the task that tells and hears."""

import asyncio
import logging
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.account import OverLimit
from gateway.access.gate import Gate
from gateway.access.sync import LimitSync
from gateway.access.token_bucket import SharedBucket
from gateway.config import Limits
from gaugeway.storage.documents import SharedLevels
from gaugeway.storage.engines.failures import EngineError
from tests.gateway.access.test_limits import NOON, Clock
from tests.support.shared_limits import most_admitted

HEARING_S = 1.0


class Place:
    """The shared place in memory: the same arithmetic as the engines'."""

    def __init__(self, clock):
        self.clock = clock
        self.known = {}
        self.processes = 0
        self.gone = False

    async def exchange(self, draws):
        if self.gone:
            raise EngineError("the place is gone")
        return self.take(draws)

    def take(self, draws):
        now = self.clock.now
        levels = []
        for draw in draws:
            level, at = self.known.get((draw.kind, draw.subject), (draw.level, now))
            level = min(draw.burst, level + (now - at) * draw.per_min / 60) - draw.used
            self.known[draw.kind, draw.subject] = level, now
            levels.append(level)
        return SharedLevels(processes=self.processes, levels=levels)

    async def aclose(self):
        pass


class Fleet:
    """Gates in one process, with one clock and one place."""

    def __init__(self, count, limits):
        self.clock = Clock(NOON)
        self.place = Place(self.clock)
        self.place.processes = count
        self.gates = [Gate(limits, clock=self.clock, wall=self.clock, workers=count) for _ in range(count)]
        self.syncs = [LimitSync(self.place, gate, Silence(), every_s=HEARING_S) for gate in self.gates]

    async def sync(self, gone=False):
        self.place.gone = gone
        for one in self.syncs:
            await one.sync()

    async def admitted(self, number, tries):
        count = 0
        for _ in range(tries):
            try:
                (await self.gates[number].admit([], None, "shop")).release()
            except OverLimit:
                continue
            count += 1
        return count


class Silence:
    def __init__(self):
        self.shown = []
        self.failures = 0

    def limits_shared(self, processes):
        self.shown.append(processes)

    def limits_unshared(self):
        self.failures += 1


class Simulated:
    """Copies of one bucket that are told and hear at times of their own, and clients that take what they can get."""

    def __init__(self, per_min, phases):
        self.clock = Clock(0.0)
        self.place = Place(self.clock)
        self.place.processes = len(phases)
        self.phases = phases
        self.buckets = [SharedBucket(per_min, 0.0, processes=len(phases), together=True) for _ in phases]
        self.times = []

    def run(self, steps, step_s=0.1):
        for step in steps:
            self.clock.now += step_s
            now = self.clock.now
            for number, phase in enumerate(self.phases):
                if int((now + phase) / HEARING_S) != int((now - step_s + phase) / HEARING_S):
                    self.hear(number)
                if number in step:
                    self.ask(number, step[number])

    def hear(self, number):
        now = self.clock.now
        if (draw := self.buckets[number].draw("app:shop", "requests", now)) is not None:
            (level,) = self.place.take([draw]).levels
            self.buckets[number].hear(draw, level, len(self.phases), now)

    def ask(self, number, tries):
        now, bucket = self.clock.now, self.buckets[number]
        for _ in range(tries):
            if bucket.wait_s(now, HEARING_S) > 0:
                return
            bucket.take(1.0, now)
            self.times.append(now)

    def most_within(self, seconds):
        return max((sum(start <= at <= start + seconds for at in self.times) for start in set(self.times)), default=0)


@st.composite
def traffic(draw):
    """Who is asked how often in each tenth of a second; the phases in which the processes hear."""
    processes = draw(st.integers(1, 5))
    phases = draw(st.lists(st.floats(0, 0.95), min_size=processes, max_size=processes))
    asked = st.dictionaries(st.integers(0, processes - 1), st.sampled_from([1, 5, 1000]), max_size=processes)
    runs = draw(st.lists(st.tuples(asked, st.integers(1, 30)), max_size=12))
    return draw(st.sampled_from([2.0, 30.0, 600.0])), phases, [step for step, times in runs for _ in range(times)]


@pytest.mark.full
@settings(max_examples=3 * settings.default.max_examples // 2, deadline=None)
@given(traffic(), st.sampled_from([0.0, 1.0, 5.0, 30.0]))
def test_however_clients_spread_their_requests_no_more_is_let_in_than_is_promised(case, seconds):
    per_min, phases, steps = case
    fleet = Simulated(per_min, phases)
    fleet.run(steps)
    assert fleet.most_within(seconds) <= most_admitted(per_min, len(phases), HEARING_S, seconds + 0.1) + 1e-6


def test_under_constant_load_exactly_the_limit_is_let_in_over_time():
    fleet = Simulated(60.0, [0.0, 0.3, 0.6])
    fleet.run([{0: 3, 1: 3, 2: 3}] * 6000)
    assert len(fleet.times) == pytest.approx(60 + 600, abs=6)
    fleet.times = [at for at in fleet.times if at > 300]
    assert fleet.most_within(60.0) <= 60 + 2 * 3 * 2


def test_one_process_may_use_the_whole_rate_when_the_others_are_idle():
    async def scenario():
        fleet = Fleet(3, Limits(requests_per_min=60))
        await fleet.sync()
        count = 0
        for _ in range(600):
            fleet.clock.now += 0.1
            count += await fleet.admitted(0, 2)
            if round(fleet.clock.now * 10) % 10 == 0:
                await fleet.sync()
        assert 110 <= count <= 120

    asyncio.run(scenario())


def test_a_process_that_comes_later_knows_soon_that_the_limit_is_used_up():
    async def scenario():
        fleet = Fleet(2, Limits(requests_per_min=60))
        for _ in range(30):
            await fleet.sync()
            await fleet.admitted(0, 50)
            fleet.clock.now += 1
        late = Gate(Limits(requests_per_min=60), clock=fleet.clock, wall=fleet.clock, workers=2)
        fleet.gates.append(late)
        fleet.syncs.append(LimitSync(fleet.place, late, Silence(), every_s=HEARING_S))
        await fleet.sync()
        first = await fleet.admitted(2, 100)
        assert first <= 60 / 4
        await fleet.sync()
        assert await fleet.admitted(2, 100) == 0

    asyncio.run(scenario())


def test_tokens_are_shared_and_their_debt_too():
    async def scenario():
        fleet = Fleet(2, Limits(tokens_per_min=60))
        await fleet.sync()
        permit = await fleet.gates[0].admit([], None, "shop")
        (await fleet.gates[1].admit([], None, "shop")).release()
        fleet.gates[0].charge(permit, 100, 20, None)
        fleet.gates[1].charge(permit, 1, 0, None)
        await fleet.sync()
        await fleet.sync()
        for gate in fleet.gates:
            with pytest.raises(OverLimit) as caught:
                await gate.admit([], None, "shop")
            assert caught.value.wait_s == pytest.approx(62)

    asyncio.run(scenario())


def test_while_the_place_is_gone_each_keeps_to_its_share_and_says_so_once(caplog):
    async def scenario():
        fleet = Fleet(3, Limits(requests_per_min=60))
        await fleet.sync()
        fleet.clock.now += 60
        with caplog.at_level(logging.WARNING):
            await fleet.sync(gone=True)
            await fleet.sync(gone=True)
        assert len(caplog.records) == 3
        counts = [await fleet.admitted(number, 100) for number in range(3)]
        assert counts == [20, 20, 20]
        fleet.clock.now += 60
        assert [await fleet.admitted(number, 100) for number in range(3)] == [20, 20, 20]

    asyncio.run(scenario())


@pytest.mark.parametrize("outage_s", [5, 600])
@pytest.mark.parametrize("forgetful", [True, False])
def test_after_the_place_is_back_nobody_pays_for_what_was_his_to_use(outage_s, forgetful):
    async def scenario():
        fleet = Fleet(3, Limits(requests_per_min=60))
        for _ in range(70):  # the stock is used up
            await fleet.sync()
            for number in range(3):
                await fleet.admitted(number, 20)
            fleet.clock.now += 1
        total = 0
        for _ in range(outage_s):
            await fleet.sync(gone=True)
            total += sum([await fleet.admitted(number, 5) for number in range(3)])
            fleet.clock.now += 1
        assert total == pytest.approx(outage_s, abs=4)
        if forgetful:
            fleet.place.known.clear()
        total = 0
        for _ in range(60):
            await fleet.sync()
            total += sum([await fleet.admitted(number, 5) for number in range(3)])
            fleet.clock.now += 1
        assert total == pytest.approx(60, abs=8)

    asyncio.run(scenario())


def test_never_heard_of_the_number_of_workers_is_the_number_of_processes():
    async def scenario():
        fleet = Fleet(4, Limits(requests_per_min=60))
        await fleet.sync(gone=True)
        assert await fleet.admitted(0, 100) == 15

    asyncio.run(scenario())


def test_places_at_once_are_divided_among_the_processes_that_there_are():
    async def scenario():
        fleet = Fleet(1, Limits(max_concurrency=6, queue_s=0))

        async def at_once():
            permits = []
            while True:
                try:
                    permits.append(await fleet.gates[0].admit([], None, "shop"))
                except OverLimit:
                    break
            for permit in permits:
                permit.release()
            return len(permits)

        assert await at_once() == 6
        fleet.place.processes = 3
        await fleet.sync()
        assert await at_once() == 2
        await fleet.sync(gone=True)
        assert await at_once() == 2

    asyncio.run(scenario())


def test_what_is_used_while_the_place_answers_is_told_the_next_time():
    bucket = SharedBucket(60.0, 0.0, processes=2, together=True)
    bucket.take(3.0, 0.0)
    draw = bucket.draw("app:shop", "requests", 0.0)
    assert (draw.used, draw.level) == (3.0, 60.0)
    bucket.take(2.0, 0.0)
    bucket.hear(draw, 40.0, 2, 0.0)
    assert bucket.draw("app:shop", "requests", 0.0) == replace(draw, used=2.0, level=40.0)


def test_what_is_full_and_unused_is_not_told():
    clock = Clock(NOON)
    gate = Gate(Limits(requests_per_min=60), clock=clock, wall=Clock(NOON))

    async def scenario():
        (await gate.admit([], None, "shop")).release()
        (draw,) = draws = gate.draws()
        assert (draw.subject, draw.kind, draw.per_min, draw.used) == ("app:shop", "requests", 60, 1)
        gate.hear(draws, SharedLevels(processes=1, levels=[59.0]))
        assert len(gate.draws()) == 1
        clock.now += 2
        assert gate.draws() == []
        assert gate.draws() == []

    asyncio.run(scenario())


def test_thousands_of_accounts_are_told_a_few_at_a_time_and_each_has_its_turn():
    async def scenario():
        fleet = Fleet(1, Limits(requests_per_min=60))
        for number in range(900):
            (await fleet.gates[0].admit([], None, f"app-{number}")).release()
        assert fleet.gates[0].rounds() == 4
        assert len(fleet.gates[0].draws()) == 250
        await fleet.sync()
        assert len(fleet.place.known) == 900
        assert {level for level, _ in fleet.place.known.values()} == {59}

    asyncio.run(scenario())


def test_the_sharing_is_shown_and_its_failures_are_counted():
    async def scenario():
        fleet = Fleet(2, Limits(requests_per_min=60))
        seen = Silence()
        sync = LimitSync(fleet.place, fleet.gates[0], seen, every_s=0.01)
        sync.start()
        while not seen.shown:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.01)
        fleet.place.gone = True
        while not seen.failures:  # noqa: ASYNC110 - same
            await asyncio.sleep(0.01)
        await sync.aclose()
        assert (seen.shown[0], seen.shown[-1]) == (2, 0)

    asyncio.run(scenario())
