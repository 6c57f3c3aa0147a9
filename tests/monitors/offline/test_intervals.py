"""Intervals cover what they say, floors look at the bad end, comparisons know when they cannot tell."""

import doctest
import math

import numpy as np
import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from monitors.offline import comparison
from monitors.offline.results import Measure, Row, Run

LAWS = {
    "smooth": lambda rng, n: rng.beta(6.8, 1.2, n),
    "like a judge's": lambda rng, n: np.where((u := rng.random(n)) < 0.6, 1.0, np.where(u < 0.7, 0.0, rng.random(n))),
    "coin .9": lambda rng, n: (rng.random(n) < 0.9) * 1.0,
    "coin .5": lambda rng, n: (rng.random(n) < 0.5) * 1.0,
}
MEANS = {"smooth": 0.85, "like a judge's": 0.75, "coin .9": 0.9, "coin .5": 0.5}


def run(**scores):
    """A run whose metrics have these outcomes, by sample in order; numbers are scores."""
    measures = tuple(Measure(name=name, version="1", lower_is_better=name == "hallucination") for name in scores)
    count = max(len(values) for values in scores.values())
    rows = []
    for index in range(count):
        outcomes = {name: values[index] for name, values in scores.items() if index < len(values)}
        evaluations = {
            name: Evaluation(
                sample_id=f"s{index}",
                metric=name,
                version="1",
                outcome=Score(value) if isinstance(value, (int, float)) else value,
            )
            for name, value in outcomes.items()
        }
        rows.append(Row(sample=Sample(id=f"s{index}", started_at=0.0, response="x"), evaluations=evaluations))
    return Run(source="test", created_at=0.0, measures=measures, rows=tuple(rows))


@pytest.mark.parametrize("module", [comparison, __import__("monitors.analysis.captured", fromlist=["x"])])
def test_the_examples_in_the_docstrings_hold(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.full
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [10, 40, 200])
def test_the_interval_covers_the_mean_as_often_as_it_says(law, n):
    rng = np.random.default_rng(7)
    found = [comparison.bounded_mean(LAWS[law](rng, n)) for _ in range(1500)]
    covered = np.mean([low <= MEANS[law] <= high for low, high in found])
    too_high = np.mean([low > MEANS[law] for low, _ in found])
    assert covered > 0.925
    assert too_high < 0.045


def test_equal_values_do_not_give_an_interval_without_width():
    low, high = comparison.bounded_mean([1.0] * 20)
    assert 0.8 < low < 0.95
    assert high == 1.0


def test_one_value_says_nothing():
    assert comparison.bounded_mean([0.9]) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[], [1.1], [math.nan]])
def test_what_is_no_score_is_refused(values):
    with pytest.raises(ValueError, match=r"values? in \[0, 1\]|all of them"):
        comparison.bounded_mean(values)


def test_unscored_samples_are_in_no_mean():
    summary = run(faithfulness=[1.0, 0.5, Skipped("no_contexts"), Failed("timeout"), Failed("timeout")]).summary[0]
    assert summary.n == 2
    assert summary.mean == 0.75
    assert (summary.skipped, summary.failed) == ({"no_contexts": 1}, {"timeout": 2})
    assert summary.failed_share == 0.5


def test_a_metric_without_any_score_has_no_mean():
    summary = run(faithfulness=[Skipped("no_contexts")] * 3).summary[0]
    assert (summary.n, summary.mean, summary.low, summary.high) == (0, None, None, None)


def test_a_floor_is_held_against_the_lower_bound():
    many, few = run(faithfulness=[0.9, 1.0] * 50), run(faithfulness=[0.9, 1.0] * 2)
    assert comparison.check_floors(many, {"faithfulness": 0.9})[0].met
    missed = comparison.check_floors(few, {"faithfulness": 0.9})[0]
    assert not missed.met
    assert "4 scores are too few to be sure" in missed.reason


def test_where_zero_is_best_the_floor_is_a_ceiling_for_the_upper_bound():
    assert comparison.check_floors(run(hallucination=[0.0] * 100), {"hallucination": 0.1})[0].met
    missed = comparison.check_floors(run(hallucination=[0.2] * 100), {"hallucination": 0.1})[0]
    assert not missed.met
    assert missed.bound > 0.2
    assert "upper" in missed.reason


def test_no_score_is_no_floor_met():
    assert not comparison.check_floors(run(faithfulness=[Skipped("no_claims")] * 9), {"faithfulness": 0.1})[0].met


def test_a_floor_is_missed_when_too_many_samples_failed():
    blind = run(faithfulness=[1.0] * 80 + [Failed("timeout")] * 20)
    assert not comparison.check_floors(blind, {"faithfulness": 0.5})[0].met
    assert comparison.check_floors(blind, {"faithfulness": 0.5}, max_failed=0.2)[0].met


def test_a_floor_for_a_metric_that_was_not_computed_is_a_mistake():
    with pytest.raises(ValueError, match="'faith' was not computed"):
        comparison.check_floors(run(faithfulness=[1.0]), {"faith": 0.5})


@pytest.mark.parametrize("text", ["faithfulness", "=0.8", "a=b", "a=1.2", "a=nan"])
def test_floors_that_are_none(text):
    with pytest.raises(ValueError, match="expected metric=number"):
        comparison.parse_floors(text)


def test_a_clear_difference_has_a_verdict_in_the_metrics_own_direction():
    low, high = [0.5, 0.6, 0.4] * 20, [0.7, 0.8, 0.7] * 20
    assert comparison.compare(run(faithfulness=low), run(faithfulness=high))[0].verdict == "better"
    assert comparison.compare(run(faithfulness=high), run(faithfulness=low))[0].verdict == "worse"
    assert comparison.compare(run(hallucination=low), run(hallucination=high))[0].verdict == "worse"


def test_pairs_see_what_two_separate_means_do_not():
    rng = np.random.default_rng(3)
    old = rng.random(60) * 0.8
    new = old + 0.05
    found = comparison.compare(run(faithfulness=old.tolist()), run(faithfulness=new.tolist()))[0]
    assert found.verdict == "better"
    assert comparison.bounded_mean(new)[0] < comparison.bounded_mean(old)[1]


def test_too_few_pairs_say_how_many_more_it_takes_and_that_number_is_enough():
    rng = np.random.default_rng(5)
    old = (rng.random(30) < 0.7).astype(float)
    new = np.where(rng.random(30) < 0.15, 1.0, old)
    found = comparison.compare(run(faithfulness=old.tolist()), run(faithfulness=new.tolist()))[0]
    assert found.verdict == "cannot tell"
    assert found.more
    n, mean = 30 + found.more, found.difference
    told = 0
    for _ in range(300):
        changed = rng.random(n) < mean
        low, high = comparison.bounded_difference(changed.astype(float))
        told += not low <= 0.0 <= high
    assert told / 300 > 0.75


def test_only_samples_with_a_score_in_both_are_paired():
    found = comparison.compare(
        run(faithfulness=[1.0, Failed("timeout"), 0.5]), run(faithfulness=[0.0, 1.0, Skipped("no_claims"), 1.0])
    )[0]
    assert (found.pairs, found.difference) == (1, -1.0)
    assert comparison.unpaired(run(a=[1.0]), run(a=[1.0, 1.0])) == (0, 1)


def test_no_pair_is_no_difference():
    found = comparison.compare(run(faithfulness=[Failed("timeout")]), run(faithfulness=[1.0]))[0]
    assert (found.pairs, found.difference, found.verdict) == (0, None, "cannot tell")


def test_equal_runs_are_not_told_apart():
    found = comparison.compare(run(faithfulness=[0.9] * 50), run(faithfulness=[0.9] * 50))[0]
    assert (found.verdict, found.reason, found.more) == ("cannot tell", "no sample's score differs", None)


@pytest.mark.parametrize(("field", "word"), [("version", "metric"), ("judge", "judge")])
def test_another_metric_or_judge_is_no_comparison_of_answers(field, word):
    from dataclasses import replace

    old, new = run(faithfulness=[0.1] * 50), run(faithfulness=[0.9] * 50)
    new = replace(new, measures=(replace(new.measures[0], **{field: "other"}),))
    found = comparison.compare(old, new)[0]
    assert found.verdict == "cannot tell"
    assert f"the {word} changed" in found.reason
