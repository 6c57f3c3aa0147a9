"""Sources that lower scores are named, bystanders are not, and false names are as rare as promised."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.statistics.attribution import Retrievals, contrast, matched_means


def retrievals(got, scores, *, strata=None, rates=None, questions=None, size=None):
    """Exchanges from the sources that each got."""
    pairs = [(row, source) for row, some in enumerate(got) for source in sorted(some)]
    n = len(got)
    return Retrievals(
        scores=np.asarray(scores, dtype=float),
        rates=np.ones(n) if rates is None else np.asarray(rates, dtype=float),
        strata=np.zeros(n, dtype=np.intp) if strata is None else np.asarray(strata, dtype=np.intp),
        rows=np.array([row for row, _ in pairs], dtype=np.intp),
        columns=np.array([source for _, source in pairs], dtype=np.intp),
        size=size or 1 + max(source for _, source in pairs),
        questions=None if questions is None else np.asarray(questions, dtype=np.intp),
    )


def traffic(rng, *, n=800, size=100, bad=(), beside=None, drop=0.5):
    """Three of `size` sources each; a bad one in 5 % of the exchanges lowers the score."""
    got, scores = [], []
    for _ in range(n):
        some = set(rng.choice(size, 3, replace=False)) - {*bad}
        some |= {one for one in bad if rng.random() < 0.05}
        low = not some.isdisjoint(bad)
        if beside is not None and (low or rng.random() < 0.3):
            some.add(beside)
        got.append(some)
        scores.append(np.clip(rng.normal(0.9 - drop * low, 0.15), 0.0, 1.0))
    return got, scores


def names(some):
    return set(contrast(some).log_e_alone)


def test_two_bad_sources_are_named_and_the_popular_one_beside_them_is_not():
    got, scores = traffic(np.random.default_rng(1), bad=(98, 99), beside=0)
    some = retrievals(got, scores)
    assert names(some) == {98, 99}
    assert contrast(some).log_e[0] > 0.0  # its exchanges do score lower


def test_of_two_sources_that_always_come_together_one_is_named():
    got, scores = traffic(np.random.default_rng(2), bad=(99,))
    both = [some - {98} | ({98} if 99 in some else set()) for some in got]
    assert len(names(retrievals(both, scores)) & {98, 99}) == 1


def test_a_source_of_hard_questions_is_not_named_where_their_topic_is_known():
    rng = np.random.default_rng(3)
    topic = rng.integers(2, size=1000)
    got = [{int(rng.integers(5)) + 5 * int(hard)} for hard in topic]
    scores = np.clip(rng.normal(np.where(topic == 1, 0.4, 0.9), 0.1), 0.0, 1.0)
    assert names(retrievals(got, scores, strata=topic)) == set()
    assert names(retrievals(got, scores)) == {5, 6, 7, 8, 9}


def test_a_hard_question_that_is_asked_again_and_again_does_not_blame_its_sources():
    rng = np.random.default_rng(4)
    asked = rng.integers(200, size=1500)
    hard, sources = rng.random(200) < 0.15, rng.integers(60, size=(200, 3))
    scores = np.clip(np.where(hard[asked], rng.normal(0.4, 0.1, 1500), rng.normal(0.9, 0.1, 1500)), 0.0, 1.0)
    got = [{int(one) for one in sources[question]} for question in asked]
    assert names(retrievals(got, scores, questions=asked)) == set()
    assert names(retrievals(got, scores)) != set()


@pytest.mark.full
@pytest.mark.parametrize("scores", ["smooth", "binary"])
def test_the_mean_of_e_values_is_at_most_one_where_sources_do_nothing(scores):
    """Over 400 draws of 20 sources; the standard error of the mean is about .03."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(400):
        n = 120
        got = [set(rng.choice(20, 2, replace=False)) for _ in range(n)]
        x = rng.random(n) if scores == "smooth" else (rng.random(n) < 0.8).astype(float)
        rates, strata = rng.choice([0.2, 1.0], n), rng.integers(3, size=n)
        found.append(np.exp(contrast(retrievals(got, x, strata=strata, rates=rates, size=20)).log_e))
    assert np.mean(found) <= 1.03


def test_nothing_is_named_without_exchanges_or_a_difference():
    assert not contrast(retrievals([{0}, {1}], [0.0, 0.0])).log_e_alone
    assert not contrast(retrievals([{0}], [0.0])).log_e_alone
    with pytest.raises(ValueError, match="alpha"):
        contrast(retrievals([{0}, {1}], [0.0, 1.0]), alpha=0.0)


def test_means_are_matched_by_stratum_and_weighted_by_rate():
    """In stratum 0: with .2 and .6 (rates 1 and 1/2), without 1.0; in stratum 1 nothing is without the source."""
    some = retrievals(
        [{0}, {0}, {1}, {0}], [0.2, 0.6, 1.0, 0.9], strata=[0, 0, 0, 1], rates=[1.0, 0.5, 1.0, 1.0], size=3
    )
    found = matched_means(some)
    assert found.n.tolist() == [2, 1, 0]
    assert found.with_source[0] == pytest.approx((0.2 + 2 * 0.6) / 3)
    assert found.without[:2] == pytest.approx([1.0, (0.2 + 2 * 0.6) / 3])
    assert np.isnan(found.se[2])


def test_the_interval_of_the_difference_covers_it():
    rng, missed = np.random.default_rng(6), 0
    for _ in range(300):
        strata = rng.integers(6, size=500)
        has = rng.random(500) < 0.05 + 0.05 * (strata % 3)
        scores = np.clip(rng.normal(0.85 - 0.08 * strata - 0.2 * has, 0.05), 0.0, 1.0)
        found = matched_means(
            retrievals([{0} if one else {1} for one in has], scores, strata=strata, rates=rng.choice([0.25, 1.0], 500))
        )
        low, high = found.interval_of(0)
        missed += not low <= -0.2 <= high
    assert missed <= 25  # 5 % of 300 is 15
