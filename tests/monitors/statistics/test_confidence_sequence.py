"""Confidence sequences and the betting bound: their formula, how often they are ever wrong, what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.statistics.sequences import EmpiricalBernstein, HedgedBetting, bernstein_path, betting_lower

MEAN = 0.85
SEQUENCES = pytest.mark.parametrize("make", [EmpiricalBernstein, HedgedBetting])


def beta(rng, shape):
    return rng.beta(6.7, 6.7 * 0.15 / 0.85, shape)


def binary(rng, shape):
    return (rng.random(shape) < MEAN).astype(float)


def oversampled(rng, n):
    """Scores of which the bad ones were sampled four times as often, and their weights."""
    x = beta(rng, n)
    rate = np.where(x < MEAN, 0.8, 0.2)
    kept = rng.random(n) < rate
    return x[kept], 0.2 / rate[kept]


def plain_bernstein(scores, level):
    """The design's formula, one score at a time."""
    mean = mu = best = 0.0
    total = squares = stake = won = spread = 0.0
    s2 = 0.25
    for t, x in enumerate(scores, 1):
        lam = min(math.sqrt(2 * level / (s2 * t * math.log(1 + t))), 0.5)
        stake, won = stake + lam, won + lam * x
        spread += (x - mean) ** 2 * (-math.log(1 - lam) - lam)
        best = max(best, (won - level - spread) / stake)
        total += x
        mean, mu = total / t, (0.5 + total) / (t + 1)
        squares += (x - mu) ** 2
        s2 = (0.25 + squares) / (t + 1)
    return best


def test_without_weights_the_bernstein_sequence_is_the_formula_of_the_paper():
    scores = beta(np.random.default_rng(1), 700)
    sequence = EmpiricalBernstein(alpha=0.1)
    for part in np.split(scores, [1, 40, 333]):
        sequence.update(part.tolist())
    assert sequence.lower == pytest.approx(plain_bernstein(scores, math.log(20.0)), rel=1e-12)
    assert sequence.upper == pytest.approx(1.0 - plain_bernstein(1.0 - scores, math.log(20.0)), rel=1e-12)


@pytest.mark.parametrize("law", [beta, binary])
def test_looked_at_after_every_score_the_bernstein_bounds_are_rarely_ever_wrong(law):
    scores = law(np.random.default_rng(2), (2000, 200))
    empty = np.zeros((10, 200))
    _, low = bernstein_path(empty, scores, np.ones_like(scores), math.log(40.0))
    _, high = bernstein_path(empty, 1.0 - scores, np.ones_like(scores), math.log(40.0))
    assert ((low > MEAN) | (high > 1.0 - MEAN)).any(axis=0).mean() <= 0.05
    assert np.median(1.0 - high[-1] - low[-1]) < 0.07
    assert (np.diff(low, axis=0) >= 0.0).all()


@pytest.mark.full
@pytest.mark.parametrize("law", [beta, binary])
def test_looked_at_after_every_score_the_betting_bounds_are_rarely_ever_wrong(law):
    rng = np.random.default_rng(3)
    wrong, widths = 0, []
    for _ in range(60):
        sequence = HedgedBetting()
        sequence.update(law(rng, 1000).tolist())
        wrong += not sequence.lower <= MEAN <= sequence.upper
        widths.append(sequence.upper - sequence.lower)
    assert wrong <= 6  # 3 are expected at most
    assert np.median(widths) < 0.1


def test_the_betting_bounds_are_tighter_than_the_closed_form_at_first():
    bernstein, betting = EmpiricalBernstein(), HedgedBetting()
    scores = beta(np.random.default_rng(4), 300).tolist()
    bernstein.update(scores)
    betting.update(scores)
    assert betting.upper - betting.lower < 0.85 * (bernstein.upper - bernstein.lower)


@SEQUENCES
def test_sampling_bad_answers_more_often_misleads_without_weights_only(make):
    scores, weights = oversampled(np.random.default_rng(5), 12_000)
    weighted, plain = make(), make()
    weighted.update(scores.tolist(), weights.tolist())
    plain.update(scores.tolist())
    assert weighted.lower <= MEAN <= weighted.upper < 1.0
    assert plain.upper < MEAN - 0.02


@SEQUENCES
def test_the_bounds_do_not_depend_on_how_the_scores_are_batched_or_saved(make):
    rng = np.random.default_rng(6)
    scores, weights = beta(rng, 200), rng.uniform(0.25, 1.0, 200)
    whole, parts = make(), make()
    whole.update(scores.tolist(), weights.tolist())
    for x, w in zip(np.split(scores, 20), np.split(weights, 20), strict=True):
        parts.update(x.tolist(), w.tolist())
        state = parts.dumps()
        parts = make()
        parts.loads(state)
    assert (parts.n, parts.lower) == (200, pytest.approx(whole.lower, abs=1e-6))
    assert parts.upper == pytest.approx(whole.upper, abs=1e-6)


@SEQUENCES
def test_before_any_score_everything_is_possible_and_an_empty_batch_changes_nothing(make):
    sequence = make()
    sequence.update([])
    assert (sequence.n, sequence.lower, sequence.upper) == (0, 0.0, 1.0)


@SEQUENCES
def test_equal_scores_at_the_edge_give_a_bound_short_of_certainty(make):
    sequence = make()
    sequence.update([1.0] * 500)
    assert 0.95 < sequence.lower < 1.0 == sequence.upper


@SEQUENCES
@pytest.mark.parametrize("scores", [[1.1], [-0.1], [float("nan")]])
def test_a_score_that_cannot_be_is_refused_and_changes_nothing(make, scores):
    sequence = make()
    sequence.update([0.5] * 20)
    before = sequence.dumps()
    with pytest.raises(ValueError, match="scores lie"):
        sequence.update(scores)
    assert sequence.dumps() == before


@SEQUENCES
def test_a_state_of_another_level_is_refused(make):
    with pytest.raises(ValueError, match="another sequence"):
        make(alpha=0.05).loads(make(alpha=0.1).dumps())
    with pytest.raises(ValueError, match="alpha"):
        make(alpha=1.0)


def test_states_are_short():
    bernstein, betting = EmpiricalBernstein(), HedgedBetting()
    for sequence in (bernstein, betting):
        sequence.update(beta(np.random.default_rng(7), 1000).tolist())
    assert len(bernstein.dumps()) < 1000
    assert len(betting.dumps()) < 1000


def test_a_law_that_changes_never_makes_the_lower_bound_pass_the_upper_one():
    sequence = HedgedBetting(grid=50)
    for scores in ([1.0] * 500, [0.0] * 5000, [0.5] * 10):
        sequence.update(scores)
        assert 0.0 <= sequence.lower < sequence.upper <= 1.0


@pytest.mark.full
@pytest.mark.parametrize(("law", "gap"), [(beta, 0.008), (binary, 0.021)])
def test_the_baseline_bound_is_close_and_seldom_above_the_mean(law, gap):
    rng = np.random.default_rng(8)
    bounds = np.array([betting_lower(law(rng, 2000).tolist()) for _ in range(300)])
    assert (bounds > MEAN).mean() <= 0.06
    assert MEAN - np.median(bounds) <= gap  # what a baseline of 2,000 scores costs


def test_the_baseline_bound_with_weights_is_about_all_traffic():
    rng = np.random.default_rng(9)
    bounds, naive = [], []
    for _ in range(60):
        scores, weights = oversampled(rng, 4000)
        bounds.append(betting_lower(scores.tolist(), weights.tolist()))
        naive.append(betting_lower(scores.tolist()))
    assert np.mean(np.array(bounds) > MEAN) <= 0.1
    assert 0.0 < MEAN - np.median(bounds) < 0.02
    assert MEAN - np.median(naive) > 0.04


def test_the_baseline_bound_is_the_edge_of_what_the_capital_refutes():
    scores = binary(np.random.default_rng(10), 150)
    bound = betting_lower(scores.tolist(), alpha=0.05)
    squares, total, capital, best = 0.0, 0.0, 1.0, 0.0
    for t, x in enumerate(scores):
        lam = min(math.sqrt(2 * math.log(20) / (150 * (0.25 + squares) / (t + 1))), 0.75 / bound)
        capital *= 1 + lam * (x - bound)
        best = max(best, capital)
        total += x
        squares += (x - (0.5 + total) / (t + 2)) ** 2
    assert best == pytest.approx(20.0, rel=1e-6)


@pytest.mark.parametrize(("scores", "alpha"), [([], 0.05), ([0.5], 0.0), ([2.0], 0.05)])
def test_a_baseline_bound_of_nothing_is_refused(scores, alpha):
    with pytest.raises(ValueError, match=r"score|alpha"):
        betting_lower(scores, alpha=alpha)
