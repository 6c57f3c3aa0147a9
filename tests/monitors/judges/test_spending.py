"""A budget that outlives a process and is shared by those that use one store."""

from __future__ import annotations

import logging
import random

import msgspec
import pytest

from monitors.judges.budget import DAY_S, PREFIX, BudgetPacer, BudgetSync, Spent
from tests.support.clock import Clock
from tests.support.stores import store_in

DAY = 20_000
MIDNIGHT = DAY * DAY_S
USD, CAP = 0.002, 4.0


def fresh():
    """A pacer of a process that has just started."""
    return BudgetPacer(CAP)


async def day(clock, replicas, *, until, tick_s=55.0, seed=1):
    """Traffic up to `until`; replicas are (pacer, spending, arrivals a second). Return what each paid, and factors."""
    rng, paid, factors = random.Random(seed), [0.0] * len(replicas), []
    total = sum(per_s for *_, per_s in replicas)
    ticked = clock.now
    while clock.now < until:
        clock.now += rng.expovariate(total)
        while clock.now - ticked >= tick_s:
            ticked += tick_s
            for _, spending, _ in replicas:
                await spending.tick()
        index = rng.choices(range(len(replicas)), [per_s for *_, per_s in replicas])[0]
        pacer = replicas[index][0]
        factor = pacer.rate(clock.now)
        factors.append((clock.now, factor))
        if rng.random() < factor:
            pacer.observe(USD, clock.now)
            paid[index] += USD
    return paid, factors


async def started(store, clock, replica, per_s):
    pacer = fresh()
    spending = BudgetSync(store, pacer, replica, clock)
    await spending.tick()
    return pacer, spending, per_s


@pytest.mark.full
async def test_a_restart_in_the_middle_of_the_day_goes_on_with_what_was_spent(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT)
        first = await started(store, clock, "a", 0.2)
        morning, before = await day(clock, [first], until=MIDNIGHT + DAY_S / 2)
        await first[1].tick()
        second = await started(store, clock, "a", 0.2)
        assert second[0].spent(clock.now).usd == pytest.approx(morning[0])
        evening, after = await day(clock, [second], until=MIDNIGHT + DAY_S, seed=2)
        morning, evening = morning[0], evening[0]
    assert morning + evening == pytest.approx(CAP, rel=0.05)
    assert morning == pytest.approx(evening, rel=0.1)
    late, early = [f for _, f in before[-500:]], [f for _, f in after[500:1000]]
    assert sum(early) / len(early) == pytest.approx(sum(late) / len(late), rel=0.15), "the pace goes on too"


@pytest.mark.full
async def test_two_processes_keep_within_one_budget_and_spread_it_over_the_day(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT)
        replicas = [await started(store, clock, "a", 0.15), await started(store, clock, "b", 0.05)]
        paid, quarters = [0.0, 0.0], []
        for quarter in range(1, 5):
            some, _ = await day(clock, replicas, until=MIDNIGHT + quarter * DAY_S / 4, seed=quarter)
            paid = [one + more for one, more in zip(paid, some, strict=True)]
            quarters.append(sum(some))
    assert sum(paid) == pytest.approx(CAP, rel=0.05)
    assert paid[0] / paid[1] == pytest.approx(3.0, rel=0.15)
    assert max(quarters) < 1.15 * min(quarters)


async def test_without_telling_each_other_they_would_spend_it_twice(tmp_path):
    """What the test above can see."""

    async with store_in(tmp_path):
        clock, paid = Clock(MIDNIGHT), 0.0
        for seed in (1, 2):
            pacer = BudgetPacer(CAP, spent=Spent(DAY, 0.0))
            clock.now = MIDNIGHT
            alone = [(pacer, BudgetSync(Nothing(), pacer, "a", clock), 0.1)]
            paid += sum((await day(clock, alone, until=MIDNIGHT + DAY_S, seed=seed))[0])
        assert paid > 1.8 * CAP


class Nothing:
    """A ledger that forgets."""

    async def load(self):
        return {}

    async def save(self, states):
        pass


@pytest.mark.full
async def test_one_that_goes_leaves_what_it_spent_and_its_share_of_the_traffic_to_the_other(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT)
        replicas = [await started(store, clock, "a", 0.1), await started(store, clock, "b", 0.1)]
        morning, _ = await day(clock, replicas, until=MIDNIGHT + DAY_S / 2)
        heir = (*replicas[0][:2], 0.2)
        evening, factors = await day(clock, [heir], until=MIDNIGHT + DAY_S, seed=2)
        morning, evening = sum(morning), sum(evening)
    assert morning + evening == pytest.approx(CAP, rel=0.05)
    assert evening == pytest.approx(morning, rel=0.1)
    assert min(factor for _, factor in factors) > 0.0


async def test_a_new_name_starts_with_nothing_spent_where_others_keep_account(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT + DAY_S / 2)
        old, *_ = await started(store, clock, "pod-1", 0.1)
        assert old.spent(clock.now).unseen == pytest.approx(CAP / 2), "nobody knows what was before"
        old.observe(0.3, clock.now)
        await BudgetSync(store, old, "pod-1", clock).tick()
        new, *_ = await started(store, clock, "pod-2", 0.1)
        new, old = new.spent(clock.now), old.spent(clock.now)
    assert new == Spent(DAY, 0.0, pytest.approx(CAP / 2)), "the guess is everybody's, and counted once"
    assert old.unseen == pytest.approx(CAP / 2)


async def test_yesterday_counts_only_where_it_overspent(tmp_path):
    async with store_in(tmp_path) as store:
        clock, found = Clock(MIDNIGHT + 100.0), []
        for name, usd in (("frugal", 1.0), ("lavish", CAP + 1.0)):
            await store.save({PREFIX + name: msgspec.json.encode({"day": DAY - 1, "usd": usd})})
            pacer, *_ = await started(store, clock, name, 0.1)
            found.append(pacer.spent(clock.now))
        assert found == [Spent(DAY, 0.0), Spent(DAY, pytest.approx(1.0))]


async def test_a_ledger_that_fails_is_said_and_the_last_known_stands(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT)
        pacer, spending, _ = await started(store, clock, "a", 0.1)
        pacer.update_others(1.5, 0.0, clock.now)
        pacer.observe(0.5, clock.now)

        async def gone():
            raise OSError("no disk")

        store.load, load = gone, store.load
        with pytest.raises(OSError, match="no disk"):
            await spending.tick()
        assert pacer.has_left(clock.now)
        pacer.observe(CAP - 2.0, clock.now)
        assert not pacer.has_left(clock.now)  # 1.5 of it is the others'
        store.load = load
        await spending.tick()
        assert msgspec.json.decode((await store.load())[PREFIX + "a"])["usd"] == CAP - 1.5


async def test_what_cannot_be_read_is_left_out_and_two_of_one_name_are_warned_of_once(tmp_path, caplog):
    caplog.set_level(logging.WARNING)

    async with store_in(tmp_path) as store:
        clock = Clock(MIDNIGHT)
        await store.save({PREFIX + "broken": b"{", "watch/faithfulness": b"{}"})
        one, other = await started(store, clock, "same", 0.1), await started(store, clock, "same", 0.1)
        for _ in range(3):
            for _, spending, _ in (one, other):
                clock.now += 5.0
                await spending.tick()
    assert caplog.text.count("cannot read the stored account judge/spent/broken") == 2
    assert caplog.text.count("another process uses the account judge/spent/same") == 2, "each says so once"


@pytest.mark.parametrize("ahead_days", [1, 30])
async def test_an_account_from_the_future_is_not_gone_on_with(tmp_path, ahead_days):
    async with store_in(tmp_path) as store:
        await store.save({PREFIX + "a": msgspec.json.encode({"day": DAY + ahead_days, "usd": 3.0})})
        clock = Clock(MIDNIGHT)
        pacer, *_ = await started(store, clock, "a", 0.1)
        assert pacer.spent(clock.now) == Spent(DAY, 0.0)
