"""The budget of a day: what is spent, that nothing is ever left out, that the estimates stay true."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from monitors.judges.budget import DAY_S, MOST_SLICES, BudgetPacer, Spent
from monitors.statistics.weighted_mean import hajek

FRESH = Spent(day=0, usd=0.0)


def drive(pacer, *, start=0.0, end=DAY_S, per_s=0.2, usd=0.002, seed=1, slice_of=lambda _: "", load=lambda _: 1.0):
    """Traffic at an even pace, judged as the pacer says; yields (time, slice, rate, whether it was judged)."""
    rng, now = random.Random(seed), start
    for number in itertools.count():
        now += rng.expovariate(per_s * load(now))
        if now >= end:
            return
        name = slice_of(number)
        rate = pacer.rate(now, name)
        judged = rng.random() < rate
        if judged:
            pacer.observe(usd, now)
        yield now, name, rate, judged


def spent_of(events, usd=0.002):
    return usd * sum(judged for *_, judged in events)


def test_a_budget_that_pays_for_everything_changes_nothing():
    assert all(rate == 1.0 for _, _, rate, _ in drive(BudgetPacer(100.0, spent=FRESH)))


def test_a_tight_budget_is_spent_evenly_over_the_day():
    events = list(drive(BudgetPacer(5.0, spent=FRESH)))
    assert spent_of(events) == pytest.approx(5.0, rel=0.03)
    quarters = [sum(j for t, _, _, j in events if q <= 4 * t / DAY_S < q + 1) for q in range(4)]
    assert max(quarters) < 1.25 * min(quarters)


@pytest.mark.full
@pytest.mark.parametrize("burst_h", [0.0, 12.0, 22.5, 23.9])
def test_a_burst_of_ten_times_the_load_stays_within_the_budget_and_never_leaves_anything_out(burst_h):
    begin = burst_h * 3600.0

    def load(now):
        return 10.0 if begin <= now < begin + 3600.0 else 1.0

    events = list(drive(BudgetPacer(8.0, spent=FRESH), load=load, seed=7))
    assert spent_of(events) == pytest.approx(8.0, rel=0.05)
    assert min(rate for _, _, rate, _ in events) > 0.0
    hours = [sum(judged for t, _, _, judged in events if h <= t / 3600.0 < h + 1) for h in range(24)]
    assert min(hours) > 30


@pytest.mark.full
def test_the_estimate_does_not_lean_towards_the_burst_or_away_from_it():
    """Quality falls when the load rises, which is when the rate falls."""
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        events = list(
            drive(
                BudgetPacer(4.0, spent=FRESH),
                end=DAY_S / 2,
                seed=seed,
                load=lambda now: 10.0 if 18_000 <= now < 21_600 else 1.0,
            )
        )
        scores = np.array([rng.beta(6, 3) if 18_000 <= t < 21_600 else rng.beta(8, 1) for t, *_ in events])
        rates, judged = np.array([e[2] for e in events]), np.array([e[3] for e in events])
        gaps.append(hajek(scores[judged], rates[judged]).mean - scores.mean())
        assert abs(scores[judged].mean() - scores.mean()) > 0.02, "unweighted it would lean"
    assert abs(np.mean(gaps)) < 3.0 * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    assert np.std(gaps) < 0.02


def test_the_rate_is_known_before_the_draw_and_from_the_past_alone():
    """What becomes of a sample changes only the rates of those after it."""
    one, other = BudgetPacer(1.0, spent=FRESH), BudgetPacer(1.0, spent=FRESH)
    for now in range(100, 200):
        assert one.rate(float(now)) == other.rate(float(now))
        one.observe(0.01, float(now))
        other.observe(0.01, float(now))
    before = one.rate(300.0), other.rate(300.0)
    one.observe(5.0, 300.0)
    assert before[0] == before[1]
    assert one.rate(301.0) < other.rate(301.0)


def test_a_rare_slice_is_judged_more_often_than_a_common_one():
    events = list(drive(BudgetPacer(5.0, spent=FRESH), slice_of=lambda n: "rare" if n % 200 == 0 else "common"))
    rare = [rate for _, name, rate, _ in events if name == "rare"][5:]
    common = [rate for _, name, rate, _ in events if name == "common"][1000:]
    assert min(rare) > 0.9
    assert max(common) < 0.4
    assert spent_of(events) == pytest.approx(5.0, rel=0.05)


def test_more_slices_than_are_kept_apart_share_one():
    pacer = BudgetPacer(0.01, spent=FRESH)
    rates = [rate for *_, rate, _ in drive(pacer, end=4000.0, slice_of=str)]
    assert len(pacer._slices) <= MOST_SLICES + 1  # noqa: SLF001 - how much is remembered shows nowhere else
    assert min(rates) > 0.0


def test_what_a_day_overspent_the_next_one_saves_and_what_it_left_is_gone():
    pacer = BudgetPacer(10.0, spent=Spent(day=0, usd=12.0))
    assert pacer.spent(DAY_S + 5.0) == Spent(day=1, usd=2.0)
    assert pacer.spent(3 * DAY_S) == Spent(day=3, usd=0.0)
    frugal = BudgetPacer(10.0, spent=Spent(day=0, usd=1.0))
    assert frugal.spent(DAY_S) == Spent(day=1, usd=0.0)


def test_even_a_budget_that_is_used_up_keeps_some_samples_coming():
    pacer = BudgetPacer(10.0, spent=Spent(day=0, usd=15.0))
    events = list(drive(pacer, start=DAY_S / 2, per_s=1.0))
    assert min(rate for _, _, rate, _ in events) > 0.0
    assert 0.3 < spent_of(events) < 0.7, "half a day of the reserve, a tenth of the budget"


def test_midnight_is_no_edge():
    pacer = BudgetPacer(5.0, spent=FRESH)
    rates = [(t, rate) for t, _, rate, _ in drive(pacer, end=1.1 * DAY_S, seed=3) if t > 0.9 * DAY_S]
    before = np.mean([rate for t, rate in rates if t < DAY_S][-200:])
    after = np.mean([rate for t, rate in rates if t >= DAY_S][:200])
    assert after == pytest.approx(before, rel=0.25)


def test_a_restart_without_memory_does_not_spend_the_day_twice():
    assert BudgetPacer(10.0).spent(DAY_S * 0.75) == Spent(day=0, usd=0.0, unseen=pytest.approx(7.5))
    events = drive(BudgetPacer(10.0), start=DAY_S * 0.75, per_s=1.0)
    assert spent_of(events) == pytest.approx(2.5, rel=0.1)
    kept = BudgetPacer(10.0, spent=FRESH)
    kept.observe(3.0, 60.0)
    assert BudgetPacer(10.0, spent=kept.spent(70.0)).spent(80.0) == Spent(day=0, usd=3.0)


def test_what_was_paid_before_the_memory_came_back_is_added():
    pacer = BudgetPacer(10.0)
    pacer.observe(0.5, 100.0)
    pacer.resume(Spent(day=0, usd=3.0), 110.0)
    assert pacer.spent(120.0) == Spent(day=0, usd=3.5)
    pacer.resume(Spent(day=0, usd=16.0), DAY_S + 1.0)
    assert pacer.spent(DAY_S + 2.0) == Spent(day=1, usd=6.0), "no more than was overspent, and nothing twice"


def test_pacers_that_hear_of_each_other_have_one_factor_and_divide_the_money_as_the_traffic_is():
    one, other = BudgetPacer(10.0, spent=FRESH), BudgetPacer(10.0, spent=FRESH)
    rng, paid, factors = random.Random(5), [0.0, 0.0], []
    for now in range(20_000):
        for index, (pacer, per_s) in enumerate(((one, 0.3), (other, 0.1))):
            if rng.random() < per_s:
                factor = pacer.rate(float(now))
                if rng.random() < factor:
                    pacer.observe(0.002, float(now))
                    paid[index] += 0.002
        if now % 10 == 0:
            one.update_others(other.spent(now).usd, other.wanted(now), float(now))
            other.update_others(one.spent(now).usd, one.wanted(now), float(now))
        if now > 5000 and now % 500 == 0:
            factors.append((one.lowest(float(now)), other.lowest(float(now))))
    assert sum(paid) == pytest.approx(10.0 * 20_000 / DAY_S, rel=0.06)
    assert paid[0] / paid[1] == pytest.approx(3.0, rel=0.15)
    assert all(a == pytest.approx(b, rel=0.1) for a, b in factors)


def test_what_several_overspent_together_they_save_together():
    one, other = BudgetPacer(10.0, spent=Spent(day=0, usd=9.0)), BudgetPacer(10.0, spent=Spent(day=0, usd=3.0))
    one.update_others(3.0, 0.0, 100.0)
    other.update_others(9.0, 0.0, 100.0)
    owed = [pacer.spent(DAY_S + 1.0).usd for pacer in (one, other)]
    assert owed == [pytest.approx(1.5), pytest.approx(0.5)]


@pytest.mark.parametrize("wrong", [{"usd_per_day": 0.0}, {"usd_per_day": 1.0, "reserve": 0.0}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="usd_per_day"):
        BudgetPacer(**wrong)
