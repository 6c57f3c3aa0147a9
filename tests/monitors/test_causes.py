"""Where to look first: one test for each sentence of `likely_cause`."""

from __future__ import annotations

from monitors.causes import Side, likely_cause
from monitors.statistics.estimators import Estimate


def mean(value, n=200, sd=0.25):
    return Estimate(mean=value, sd=sd, n=n, n_eff=float(n))


def ratio(value, n=200):
    return mean(value, n, (value * (1 - value)) ** 0.5)


def test_more_failures_point_at_the_judge_even_when_retrieval_fell_too():
    before = Side(means={"context_relevancy": mean(0.8)}, failed=ratio(0.01))
    since = Side(means={"context_relevancy": mean(0.4)}, failed=ratio(0.3))
    assert likely_cause(before, since) == "judge"


def test_fewer_failures_do_not_point_at_the_judge():
    assert likely_cause(Side(failed=ratio(0.3)), Side(failed=ratio(0.01))) == "unknown"


def test_a_new_version_of_the_metric_or_its_judge_points_at_the_judge():
    before = Side(versions=frozenset({("1", "model-a")}))
    assert likely_cause(before, Side(versions=frozenset({("1", "model-b")}))) == "judge"
    assert likely_cause(before, Side(versions=frozenset({("2", "model-a")}))) == "judge"
    assert likely_cause(before, before) == "unknown"


def test_a_version_is_not_new_when_nothing_is_known_about_the_time_before():
    assert likely_cause(Side(), Side(versions=frozenset({("1", "model-a")}))) == "unknown"


def test_less_relevant_contexts_point_at_retrieval():
    before = Side(means={"context_relevancy": mean(0.8), "faithfulness": mean(0.9)})
    since = Side(means={"context_relevancy": mean(0.6), "faithfulness": mean(0.5)})
    assert likely_cause(before, since) == "retrieval"


def test_answers_without_contexts_point_at_retrieval():
    assert likely_cause(Side(found=ratio(1.0)), Side(found=ratio(0.7))) == "retrieval"


def test_worse_answers_from_contexts_as_good_as_before_point_at_generation():
    for name in ("faithfulness", "answer_relevancy", "lexical_groundedness"):
        before = Side(means={"context_relevancy": mean(0.8), name: mean(0.9)})
        since = Side(means={"context_relevancy": mean(0.78), name: mean(0.6)})
        assert likely_cause(before, since) == "generation"


def test_worse_answers_alone_say_nothing_about_the_cause():
    assert likely_cause(Side(means={"faithfulness": mean(0.9)}), Side(means={"faithfulness": mean(0.6)})) == "unknown"


def test_a_fall_of_relevance_within_the_noise_but_as_large_as_that_of_the_answers_stays_unknown():
    before = Side(means={"context_relevancy": mean(0.8), "faithfulness": mean(0.9, 2000)})
    since = Side(means={"context_relevancy": mean(0.7, 25), "faithfulness": mean(0.75, 2000)})
    assert likely_cause(before, since) == "unknown"


def test_a_handful_of_scores_is_not_compared():
    assert likely_cause(Side(found=ratio(1.0, 9)), Side(found=ratio(0.0, 9))) == "unknown"
    assert likely_cause(Side(found=ratio(1.0, 10)), Side(found=ratio(0.0, 10))) == "retrieval"
