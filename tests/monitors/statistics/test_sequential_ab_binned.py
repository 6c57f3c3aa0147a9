"""Counted scores: never more evidence than the scores themselves give, hardly less, and as few wrong decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gaugeway.storage.sums import WeightedSums
from monitors.statistics.sequential_ab import STEPS, Comparison, CountedComparison, ScoreBins

LOOKS = 8


def scores_of(kind, rng, mean, n):
    if kind == "pass or fail":
        return (rng.random(n) < mean) * 1.0
    if kind == "claims":
        return rng.binomial(4, mean, n) / 4.0
    return rng.beta(9.0 * mean, 9.0 * (1.0 - mean), n)


def weights_of(kind, rng, n):
    return {"one": np.ones(n), "two": rng.choice([0.25, 1.0], n), "any": np.maximum(rng.random(n), 0.01)}[kind]


def counts_of(looks, scores, weights):
    groups = {}
    for look, score, weight in zip(looks, scores, weights, strict=True):
        groups.setdefault((look, min(int(score * STEPS), STEPS - 1), weight), []).append(score)
    return ScoreBins.of(
        [
            (look, k, len(some), math.fsum(some), math.fsum(x * x for x in some), weight)
            for (look, k, weight), some in groups.items()
        ]
    )


def exactly(a, b, *, looks=LOOKS, after_all=False, **options):
    """What is said of the scores themselves, looked at so many times; `after_all`, a decision does not end it."""
    test = Comparison(**options)
    for part in zip(*(np.array_split(one, looks) for one in (*a, *b)), strict=True):
        for arm, scores, weights in (("champion", *part[:2]), ("challenger", *part[2:])):
            test._arms[arm] += WeightedSums.of(scores, weights)
            for side, values in zip(test._sides, (scores, 1.0 - scores), strict=True):
                side.add(arm, values, weights)
        test._progress.see(*(side.log_evidence() for side in test._sides), test._threshold)
        if test.verdict().decision != "not enough data" and not after_all:
            break
    return test.verdict()


def counted(a, b, *, looks=LOOKS, **options):
    """What is said of their counts."""
    given = []
    for scores, weights in (a, b):
        parts = np.array_split(scores, looks)
        given.append(counts_of(np.repeat(np.arange(looks), [len(part) for part in parts]), scores, weights))
    return CountedComparison(**options).judge(looks, *given)


@pytest.mark.full
@pytest.mark.parametrize("weights", ["one", "two", "any"])
@pytest.mark.parametrize("kind", ["pass or fail", "claims", "any score"])
@pytest.mark.parametrize("margin", [0.0, 0.02, 0.2])
def test_there_is_never_more_evidence_than_the_scores_give(kind, weights, margin):
    rng = np.random.default_rng([len(kind), len(weights), int(100 * margin)])
    for _ in range(4):
        arms = [
            (scores_of(kind, rng, rng.uniform(0.1, 0.95), n), weights_of(weights, rng, n))
            for n in rng.integers(1, 400, 2)
        ]
        exact = exactly(*arms, after_all=True, margin=margin, alpha=0.05)
        found = counted(*arms, margin=margin, alpha=0.05)
        for name in ("for_roll_back", "for_ship"):
            assert getattr(found, name) <= getattr(exact, name) + 1e-9


@pytest.mark.parametrize("kind", ["pass or fail", "claims", "any score"])
@pytest.mark.parametrize(("new", "expected"), [(0.6, "roll back"), (0.95, "ship"), (0.85, "not enough data")])
def test_the_decision_is_that_of_the_scores_and_hardly_any_evidence_is_lost(kind, new, expected):
    rng = np.random.default_rng(1)
    n = 1000
    a = (scores_of(kind, rng, 0.85, n), np.ones(n))
    b = (scores_of(kind, rng, new, n), weights_of("two", rng, n))
    exact, found = exactly(a, b, margin=0.02, alpha=0.01), counted(a, b, margin=0.02, alpha=0.01)
    assert found.decision == exact.decision == expected
    assert found.for_roll_back == pytest.approx(exact.for_roll_back, abs=0.02)
    assert found.for_ship == pytest.approx(exact.for_ship, abs=0.02)
    if expected == "not enough data":
        assert (found.n, found.difference) == (exact.n, pytest.approx(exact.difference))
        assert found.more == pytest.approx(exact.more, rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("mean_a", "mean_b", "margin"), [(0.8, 0.8, 0.0), (0.5, 0.45, 0.05)])
def test_a_version_exactly_at_the_margin_is_hardly_ever_rolled_back_however_often_one_looks(mean_a, mean_b, margin):
    rng, n, runs = np.random.default_rng(2), 400, 100
    wrong = 0
    for _ in range(runs):
        arms = [(scores_of("pass or fail", rng, mean, n), np.ones(n)) for mean in (mean_a, mean_b)]
        wrong += counted(*arms, looks=20, margin=margin, alpha=0.2).for_roll_back >= 0.0
    # at the level .2: at most 20 are expected, and an e-process that is no supermartingale gives far more
    assert wrong <= 20


def test_a_decision_stands_whatever_comes_after_it():
    good = np.ones(5500), np.ones(5500)
    recovered = np.concatenate([np.zeros(500), np.ones(5000)]), np.ones(5500)
    assert counted(good, recovered, looks=11, margin=0.2, alpha=0.01).decision == "roll back"
    assert counted(good, recovered, looks=1, margin=0.2, alpha=0.01).decision == "ship"


def test_without_a_score_of_one_version_nothing_is_said():
    none = ScoreBins.of([])
    some = counts_of([0] * 50, np.ones(50), np.ones(50))
    verdict = CountedComparison().judge(1, some, none)
    assert (verdict.decision, verdict.difference, verdict.more) == ("not enough data", None, None)
