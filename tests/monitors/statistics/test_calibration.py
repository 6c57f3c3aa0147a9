"""Calibration maps, and the interval of the calibration error, on laws drawn by seed."""

import numpy as np
import pytest

from monitors.statistics.calibration import BINS, ENOUGH_FOR_ISOTONIC, MIN_PAIRS, Calibration, fit, reliability

LOOKS = (20, 40, 80, 150, 300, 500)


def law(seed):
    """A law of scores (smooth, with spikes at 0 and 1, or a few values) and of the truth given the score."""
    rng = np.random.default_rng(seed)
    kind, shape = rng.integers(3), rng.integers(3)
    a, b = rng.uniform(0.3, 4.0, 2)
    weights, places = rng.dirichlet(np.ones(3)), np.sort(rng.random(int(rng.integers(2, 8))))
    low, high = np.sort(rng.random(2))
    power, cut, slope, shift = rng.uniform(0.4, 3.0), rng.uniform(0.2, 0.8), rng.uniform(0.3, 2.5), rng.normal()

    def scores(n):
        if kind == 0:
            return rng.beta(a, b, n)
        if kind == 1:
            return np.where(rng.random(n) < weights[0], 1.0 * (rng.random(n) < weights[1]), np.round(rng.random(n), 1))
        return rng.choice(places, n)

    def truth(x):
        if shape == 0:
            z = np.clip(x, 0.005, 0.995)
            return 1.0 / (1.0 + np.exp(-slope * np.log(z / (1.0 - z)) - shift))
        return low + (high - low) * x**power if shape == 1 else np.where(x < cut, low, high)

    return rng, scores, truth


def error_of(x, p):
    return float(np.abs(np.bincount(np.minimum((x * BINS).astype(int), BINS - 1), x - p, BINS)).sum()) / x.size


def test_the_interval_of_the_error_holds_at_every_look_in_95_percent_of_runs():
    """Whenever one stops: a run counts as wrong if the interval misses at any look, and one stops when it misses."""
    wrong = 0
    for seed in range(120):
        rng, scores, truth = law(seed)
        x = scores(LOOKS[-1])
        y = rng.random(x.size) < truth(x)
        wide = scores(100_000)
        error = error_of(wide, truth(wide))
        found = [reliability(x[:n], y[:n]) for n in LOOKS]
        wrong += any(not one.low - 0.002 <= error <= one.high + 0.002 for one in found)
    assert wrong <= 6  # .05 of 120


def test_the_interval_excludes_scores_that_are_far_off_and_narrows():
    rng = np.random.default_rng(5)
    x = rng.random(1500)
    off, right = rng.random(x.size) < 0.4 * x, rng.random(x.size) < x
    assert reliability(x, off).low > 0.25
    assert reliability(x, right).low < 0.01
    assert reliability(x, right).high < 0.12
    assert reliability(x[:100], right[:100]).high > reliability(x, right).high


def test_a_bin_has_its_own_interval():
    found = reliability([0.05] * 9 + [0.95] * 40, [0.0] * 9 + [1.0] * 30 + [0.0] * 10)
    few, many = found.bins
    assert (few.observed.low, few.observed.n) == (0.0, 9)
    assert 0.3 < few.observed.high < 0.6
    assert 0.5 < many.observed.low < 0.75 < many.observed.high < 0.95
    assert found.n == 49


def test_labels_may_lie_between_0_and_1():
    assert reliability([0.4] * 500, [0.4] * 500).ece == pytest.approx(0.0)
    assert reliability([0.9] * 500, [0.4] * 500).low > 0.4


@pytest.mark.parametrize(("n", "kind"), [(MIN_PAIRS, "platt"), (ENOUGH_FOR_ISOTONIC, "isotonic"), (2000, "isotonic")])
def test_a_map_brings_scores_nearer_to_the_truth_on_laws_kept_apart(n, kind):
    gains = []
    for seed in range(10_000, 10_060):
        rng, scores, truth = law(seed)
        x = scores(n)
        made = fit(x, rng.random(n) < truth(x), "0" * 8)
        assert made.kind == kind
        fresh = scores(4000)
        gains.append(np.mean((fresh - truth(fresh)) ** 2) - np.mean((made.apply(fresh) - truth(fresh)) ** 2))
        grid = made.apply(np.linspace(0.0, 1.0, 201))
        assert (np.diff(grid) >= 0.0).all()
        assert grid.min() > 0.0
        assert grid.max() < 1.0
        assert Calibration.parse(str(made)) == made
    assert np.mean(gains) > 0.05


def test_scores_that_say_the_opposite_become_the_base_rate():
    rng = np.random.default_rng(2)
    for n in (100, 1000):
        x = rng.random(n)
        made = fit(x, rng.random(n) < 1.0 - x, "0" * 8).apply([0.2, 0.5, 0.8])
        assert made == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "isotonic 0f0f0f0f: 0.0 0.9 1.0 0.1",
        "isotonic 0f0f0f0f: 0.0 0.1 1.0",
        "isotonic 0f0f0f0f: 0.0 0.1 1.0 1.2",
        "platt 0f0f0f0f: -1.0 0.2",
        "platt 0f0f0f0f: one 0.2",
    ],
)
def test_a_text_that_is_no_map_is_refused(text):
    with pytest.raises(ValueError, match=r"expected pairs of|could not convert"):
        Calibration.parse(text)


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="at least 30 pairs"):
        fit([0.5] * 29, [1.0] * 29, "0" * 8)
    with pytest.raises(ValueError, match="at least one"):
        reliability([], [])
