"""Baselines: true with the confidence they state, never lowered by bad times, small and exact in their state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitors.alerting.detectors import Bucket, baselines
from monitors.alerting.detectors.baselines import DAY_S, Auto, Fixed, Ratchet, Seasonal, Window
from monitors.statistics.betting_bounds import RunningLower, Spread, WindowLower

MEAN = 0.85
MAKE = {
    "fixed": lambda: Fixed(0.8),
    "window": lambda: Window(400),
    "ratchet": lambda: Ratchet(400, lag=200),
    "seasonal": Seasonal,
    "auto": lambda: Auto(400, lag=200),
}


def beta(rng, shape):
    return rng.beta(7.85 * MEAN, 7.85 * (1 - MEAN), shape)


def spiked(rng, shape):
    u = rng.random(shape)
    return np.where(u < 0.06, 0.0, np.where(u < 0.66, 1.0, rng.beta(3.48, 1.25, shape)))


def binary(rng, shape):
    return (rng.random(shape) < MEAN).astype(float)


def bucket(minute, scores, weights=None):
    scores = tuple(float(score) for score in scores)
    return Bucket(start=60.0 * minute, seconds=60.0, scores=scores, weights=weights or (1.0,) * len(scores))


def feed(baseline, scores, start=0):
    for minute, row in enumerate(np.reshape(scores, (-1, 10)), start):
        baseline.update(bucket(minute, row))
    return baseline


@pytest.mark.full
@pytest.mark.parametrize(("law", "gap"), [(beta, 0.019), (spiked, 0.047), (binary, 0.063)])
def test_the_bound_of_a_window_is_below_the_true_mean_as_often_as_it_says_and_close(law, gap):
    rng = np.random.default_rng(1)
    bounds = [feed(Window(300), law(rng, 300)).m0(0.0) for _ in range(300)]
    assert np.mean(np.array(bounds) > MEAN) <= 0.05
    assert MEAN - np.mean(bounds) <= gap  # what the design states for 300 scores, and a twentieth


def test_the_bound_of_a_biased_sample_holds_with_weights_and_not_without():
    rng, n, misses = np.random.default_rng(2), 300, np.zeros(2)
    for _ in range(100):
        everything = spiked(rng, 6 * n)
        rates = np.where(everything > MEAN, 0.8, 0.2)  # good answers are judged more often
        kept = np.flatnonzero(rng.random(everything.size) < rates)[:n]
        scores, weights = everything[kept], 0.2 / rates[kept]
        for index, of in enumerate((weights, np.ones(n))):
            lower = WindowLower(n, 0.05)
            for start in range(0, n, 10):
                lower.update(scores[start : start + 10], of[start : start + 10])
            misses[index] += lower.bound() > MEAN
    assert misses[0] <= 5
    assert misses[1] > 50


@pytest.mark.full
@pytest.mark.parametrize("law", [beta, spiked, binary])
def test_the_running_bound_is_hardly_ever_above_the_mean_at_any_time(law):
    rng, ever, last = np.random.default_rng(3), 0, []
    for _ in range(100):
        lower, spread = RunningLower(0.05), Spread()
        for row in law(rng, (200, 10)):
            lower.update(row, np.ones(10), spread.variance)
            spread.update(row, np.ones(10))
        ever += lower.bound > MEAN  # it never falls, so it has been above if it is now
        last.append(lower.bound)
    assert ever <= 5
    assert MEAN - np.mean(last) < 0.04


def test_the_running_bound_stays_where_it_is_said_to_be_by_its_formula():
    rng = np.random.default_rng(4)
    x, w = rng.random(50), rng.uniform(0.2, 1.0, 50)
    lower = RunningLower(0.05)
    lower.update(x, w, variance=0.04)
    bet = min(0.5, np.sqrt(2 * np.log(20) / (0.04 * 50 * np.log(51))))
    xi = w * (x - lower.bound)
    assert bet * xi.sum() - (-np.log(1 - bet) - bet) * np.square(xi).sum() == pytest.approx(np.log(20))


def test_a_window_says_nothing_before_it_is_full_and_learns_nothing_after():
    baseline = Window(200, tolerance=0.02)
    feed(baseline, np.full(190, 0.9))
    assert (baseline.m0(0.0), baseline.progress()) == (None, (190, 200))
    feed(baseline, np.full(10, 0.9), 19)
    learned = baseline.m0(0.0)
    assert (learned + 0.02, baseline.progress()) == (baseline.bound, (200, 200))
    feed(baseline, np.full(1000, 0.1), 20)
    assert baseline.m0(0.0) == learned


def test_the_order_within_a_bucket_does_not_matter():
    rng = np.random.default_rng(5)
    rows = spiked(rng, (60, 10))
    for make in MAKE.values():
        one = feed(make(), rows)
        other = feed(make(), np.array([rng.permutation(row) for row in rows]))
        assert one.m0(1e4) == pytest.approx(other.m0(1e4)) if one.m0(1e4) else other.m0(1e4) is None


def test_a_ratchet_rises_while_all_is_well_and_is_never_lowered_by_a_decline():
    rng = np.random.default_rng(6)
    baseline, seen = Ratchet(2000, lag=1000), []
    for start in range(0, 1200, 100):
        drop = max(0.0, (start - 600) / 1000)
        feed(baseline, np.clip(spiked(rng, 1000) - drop, 0.0, 1.0), start)
        seen.append(baseline.m0(0.0))
    assert seen[0] is None
    assert seen[1:] == sorted(seen[1:])
    assert MEAN - 0.03 < seen[-1] < MEAN


def test_a_ratchet_does_not_know_the_last_scores():
    rng = np.random.default_rng(7)
    quiet = feed(Ratchet(400, lag=200), beta(rng, 1000))
    better = feed(Ratchet(400, lag=200), beta(np.random.default_rng(7), 1000))
    quiet_rows, better_rows = np.full(190, 0.8), np.full(190, 1.0)
    assert feed(quiet, quiet_rows, 100).m0(0.0) == feed(better, better_rows, 100).m0(0.0)
    assert feed(quiet, quiet_rows, 119).m0(0.0) < feed(better, better_rows, 119).m0(0.0)


def test_hours_that_are_worse_every_day_have_a_baseline_of_their_own_after_a_week():
    rng, seasonal, auto = np.random.default_rng(8), Seasonal(), Auto()
    means = [0.9 if hour < 18 else 0.75 for hour in range(24)]
    for hour in range(7 * 24):
        if hour == 6 * 24:
            assert seasonal.m0(0.0) is None
            flat = auto.m0(20 * 3600.0)
        row = rng.random(200) < means[hour % 24]
        for baseline in (seasonal, auto):
            baseline.update(
                Bucket(start=3600.0 * hour, seconds=3600.0, scores=tuple(map(float, row)), weights=(1.0,) * 200)
            )
    assert flat > 0.75
    assert seasonal.progress() == (7, 7)
    for hour, mean in enumerate(means):
        assert mean - 0.12 < seasonal.m0(3600.0 * hour) < mean
        assert auto.m0(3600.0 * hour) <= mean
    assert auto.m0(9 * DAY_S + 20 * 3600.0) < 0.75 < auto.m0(9 * DAY_S)


def test_hours_with_few_scores_do_not_lower_what_is_known_of_the_whole():
    auto = Auto(400)
    for hour in range(8 * 24):
        auto.update(Bucket(start=3600.0 * hour, seconds=3600.0, scores=(0.9, 0.8) * 10, weights=(1.0,) * 20))
    assert auto.m0(0.0) > 0.82


@pytest.mark.parametrize("kind", MAKE)
def test_a_state_written_and_read_on_the_way_changes_nothing(kind):
    rng = np.random.default_rng(9)
    through, again = MAKE[kind](), MAKE[kind]()
    for minute in range(9 * 24):
        one = Bucket(start=3600.0 * minute, seconds=3600.0, scores=tuple(beta(rng, 15).tolist()), weights=(1.0,) * 15)
        through.update(one)
        state = again.dumps()
        assert len(state) < 4000
        again = MAKE[kind]()
        again.loads(state)
        again.update(one)
        assert again.m0(one.start) == through.m0(one.start)
        assert again.progress() == through.progress()
    assert through.m0(0.0) is not None
    assert again.dumps() == through.dumps()


@pytest.mark.parametrize("kind", MAKE)
def test_a_state_of_another_baseline_is_refused(kind):
    for other, make in MAKE.items():
        fresh = make()
        if other != kind:
            with pytest.raises(ValueError, match="another baseline"):
                fresh.loads(MAKE[kind]().dumps())
            assert json.loads(fresh.dumps()) == json.loads(make().dumps())


@pytest.mark.parametrize("kind", MAKE)
def test_learning_afresh_forgets_everything(kind):
    baseline = feed(MAKE[kind](), beta(np.random.default_rng(10), 1000))
    baseline.rebaseline()
    assert baseline.dumps() == MAKE[kind]().dumps()


@pytest.mark.parametrize("kind", MAKE)
def test_scores_that_cannot_be_are_refused_and_time_without_any_teaches_nothing(kind):
    baseline = MAKE[kind]()
    fresh = baseline.dumps()
    baseline.update(bucket(0, []))
    if kind != "fixed":
        with pytest.raises(ValueError, match="scores"):
            baseline.update(bucket(0, [1.5]))
    assert baseline.dumps() == fresh


def test_a_baseline_keeps_off_the_ends_where_nothing_could_be_bet():
    assert feed(Window(200, tolerance=0.5), np.zeros(200)).m0(0.0) == 0.001
    assert 0.9 < feed(Window(200), np.ones(200)).m0(0.0) < 1.0


def test_baselines_are_made_by_name():
    assert baselines.build("fixed", slo=0.8).m0(0.0) == 0.8
    assert isinstance(baselines.build("auto", tolerance=0.05), Auto)
    with pytest.raises(ValueError, match="fixed, window, ratchet, seasonal, auto"):
        baselines.build("weekly")
    with pytest.raises(ValueError, match="SLO"):
        baselines.build("fixed", slo=1.0)
    with pytest.raises(TypeError):
        baselines.build("window", days=7)
