"""Champion and challenger: wrong decisions under continuous looking, decisions, words, plans, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gaugeway.storage.sums import WeightedSums
from monitors.statistics.sequential_ab import (
    MIN_SCORES,
    SequentialTest,
    interval,
    log_evidence,
    paired_difference,
    scores_needed,
    threshold,
    times_needed,
)
from monitors.statistics.weighted_mean import Estimate, hajek, hajek_from_sums

LEVEL = math.log(100.0)


def binary(rng, mean, n):
    return (rng.random(n) < mean).astype(float)


def prefixes(scores, ends, weights=None):
    """The estimates from the first so many scores."""
    x, w = np.asarray(scores), np.ones(len(scores)) if weights is None else np.asarray(weights)
    return [hajek_from_sums(WeightedSums.of(x[:end], w[:end])) for end in ends]


def played(a, b, *, margin=0.02, every=20, tests=1):
    """The test after every 20 scores of each, up to a decision other than "ship"."""
    test = SequentialTest(margin, 0.01, tests)
    ends = range(every, min(len(a), len(b)) + 1, every)
    for champion, challenger in zip(prefixes(a, ends), prefixes(b, ends), strict=True):
        if test.look(champion, challenger) in ("roll back", "within the margin"):
            break
    return test.verdict(), champion.n


@pytest.mark.parametrize("margin", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("drift", [0.0, -0.02])
def test_the_evidence_of_what_is_not_so_is_no_more_than_1_on_average(margin, drift):
    """In information time: S is a Brownian motion with a drift of 0 or less, and E exp(evidence) <= 1 at any time."""
    rng = np.random.default_rng(1)
    for information in (1.0 / 0.05**2, 1.0 / 0.015**2):
        estimates = drift + rng.normal(size=20_000) / math.sqrt(information)
        values = [math.exp(log_evidence(float(x), 1.0 / information, margin)) for x in estimates]
        assert np.mean(values) < 1.15 if drift == 0.0 else np.mean(values) < 0.9


@pytest.mark.parametrize(("mean", "margin"), [(0.85, 0.02), (0.5, 0.05), (0.99, 0.02)])
def test_a_version_exactly_at_the_margin_is_hardly_ever_decided_however_often_one_looks(mean, margin):
    rng, decided = np.random.default_rng(2), []
    for _ in range(150):
        found, _ = played(binary(rng, mean, 1_500), binary(rng, mean - margin, 1_500), margin=margin)
        decided.append(found.decision)
    assert decided.count("roll back") <= 5
    assert len(decided) - decided.count("not enough data") <= 9


def test_a_clearly_worse_version_is_rolled_back_and_a_clearly_better_one_ships():
    rng = np.random.default_rng(4)
    worse, n = played(binary(rng, 0.85, 2_000), binary(rng, 0.7, 2_000))
    better, m = played(binary(rng, 0.7, 2_000), binary(rng, 0.85, 2_000))
    assert (worse.decision, better.decision, worse.more, better.more) == ("roll back", "ship", None, None)
    assert (max(n, 100), m) == (n, 2_000)  # after "ship" it looks on: it might be within the margin
    assert worse.for_roll_back >= 0.0 > worse.for_ship


def test_an_equal_version_is_within_the_margin_in_the_end():
    rng, test = np.random.default_rng(5), SequentialTest(margin=0.05)
    a, b, ends = binary(rng, 0.9, 6_000), binary(rng, 0.9, 6_000), range(100, 6_001, 100)
    said = [test.look(x, y) for x, y in zip(prefixes(a, ends), prefixes(b, ends), strict=True)]
    assert (said[0], said[-1]) == ("not enough data", "within the margin")


def test_a_much_better_version_ships_and_is_never_within_the_margin():
    estimates = [Estimate(mean=mean, sd=0.1, n=5_000, n_eff=5_000.0) for mean in (0.5, 0.9)]
    test = SequentialTest(margin=0.05)
    assert [test.look(*estimates) for _ in range(2)] == ["ship", "ship"]


def test_without_a_margin_equal_versions_are_undecided():
    rng = np.random.default_rng(6)
    assert played(binary(rng, 0.8, 800), binary(rng, 0.8, 800), margin=0.0)[0].decision == "not enough data"


def test_sampling_bad_answers_more_often_needs_the_weights():
    rng = np.random.default_rng(7)
    a, b = binary(rng, 0.8, 3_000), binary(rng, 0.8, 6_000)
    rates = np.where(b < 0.5, 0.8, 0.2)  # the challenger's bad answers are looked for
    kept = rng.random(b.size) < rates
    champion = hajek(a.tolist(), [1.0] * a.size)
    weighted, plain = hajek(b[kept], rates[kept]), hajek(b[kept], np.ones(int(kept.sum())))
    assert SequentialTest().look(champion, weighted) == "not enough data"
    assert SequentialTest().look(champion, plain) == "roll back"


def test_dependent_scores_are_worth_less():
    champion = Estimate(mean=0.85, sd=0.3, n=1_500, n_eff=1_500.0)
    alone = Estimate(mean=0.77, sd=0.3, n=1_500, n_eff=1_500.0)
    alike = Estimate(mean=0.77, sd=0.3, n=1_500, n_eff=150.0, design_effect=10.0)
    assert SequentialTest().look(champion, alone) == "roll back"
    assert SequentialTest().look(champion, alike) == "not enough data"


def test_it_says_about_how_many_more_are_needed():
    test = SequentialTest(margin=0.02)
    a, b = (Estimate(mean=mean, sd=0.3, n=400, n_eff=400.0) for mean in (0.85, 0.78))
    test.look(a, b)
    more = test.verdict().more
    assert more is not None
    at_last = [Estimate(mean=e.mean, sd=0.3, n=(n := 400 + more // 2), n_eff=float(n)) for e in (a, b)]
    too_few = [Estimate(mean=e.mean, sd=0.3, n=(n := 400 + more // 3), n_eff=float(n)) for e in (a, b)]
    assert SequentialTest(margin=0.02).look(*at_last) == "roll back"
    assert SequentialTest(margin=0.02).look(*too_few) == "not enough data"


def test_within_its_error_no_difference_says_how_many_more():
    assert SequentialTest().verdict().more is None
    test, same = SequentialTest(margin=0.0), Estimate(mean=0.5, sd=0.5, n=100, n_eff=100.0)
    assert (test.look(same, same), test.verdict().more) == ("not enough data", None)


def test_a_decision_stands_whatever_comes_after():
    good, bad = (Estimate(mean=mean, sd=0.2, n=500, n_eff=500.0) for mean in (0.9, 0.5))
    test = SequentialTest()
    assert [test.look(good, bad), test.look(bad, good)] == ["roll back", "roll back"]


def test_more_comparisons_need_more_evidence():
    a, b = (Estimate(mean=mean, sd=0.35, n=200, n_eff=200.0) for mean in (0.85, 0.7))
    alone, many = SequentialTest(), SequentialTest(tests=50)
    alone.look(a, b)
    many.look(a, b)
    difference = alone.verdict().for_roll_back - many.verdict().for_roll_back
    assert difference == pytest.approx(np.log10(50))


def test_pairs_take_far_fewer_scores():
    rng = np.random.default_rng(11)
    good = binary(rng, 0.85, 400)
    worse = good * binary(rng, 0.9, 400)
    halves = (worse - good + 1.0) / 2.0
    assert SequentialTest().look_at_pairs(hajek(halves, np.ones(400))) == "roll back"
    assert SequentialTest().look(*(hajek(x, np.ones(400)) for x in (good, worse))) == "not enough data"


def test_below_the_least_number_of_scores_nothing_is_decided():
    sure = [Estimate(mean=mean, sd=0.0, n=100, n_eff=MIN_SCORES - 1.0) for mean in (1.0, 0.0)]
    assert SequentialTest().look(*sure) == "not enough data"
    enough = [Estimate(mean=mean, sd=0.0, n=100, n_eff=50.0) for mean in (1.0, 0.0)]
    assert SequentialTest().look(*enough) == "roll back"


@pytest.mark.parametrize(("loss", "margin"), [(0.1, 0.02), (0.0, 0.1)])
def test_with_as_many_scores_as_planned_most_runs_are_decided(loss, margin):
    rng, distance = np.random.default_rng(12), abs(margin - loss)
    n = scores_needed(0.5, margin=margin, distance=distance)
    decided = [played(binary(rng, 0.5, n), binary(rng, 0.5 - loss, n), margin=margin)[0].decision for _ in range(80)]
    right = "roll back" if loss > margin else "ship"
    assert 0.7 <= (decided.count(right) + decided.count("within the margin")) / 80 <= 0.97


def test_a_plan_takes_more_scores_for_less_and_for_dependent_ones():
    plan = scores_needed(0.25, margin=0.02)
    assert scores_needed(0.25, margin=0.02, distance=0.05) < plan < scores_needed(0.25, margin=0.01)
    assert scores_needed(0.25, margin=0.02, design_effect=3.0) == pytest.approx(3.0 * plan, rel=0.01)
    assert scores_needed(0.25, margin=0.02, tests=20) > plan
    with pytest.raises(ValueError, match="distance above 0"):
        scores_needed(0.25, margin=0.02, distance=0.0)


@pytest.mark.parametrize("setting", [{"margin": -0.1}, {"margin": 1.0}, {"alpha": 0.0}, {"tests": 0}])
def test_settings_that_cannot_be_are_refused(setting):
    with pytest.raises(ValueError, match=r"margin|alpha"):
        SequentialTest(**setting)


def test_the_smallest_error_probability_has_an_interval():
    few = Estimate(mean=0.9, sd=0.3, n=40, n_eff=40.0)
    low, high = SequentialTest(alpha=1e-320).interval(few, few)
    assert -1.0 <= low < 0.0 < high <= 1.0


def test_any_distance_has_an_evidence():
    for z in np.linspace(-60.0, 60.0, 2_001):
        assert math.isfinite(log_evidence(0.01 * float(z), 0.01**2, 0.02))


@pytest.mark.parametrize("alpha", [0.025, 0.0025])
@pytest.mark.parametrize("margin", [0.02, 0.1])
def test_pairs_in_which_only_b_ever_fails_hardly_ever_ship_at_the_margin(alpha, margin):
    """The probability that m pairs have no failure is exp(-margin m); with the pseudo-pairs that is below alpha."""
    same, decision = 10, "not enough data"
    while decision == "not enough data":
        same += 1
        decision = SequentialTest(margin, alpha).look_at_pairs(hajek([0.5] * same, [1.0] * same))
    assert math.exp(-margin * same) < alpha
    assert math.exp(-margin * same) > alpha**2  # not much later than any such test must


def test_pairs_of_long_conversations_count_as_their_number():
    halves = hajek([0.5] * 600, [1.0] * 600, [i // 20 for i in range(600)])
    difference, variance, conversations = paired_difference(halves, threshold(0.025))
    assert (difference, conversations) == (0.0, pytest.approx(30.0))
    assert variance == pytest.approx(2.0 * threshold(0.025) / 3.0 / (30.0 + 2.0 * threshold(0.025) / 3.0) ** 2)


@pytest.mark.parametrize("mean", [0.4, 0.47, 0.49, 0.5, 0.51, 0.55])
def test_the_interval_of_pairs_decides_as_the_test(mean):
    halves, needed = Estimate(mean=mean, sd=0.1, n=900, n_eff=900.0), threshold(0.025)
    test = SequentialTest(0.02, 0.025)
    decision = test.look_at_pairs(halves)
    difference, variance, _ = paired_difference(halves, needed)
    low, high = interval(difference, variance, 0.02, needed)
    assert (decision == "roll back") == (high < -0.02)
    assert (decision in ("ship", "within the margin")) == (low > -0.02)
    assert (decision == "within the margin") == (low > -0.02 and high < 0.02)
    assert test.verdict().better == (low > 0.0)


def test_what_was_seen_counts_among_what_is_to_come():
    alone, after_a_bad_start = (times_needed(0.02, 0.01**2, 0.02, 3.7, seen=seen) for seen in (0.02, 0.0))
    assert times_needed(0.02, 0.01**2, 0.02, 3.7) == alone < after_a_bad_start
    assert log_evidence(0.02 - 0.02 / after_a_bad_start, 0.01**2 / after_a_bad_start, 0.02) == pytest.approx(
        3.7, abs=0.01
    )


@pytest.mark.parametrize("true", [-0.06, -0.02, 0.0, 0.03])
def test_the_interval_lies_on_the_side_of_the_margin_that_the_verdict_says(true):
    """Whatever comes after a verdict, and as long as there is none, what is drawn agrees with it."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        test, margin = SequentialTest(margin=0.02), 0.02
        drift = rng.normal(0.0, 0.03, 2)
        a = rng.random(6000) < 0.8
        b = rng.random(6000) < 0.8 + true + np.repeat(drift, 3000)
        for end in (100, 400, 1500, 3000, 4000, 6000):
            both = [hajek(side[:end].astype(float), np.ones(end)) for side in (a, b)]
            decision, (low, high) = test.look(*both), test.interval(*both)
            assert low <= high
            shown = {
                "roll back": high < -margin,
                "ship": low > -margin,
                "within the margin": -margin < low and high < margin,
                "not enough data": low <= -margin <= high,
            }
            assert shown[decision], (decision, low, high)


def test_of_few_scores_there_is_no_interval():
    few = Estimate(mean=0.5, sd=0.5, n=9, n_eff=9.0)
    assert SequentialTest().interval(few, few) is None
