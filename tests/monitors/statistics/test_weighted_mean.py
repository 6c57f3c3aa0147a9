"""Estimates and intervals: what they equal, and how often they are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gaugeway.storage.sums import WeightedSums
from monitors.statistics.confidence_sequence import (
    MIN_N_EFF,
    closed_window,
    confidence_sequence,
    difference_sequence,
)
from monitors.statistics.weighted_mean import Estimate, hajek, hajek_from_sums


def test_equal_rates_give_the_ordinary_mean_and_deviation():
    values = [0.1, 0.5, 0.9, 1.0]
    estimate = hajek(values, [0.1] * 4)
    assert estimate.mean == pytest.approx(np.mean(values))
    assert estimate.sd == pytest.approx(np.std(values))
    assert (estimate.n, estimate.n_eff) == (4, pytest.approx(4.0))


def test_unequal_rates_shrink_the_effective_number_and_keep_the_variance_formula():
    x, rate = np.array([0.2, 0.4, 0.9]), np.array([0.1, 0.5, 1.0])
    w = 1.0 / rate
    estimate = hajek(list(x), list(rate))
    mean = (w * x).sum() / w.sum()
    assert estimate.mean == pytest.approx(mean)
    assert estimate.n_eff == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert estimate.sd**2 / estimate.n_eff == pytest.approx((w**2 * (x - mean) ** 2).sum() / w.sum() ** 2)


def test_sampling_bad_answers_more_often_does_not_bias_the_mean():
    rng = np.random.default_rng(1)
    truth = rng.random(40_000)
    rates = np.where(truth < 0.5, 0.4, 0.1)
    kept = rng.random(truth.size) < rates
    estimate = hajek(truth[kept].tolist(), rates[kept].tolist())
    assert abs(truth[kept].mean() - 0.5) > 0.1
    assert abs(estimate.mean - truth.mean()) < 4 * estimate.sd / estimate.n_eff**0.5


@pytest.mark.parametrize(
    ("values", "rates"), [([], []), ([0.5], []), ([0.5], [0.0]), ([0.5], [1.5]), ([float("nan")], [1.0])]
)
def test_values_without_a_usable_rate_are_refused(values, rates):
    with pytest.raises(ValueError, match=r"rates|values"):
        hajek(values, rates)


@pytest.mark.parametrize("law", ["beta", "binary", "equal", "one"])
def test_sums_give_the_same_estimate_as_the_scores(law):
    rng = np.random.default_rng(3)
    n = 1 if law == "one" else 20_000
    x = {"beta": rng.beta(6.7, 1.18, n), "binary": (rng.random(n) < 0.85).astype(float)}.get(law, np.full(n, 0.9))
    rate = rng.choice([0.01, 0.1, 0.5, 1.0], n)
    w = 1.0 / rate
    estimate = hajek_from_sums(WeightedSums.of(x, w))
    expected = hajek(x.tolist(), rate.tolist())
    assert (estimate.n, estimate.mean, estimate.n_eff) == (
        *(expected.n, pytest.approx(expected.mean, rel=1e-12), pytest.approx(expected.n_eff, rel=1e-12)),
    )
    assert estimate.sd**2 == pytest.approx(expected.sd**2, abs=1e-12)
    if law in ("beta", "binary"):
        assert estimate.sd == pytest.approx(expected.sd, rel=1e-12)


@pytest.mark.parametrize("changes", [{"w": 0.0}, {"w2": float("inf")}, {"wx": float("nan")}])
def test_sums_without_weight_or_end_are_refused(changes):
    sums = {"n": 1, "w": 1.0, "wx": 0.5, "w2": 1.0, "w2x": 0.5, "w2x2": 0.25}
    with pytest.raises(ValueError, match="sums"):
        hajek_from_sums(WeightedSums(**(sums | changes)))


def test_the_interval_of_equal_scores_has_a_width_and_stays_in_the_unit_interval():
    perfect = Estimate(mean=1.0, sd=0.0, n=200, n_eff=200.0)
    for interval in (confidence_sequence(perfect), closed_window(perfect)):
        assert 0.9 < interval[0] < interval[1] == 1.0


def test_the_peek_proof_interval_costs_about_half_as_much_again():
    estimate = Estimate(mean=0.5, sd=0.3, n=500, n_eff=500.0)
    sequence, closed = confidence_sequence(estimate), closed_window(estimate)
    assert 1.5 < (sequence[1] - sequence[0]) / (closed[1] - closed[0]) < 1.6


def test_the_interval_depends_on_the_effective_number_of_scores():
    many = confidence_sequence(Estimate(mean=0.5, sd=0.3, n=1000, n_eff=1000.0))
    same_worth = confidence_sequence(Estimate(mean=0.5, sd=0.3, n=4000, n_eff=1000.0))
    assert many == same_worth


@pytest.mark.full
@pytest.mark.parametrize("law", ["beta", "binary", "good"])
def test_looking_after_every_score_the_sequence_is_rarely_ever_wrong_and_the_ordinary_interval_often_is(law):
    rng = np.random.default_rng(2)
    runs, n = 300, 2000
    mean = {"beta": 6.7 / 7.88, "binary": 0.85, "good": 0.98}[law]
    x = rng.beta(6.7, 1.18, (runs, n)) if law == "beta" else (rng.random((runs, n)) < mean).astype(float)
    t = np.arange(1, n + 1)
    means = x.cumsum(axis=1) / t
    sds = np.sqrt(np.maximum((x**2).cumsum(axis=1) / t - means**2, 0.0))
    wrong = {confidence_sequence: np.zeros(runs, bool), closed_window: np.zeros(runs, bool)}
    for at in range(MIN_N_EFF, n, 10):
        for run in range(runs):
            estimate = Estimate(mean=means[run, at - 1], sd=sds[run, at - 1], n=at, n_eff=float(at))
            for interval, ever in wrong.items():
                low, high = interval(estimate)
                ever[run] |= not low <= mean <= high
    assert wrong[confidence_sequence].mean() <= 0.05
    assert wrong[closed_window].mean() > 0.15


@pytest.mark.full
@pytest.mark.parametrize("together", [True, False])
def test_the_interval_of_a_difference_is_rarely_ever_wrong_whether_scores_come_together_or_in_turn(together):
    """With 600 of A before the first of B a clock of all scores would be far along when B begins."""
    rng, runs, n = np.random.default_rng(5), 200, 600
    wrong = 0
    for _ in range(runs):
        a, b = (rng.random(n) < 0.9) * 1.0, (rng.random(n) < 0.7) * 1.0
        for at in [*range(MIN_N_EFF, 100), *range(100, n + 1, 20)]:
            known = hajek(a[: at if together else n], [1.0] * (at if together else n))
            low, high = difference_sequence(known, hajek(b[:at], [1.0] * at))
            if not low <= -0.2 <= high:
                wrong += 1
                break
    assert wrong / runs <= 0.06


def test_the_interval_of_a_difference_holds_it_and_is_narrower_than_the_difference_of_two_intervals():
    a, b = (Estimate(mean=mean, sd=0.3, n=200, n_eff=200.0) for mean in (0.8, 0.7))
    low, high = difference_sequence(a, b)
    (a_low, a_high), (b_low, b_high) = confidence_sequence(a), confidence_sequence(b)
    assert b_low - a_high < low < b.mean - a.mean < high < b_high - a_low


def test_few_and_unequal_clusters_have_the_correction_cr2_and_the_effective_number_of_clusters():
    values, groups = [1.0, 0.0, 1.0, 1.0, 0.0, 0.5], [0, 0, 0, 1, 1, 2]
    found = hajek(values, [1.0] * 6, groups)
    x, shares = np.array(values), np.array([3, 2, 1]) / 6
    sums = np.array([(x[np.array(groups) == group] - x.mean()).sum() for group in range(3)])
    assert found.sd**2 / found.n_eff == pytest.approx(
        max((sums**2 / (1 - shares)).sum(), ((x - x.mean()) ** 2).sum()) / 36
    )
    assert found.degrees == pytest.approx(1 / (shares**2).sum() - 1)
    low, high = closed_window(found)
    assert (high - low) > np.diff(closed_window(replace(found, degrees=5.0)))[0]


def test_a_widened_estimate_has_fewer_effective_scores():
    found = hajek([1.0, 0.0, 1.0, 1.0], [1.0] * 4).widened(2.0)
    assert (found.n, found.n_eff, found.design_effect, found.degrees) == (4, 2.0, 2.0, None)
    assert found.widened(1.5).design_effect == 3.0
