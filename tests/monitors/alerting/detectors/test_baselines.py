"""Baselines: bounds that hold with the confidence they state, a forecast of hours and weekdays, exact states."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitors.alerting.detectors import Bucket, baselines
from monitors.alerting.detectors.baselines import LEAST_IN_HOUR, Fixed, Forecasted, Ratchet, Window
from monitors.statistics.betting_bounds import RunningLower, Spread, WindowLower

MEAN, HOUR = 0.85, 3600.0
MAKE = {
    "fixed": lambda: Fixed(0.8),
    "window": lambda: Window(400),
    "ratchet": lambda: Ratchet(400, lag=200),
    "forecast": lambda: Forecasted(400),
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


def hour_of(hour, scores, **fields):
    scores = tuple(float(score) for score in scores)
    return Bucket(start=HOUR * hour, seconds=60.0, scores=scores, weights=(1.0,) * len(scores), **fields)


def test_a_forecast_is_known_from_so_many_scores_on_and_then_is_the_mean_of_unchanged_scores():
    baseline = Forecasted(200, tolerance=0.02)
    feed(baseline, np.full(190, 0.9))
    assert (baseline.m0(0.0), baseline.variance(0.0), baseline.progress()) == (None, 0.0, (190, 200))
    feed(baseline, np.full(10, 0.9), 19)
    assert baseline.progress() == (200, 200)
    assert baseline.m0(1200.0) == pytest.approx(0.88, abs=1e-3)
    feed(baseline, np.full(2000, 0.9), 20)
    assert baseline.m0(60.0 * 220) == pytest.approx(0.88, abs=1e-3)


def test_an_hour_without_scores_after_the_last_that_was_needed_changes_nothing():
    baseline = Forecasted(100)
    baseline.update(hour_of(0, [0.9] * 100))
    first = baseline.m0(HOUR * 5)
    baseline.update(hour_of(5, [0.9] * 10))
    assert baseline.m0(HOUR * 6) == pytest.approx(first, abs=1e-6)


def test_a_forecast_is_unsure_of_hours_that_it_has_not_seen_and_surer_day_by_day():
    rng, baseline, tomorrow = np.random.default_rng(8), Forecasted(200), []
    for hour in range(24 * 10):
        baseline.update(hour_of(hour, beta(rng, 100)))
        if hour == 5:
            seen, unseen = baseline.variance(HOUR * 6), baseline.variance(HOUR * 18)
        if hour % 24 == 23:
            tomorrow.append(baseline.variance(HOUR * (hour + 12)))
    assert unseen > 1.05 * seen
    assert tomorrow == sorted(tomorrow, reverse=True)
    assert tomorrow[-1] < 0.5 * tomorrow[0]


def test_a_forecast_learns_the_time_of_day_and_the_weekend():
    rng, baseline = np.random.default_rng(9), Forecasted(400)

    def mean(hour):
        return 0.85 + 0.04 * np.sin(hour * np.pi / 12) - (0.05 if hour // 24 % 7 in (2, 3) else 0.0)

    days = 24 * 28
    for hour in range(days):
        baseline.update(hour_of(hour, rng.random(400) < mean(hour)))
    for hour in range(days, days + 24 * 7, 5):
        assert baseline.m0(HOUR * hour) == pytest.approx(mean(hour), abs=0.025)
        assert baseline.variance(HOUR * hour) < 0.02**2


def test_hours_with_few_scores_are_joined_and_count_like_a_full_one():
    few, full = Forecasted(60), Forecasted(60)
    x = np.random.default_rng(10).random(60)
    for hour, row in enumerate(np.reshape(x, (12, 5))):
        few.update(hour_of(hour, row))
    for hour, row in enumerate(np.reshape(x, (3, 20))):
        full.update(hour_of(4 * hour, row))
    assert LEAST_IN_HOUR == 20
    assert few.progress() == full.progress() == (60, 60)
    assert few.m0(HOUR * 12) == pytest.approx(full.m0(HOUR * 12), rel=1e-9)
    assert few.variance(HOUR * 12) == pytest.approx(full.variance(HOUR * 12), rel=1e-9)


def test_scores_that_are_alike_leave_the_forecast_less_sure():
    x = beta(np.random.default_rng(11), (48, 50))
    plain, alike = Forecasted(400), Forecasted(400)
    for hour, row in enumerate(x):
        plain.update(hour_of(hour, row))
        alike.update(hour_of(hour, row, design_effect=5.0))
    assert alike.variance(HOUR * 48) > 1.2 * plain.variance(HOUR * 48)


def test_a_forecast_of_signals_assumes_more_variation():
    x = beta(np.random.default_rng(12), (12, 100))
    metric, signal = (Forecasted(400, variation=of) for of in ("metric", "signal"))
    for hour, row in enumerate(x):
        metric.update(hour_of(hour, row))
        signal.update(hour_of(hour, row))
    assert signal.variance(HOUR * 18) > 4.0 * metric.variance(HOUR * 18)
    with pytest.raises(ValueError, match="another baseline"):
        signal.loads(metric.dumps())


def test_a_forecast_goes_on_in_the_middle_of_an_hour_and_its_state_is_small():
    rng, through, again = np.random.default_rng(13), Forecasted(400), Forecasted(400)
    for minute in range(0, 60 * 24 * 9, 20):
        taken = bucket(minute, beta(rng, 15))
        through.update(taken)
        again.update(taken)
        state = again.dumps()
        assert len(state) < 12_000
        again = Forecasted(400)
        again.loads(state)
        assert (again.m0(taken.start), again.variance(taken.start)) == (
            through.m0(taken.start),
            through.variance(taken.start),
        )
    assert again.dumps() == through.dumps()


@pytest.mark.parametrize("kind", ["auto", "seasonal"])
def test_what_an_older_release_learned_is_no_state_of_a_forecast(kind):
    options = {"n0": 2000, "lag": 1000, "least": 1000, "level": 0.95, "tolerance": 0.0}
    older = json.dumps({"for": {"kind": kind} | options, "state": {"flat": {}, "hours": {}}})
    baseline = baselines.build(kind)
    fresh = baseline.dumps()
    with pytest.raises(ValueError, match="another baseline"):
        baseline.loads(older)
    assert baseline.dumps() == fresh


@pytest.mark.parametrize("kind", MAKE)
def test_a_state_written_and_read_on_the_way_changes_nothing(kind):
    rng = np.random.default_rng(9)
    through, again = MAKE[kind](), MAKE[kind]()
    for minute in range(9 * 24):
        one = Bucket(start=3600.0 * minute, seconds=3600.0, scores=tuple(beta(rng, 15).tolist()), weights=(1.0,) * 15)
        through.update(one)
        state = again.dumps()
        assert len(state) < 12_000
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
    assert feed(Window(200, tolerance=0.5), np.zeros(200)).m0(0.0) == 1e-9
    assert 0.9 < feed(Window(200), np.ones(200)).m0(0.0) < 1.0


def test_baselines_are_made_by_name():
    assert baselines.build("fixed", slo=0.8).m0(0.0) == 0.8
    assert isinstance(baselines.build("auto", tolerance=0.05), Forecasted)
    with pytest.raises(ValueError, match="fixed, window, ratchet, seasonal, auto"):
        baselines.build("weekly")
    with pytest.raises(ValueError, match="SLO"):
        baselines.build("fixed", slo=1.0)
    with pytest.raises(TypeError):
        baselines.build("window", days=7)


def test_a_weekend_that_alerts_is_known_after_its_second_alert_and_two_bad_days_are_not_learned():
    rng, baseline, weekend = np.random.default_rng(14), Forecasted(400), (2, 3)

    def hold_those_that_are_low(day):
        for hour in range(24 * day, 24 * day + 24):
            low = day % 7 in weekend
            (baseline.hold if low else baseline.update)(hour_of(hour, 0.2 * (not low) + 0.8 * beta(rng, 200)))
        if day % 7 == weekend[-1] + 1:
            baseline.release()

    for day in range(7):
        hold_those_that_are_low(day)
    assert baseline.m0(HOUR * (24 * 9 + 12)) > 0.82
    for day in range(7, 14):
        hold_those_that_are_low(day)
    assert baseline.m0(HOUR * (24 * 16 + 12)) == pytest.approx(0.8 * MEAN, abs=0.03)
    assert baseline.m0(HOUR * (24 * 18 + 12)) == pytest.approx(0.2 + 0.8 * MEAN, abs=0.02)
