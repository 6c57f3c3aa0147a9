"""Champion and challenger: wrong decisions under continuous looking, decisions, words, state, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.statistics import eprocess
from monitors.statistics.sequential_ab import (
    CELLS,
    Comparison,
    PairedComparison,
    cells,
    log_evidence,
    payoffs,
)


def binary(rng, mean, n):
    return (rng.random(n) < mean).astype(float)


def played(comparison, rng, champion, challenger, *, batches=400, size=10):
    for _ in range(batches):
        comparison.update("champion", binary(rng, champion, size))
        comparison.update("challenger", binary(rng, challenger, size))
        if comparison.verdict().decision != "not enough data":
            break
    return comparison.verdict()


def evidence_path(rng, mean_a, mean_b, margin, *, runs, n, every=10):
    """The evidence against "good enough" in many comparisons at once, looked at after every 10 scores of each."""
    ends, on_a, on_b = cells(margin)
    a = np.zeros((runs, *ends.shape, on_a.shape[-1]))
    b = np.zeros_like(a)
    one = np.ones(runs)
    for t in range(n):
        a += np.log1p(payoffs(binary(rng, mean_a, runs), one, ends + margin)[..., None] * on_a)
        b += np.log1p(payoffs(binary(rng, mean_b, runs), one, ends)[..., None] * -on_b)
        if t % every == every - 1:
            yield log_evidence(a, b)


@pytest.mark.full
@pytest.mark.parametrize(("mean_a", "mean_b", "margin"), [(0.8, 0.8, 0.0), (0.5, 0.45, 0.05)])
def test_a_version_exactly_at_the_margin_is_hardly_ever_rolled_back_however_often_one_looks(mean_a, mean_b, margin):
    rng = np.random.default_rng(1)
    best = np.full(50, -np.inf)
    for evidence in evidence_path(rng, mean_a, mean_b, margin, runs=50, n=400):
        best = np.maximum(best, evidence)
    # at the level .2: at most 10 are expected, and an e-process that is no supermartingale gives far more
    assert (best >= np.log(5.0)).sum() <= 10


def test_the_mean_evidence_of_a_true_hypothesis_does_not_grow():
    rng = np.random.default_rng(2)
    *_, last = evidence_path(rng, 0.5, 0.5, 0.0, runs=400, n=30)
    assert np.exp(last).mean() <= 1.0


@pytest.mark.parametrize("u", [0.0, 0.015, 0.31, 0.8, 1.0 - 1e-9])
@pytest.mark.parametrize("margin", [0.0, 0.02, -0.02, -0.0117, -1.0 / 60.0, -0.3])
def test_no_bet_can_lose_more_than_it_has_and_all_are_fair_in_every_cell(u, margin):
    ends, on_a, on_b = cells(margin)
    for x in (0.0, 1.0):
        assert (1.0 + (x - ends - margin)[..., None] * on_a >= -1e-12).all()
        assert (1.0 - (x - ends)[..., None] * on_b >= -1e-12).all()
    reachable = u + margin >= 0.0
    covered = ((ends[0] <= u) & (u <= ends[1])).any()
    assert covered or not reachable  # whatever mean the champion may have has its cell


def test_the_evidence_is_below_that_of_the_true_mean_whichever_it_is():
    rng = np.random.default_rng(3)
    x, y = binary(rng, 0.8, 200), binary(rng, 0.7, 200)
    ends, on_a, on_b = cells(0.0)
    a = np.log1p((x[:, None, None] - ends)[..., None] * on_a).sum(axis=0)
    b = np.log1p(-(y[:, None, None] - ends)[..., None] * on_b).sum(axis=0)
    total = float(log_evidence(a, b))
    assert total > 0.0
    for u in np.linspace(0.0, 1.0, 10 * CELLS + 1):
        cell = min(int(u * CELLS), CELLS - 1)
        at_a = np.log1p((x - u)[:, None] * on_a[cell]).sum(axis=0)
        at_b = np.log1p(-(y - u)[:, None] * on_b[cell]).sum(axis=0)
        assert total <= eprocess.log_mean((at_a[:, None] + at_b).ravel()) + 1e-9


def test_a_clearly_worse_version_is_rolled_back_and_a_clearly_better_one_ships():
    rng = np.random.default_rng(4)
    worse = played(Comparison(), rng, 0.85, 0.7)
    better = played(Comparison(), rng, 0.7, 0.85)
    assert (worse.decision, better.decision) == ("roll back", "ship")
    assert worse.difference < -0.05 < 0.05 < better.difference
    assert max(worse.n, better.n) < 1500
    assert (worse.more, better.more) == (None, None)
    assert worse.for_roll_back >= 0.0 > worse.for_ship


def test_an_equal_version_ships_within_a_margin_and_is_undecided_without():
    rng = np.random.default_rng(5)
    assert played(Comparison(margin=0.1), rng, 0.8, 0.8).decision == "ship"
    assert played(Comparison(margin=0.0), rng, 0.8, 0.8, batches=40).decision == "not enough data"


def test_any_split_of_the_traffic_will_do():
    rng = np.random.default_rng(6)
    comparison = Comparison(margin=0.0)
    for _ in range(120):
        comparison.update("champion", binary(rng, 0.85, 45))
        comparison.update("challenger", binary(rng, 0.65, 5))
    assert comparison.verdict().decision == "roll back"


def test_sampling_bad_answers_more_often_needs_the_weights():
    rng = np.random.default_rng(7)
    weighted, plain = Comparison(margin=0.0), Comparison(margin=0.0)
    for _ in range(150):
        a, b = binary(rng, 0.8, 40), binary(rng, 0.8, 40)
        rate = np.where(b < 0.5, 0.8, 0.2)  # the challenger's bad answers are looked for
        kept = rng.random(40) < rate
        for comparison, weights in ((weighted, 0.2 / rate[kept]), (plain, None)):
            comparison.update("champion", a[rng.random(40) < 0.5])
            comparison.update("challenger", b[kept], weights)
    assert weighted.verdict().decision == "not enough data"
    assert abs(weighted.verdict().difference) < 0.05
    assert plain.verdict().decision == "roll back"


def test_the_words_say_about_how_many_more_are_needed():
    ratios = []
    for seed in range(12):
        rng, comparison = np.random.default_rng(seed), Comparison(margin=0.0)
        for _ in range(4):
            comparison.update("champion", binary(rng, 0.85, 50))
            comparison.update("challenger", binary(rng, 0.74, 50))
        said = comparison.verdict()
        if said.more is not None:
            assert str(said) == f"not enough data: needs about {said.more:,} more"
            reached = played(comparison, rng, 0.85, 0.74)
            assert reached.decision == "roll back"
            ratios.append(said.more / (reached.n - said.n))
    assert len(ratios) >= 6
    assert 0.5 < np.median(ratios) < 2.0


def test_nobody_can_tell_how_many_more_when_the_difference_is_within_its_error():
    assert Comparison().verdict().more is None
    assert str(Comparison().verdict()) == "not enough data"
    comparison = Comparison(margin=0.0)
    comparison.update("champion", [0.0, 1.0] * 50)
    comparison.update("challenger", [1.0, 0.0] * 50)
    assert (comparison.verdict().difference, comparison.verdict().more) == (0.0, None)


def test_a_decision_stands_whatever_comes_after():
    rng = np.random.default_rng(9)
    comparison = Comparison()
    played(comparison, rng, 0.9, 0.5)
    for _ in range(30):
        comparison.update("challenger", np.ones(50))
    assert comparison.verdict().decision == "roll back"


def test_more_comparisons_need_more_evidence():
    rng = np.random.default_rng(10)
    one, many = Comparison(), Comparison(tests=50)
    for _ in range(20):
        a, b = binary(rng, 0.85, 10), binary(rng, 0.7, 10)
        for comparison in (one, many):
            comparison.update("champion", a)
            comparison.update("challenger", b)
    assert one.verdict().for_roll_back - many.verdict().for_roll_back == pytest.approx(np.log10(50))


def scores_needed(rng, *, paired):
    comparison = PairedComparison(margin=0.0) if paired else Comparison(margin=0.0)
    while comparison.verdict().decision == "not enough data":
        good = binary(rng, 0.85, 10)
        if paired:
            comparison.update(good, good * binary(rng, 0.9, 10))
        else:
            comparison.update("champion", good)
            comparison.update("challenger", binary(rng, 0.765, 10))
    assert comparison.verdict().decision == "roll back"
    return comparison.verdict().n


def test_pairs_take_far_fewer_scores():
    needed = {
        paired: np.median([scores_needed(np.random.default_rng(seed), paired=paired) for seed in range(5)])
        for paired in (False, True)
    }
    assert needed[True] < needed[False] / 3


def test_pairs_without_a_difference_are_hardly_ever_decided():
    rng = np.random.default_rng(12)
    decided = 0
    for _ in range(40):
        comparison = PairedComparison(margin=0.0, alpha=0.05)
        for _ in range(40):
            comparison.update(binary(rng, 0.8, 10), binary(rng, 0.8, 10))
        decided += comparison.verdict().decision != "not enough data"
    assert decided <= 6  # both hypotheses are true: 4 are expected at most


def test_paired_words_and_the_better_version():
    comparison = PairedComparison(margin=0.02)
    comparison.update([0.5] * 50, [0.55] * 50)
    said = comparison.verdict()
    assert said.difference == pytest.approx(0.05)
    assert said.more > 0
    for _ in range(200):
        comparison.update([0.5] * 50, [0.55] * 50)
    assert comparison.verdict().decision == "ship"


@pytest.mark.parametrize("make", [Comparison, PairedComparison])
@pytest.mark.parametrize("setting", [{"margin": -0.1}, {"margin": 1.0}, {"alpha": 0.0}, {"tests": 0}])
def test_settings_that_cannot_be_are_refused(make, setting):
    with pytest.raises(ValueError, match=r"margin|alpha"):
        make(**setting)


def test_scores_that_cannot_be_are_refused_and_change_nothing():
    comparison, paired = Comparison(), PairedComparison()
    before, before_paired = comparison.verdict(), paired.verdict()
    with pytest.raises(ValueError, match="scores lie"):
        comparison.update("champion", [1.2])
    with pytest.raises(ValueError, match="champion or challenger"):
        comparison.update("third", [0.2])
    with pytest.raises(ValueError, match="1 scores with 2 weights"):
        paired.update([0.5, 0.5], [0.5])
    assert (comparison.verdict(), paired.verdict()) == (before, before_paired)
