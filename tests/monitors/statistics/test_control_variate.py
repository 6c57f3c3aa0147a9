"""The judge's mean with the help of a cheap score: what it equals, how wide, how often right, what it claims."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway.storage.sums import Sums
from monitors.statistics.confidence_sequence import closed_window
from monitors.statistics.control_variate import Fit, fitted, powered, sums
from monitors.statistics.weighted_mean import hajek

MEAN, SD = 0.85, np.sqrt(0.85 * 0.15)


def traffic(rng, n, rho):
    """Binary scores and a cheap score on another scale, biased, with correlation rho."""
    y = (rng.random(n) < MEAN).astype(float)
    return y, 0.2 + 0.05 * (rho * (y - MEAN) / SD + np.sqrt(1.0 - rho**2) * rng.normal(size=n))


def sampled(rng, y, rates):
    return np.where(rng.random(y.size) < rates, y, np.nan)


def example():
    i = np.arange(400)
    y = ((i * 37) % 101) / 100
    cheap = 0.2 + 0.6 * y + ((i * 53) % 97) / 200
    return cheap, np.where(i % 8 == 0, y, np.nan), np.full(400, 1 / 8)


def test_with_a_given_slope_the_mean_is_that_of_an_independent_package():
    part = sums(*example())
    fit = Fit(intercept=part.uy / part.u - 0.5 * part.uf / part.u, slope=0.5)
    found = powered([part], [fit])
    # ppi-python 0.2.3 with lam = .5 (1 - 50/400): it wants the judged apart from the others
    assert found.mean == pytest.approx(0.51873875, abs=1e-9)
    assert 2 * 1.959964 * found.variance**0.5 == pytest.approx(0.12523843, rel=0.02)


def test_tuned_on_the_window_the_interval_is_nearly_that_of_an_independent_package():
    found = powered([sums(*example())])
    # ppi-python 0.2.3, lam tuned with the variance of the cheap score over everything
    assert found.mean == pytest.approx(0.50926986, abs=0.002)
    assert 2 * 1.959964 * found.variance**0.5 == pytest.approx(0.1085662, rel=0.03)


def test_without_a_cheap_score_it_is_the_ordinary_weighted_estimate():
    rng = np.random.default_rng(1)
    y = rng.random(5000)
    rates = np.where(y < 0.5, 0.4, 0.1)
    scores = sampled(rng, y, rates)
    judged = ~np.isnan(scores)
    found = powered([sums(np.zeros(5000), scores, rates)])
    expected = hajek(scores[judged].tolist(), rates[judged].tolist())
    assert (found.mean, found.saving, found.correlation) == (pytest.approx(expected.mean), 1.0, 0.0)
    assert found.variance == pytest.approx(expected.sd**2 / expected.n_eff, rel=0.05)


@pytest.mark.parametrize(("rho", "ratio", "saving"), [(0.5, 0.90, 1.2), (0.7, 0.77, 1.6), (0.9, 0.56, 3.0)])
def test_the_interval_narrows_with_the_correlation_and_stays_right(rho, ratio, saving):
    rng = np.random.default_rng(2)
    widths, right, savings = [], [], []
    for _ in range(300):
        y, cheap = traffic(rng, 5000, rho)
        part = sums(cheap, sampled(rng, y, 0.1), np.full(5000, 0.1))
        found = powered([part])
        plain = powered([part], [Fit(intercept=part.uy / part.u)])
        widths.append((found.variance / plain.variance) ** 0.5)
        savings.append(found.saving)
        low, high = closed_window(found.estimate())
        right.append(low <= MEAN <= high)
    assert np.median(widths) <= ratio
    assert np.median(savings) >= saving
    assert 0.91 <= np.mean(right) <= 0.985


@pytest.mark.parametrize("n", [1000, 10_000])
def test_a_useless_cheap_score_does_no_harm_and_claims_nothing(n):
    rng = np.random.default_rng(3)
    ratios, savings, right = [], [], []
    for _ in range(200):
        y, cheap = traffic(rng, n, 0.0)
        part = sums(cheap, sampled(rng, y, 0.1), np.full(n, 0.1))
        found, plain = powered([part]), powered([part], [Fit(intercept=part.uy / part.u)])
        ratios.append((found.variance / plain.variance) ** 0.5)
        savings.append(found.saving)
        low, high = closed_window(found.estimate())
        right.append(low <= MEAN <= high)
    assert max(ratios) <= 1.02
    assert min(savings) == 1.0
    assert np.median(savings) < 1.01
    assert np.mean(right) >= 0.9


def test_a_cheap_score_that_is_wrong_everywhere_does_not_bias_the_mean():
    rng = np.random.default_rng(4)
    errors = []
    for _ in range(200):
        y, _ = traffic(rng, 2000, 0.5)
        scores = sampled(rng, y, 0.2)
        errors.append(powered([sums(np.full(2000, 7.0) - 3.0 * y, scores, np.full(2000, 0.2))]).mean - y.mean())
    assert abs(np.mean(errors)) < 0.002  # the cheap score knows everything, upside down


def test_a_given_control_is_unbiased_even_if_absurd():
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(400):
        y, cheap = traffic(rng, 1000, 0.5)
        part = sums(cheap, sampled(rng, y, 0.2), np.full(1000, 0.2))
        errors.append(powered([part], [Fit(intercept=3.0, slope=-2.0)]).mean - MEAN)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 20


def test_two_halves_merged_are_the_whole():
    cheap, scores, rates = example()
    merged = sums(cheap[:150], scores[:150], rates[:150]) + sums(cheap[150:], scores[150:], rates[150:])
    assert powered([merged]).mean == pytest.approx(powered([sums(cheap, scores, rates)]).mean, rel=1e-12)
    assert powered([merged]).variance == pytest.approx(powered([sums(cheap, scores, rates)]).variance, rel=1e-9)


def test_strata_have_their_own_slopes_and_count_by_their_traffic():
    rng = np.random.default_rng(6)
    means, errors, parts = [], [], []
    for _ in range(100):
        parts = []
        for n, mean, slope, rate in ((4000, 0.9, 0.5, 0.05), (1000, 0.4, -0.5, 0.3)):
            y = np.clip(rng.normal(mean, 0.1, n), 0.0, 1.0)
            parts.append(sums(slope * y, sampled(rng, y, rate), np.full(n, rate)))
        means.append(powered(parts).mean)
        errors.append(powered(parts).variance ** 0.5)
    assert np.mean(means) == pytest.approx(0.8 * 0.9 + 0.2 * 0.4, abs=0.01)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.3)
    together = powered([parts[0] + parts[1]])
    assert powered(parts).variance < 0.5 * together.variance


def test_small_strata_are_taken_together():
    rng = np.random.default_rng(7)
    y, cheap = traffic(rng, 4000, 0.7)
    rates = np.full(4000, 0.1)
    scores = sampled(rng, y, 0.1)
    big = [sums(cheap[:3000], scores[:3000], rates[:3000])]
    crumbs = [sums(cheap[i : i + 10], scores[i : i + 10], rates[:10]) for i in range(3000, 4000, 10)]
    found = powered(big + crumbs)
    assert found.n_all == 4000
    assert found.mean == pytest.approx(powered([*big, sum(crumbs, Sums())]).mean, rel=1e-12)
    assert powered([*big, Sums(n_all=5, f=1.0, ff=0.2)]).n_all == 3005


def test_everything_judged_needs_no_cheap_score():
    rng = np.random.default_rng(10)
    y, cheap = traffic(rng, 500, 0.9)
    found = powered([sums(cheap, y, np.ones(500))])
    assert (found.mean, found.saving) == (pytest.approx(y.mean()), 1.0)
    assert found.variance == pytest.approx(y.var(ddof=2) / 500, rel=0.01)
    assert fitted(sums(cheap, y, np.ones(500))).slope == 0.0


def test_equal_scores_have_no_variance_and_their_number():
    found = powered([sums(np.arange(50.0), np.ones(50), np.ones(50))])
    assert (found.mean, found.n_eff, found.saving) == (1.0, 50.0, 1.0)
    assert not found.enough


@pytest.mark.parametrize(
    ("cheap", "scores", "rates"),
    [
        ([0.1], [0.5], [0.5, 0.5]),
        ([float("nan")], [0.5], [0.5]),
        ([0.1], [1.5], [0.5]),
        ([0.1], [0.5], [0.0]),
        ([0.1], [0.5], [float("nan")]),
    ],
)
def test_values_that_cannot_be_are_refused(cheap, scores, rates):
    with pytest.raises(ValueError, match="cheap scores"):
        sums(cheap, scores, rates)


def test_an_estimate_from_one_score_or_none_is_refused():
    one = sums([0.1, 0.2], [0.5, float("nan")], [0.5, 0.5])
    for strata in ([], [Sums()], [one]):
        with pytest.raises(ValueError, match="two judged"):
            powered(strata)
    with pytest.raises(ValueError, match="fits"):
        powered([one, one], [Fit()])
