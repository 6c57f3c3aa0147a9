"""Where to look first: one test for each rule of `explain`."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from monitors.alerting.causes import JudgeEvidence, Observation, explain
from monitors.alerting.causes.observations import Fall
from monitors.alerting.causes.traffic import Shift, Slice
from monitors.statistics.decomposition import Contrast, Decomposition

BEFORE, SINCE = 1000, 400


def scores(metric, mean, n, *, start=0.0, seed=0, judge="model-a", name="e", strata=None, rate=1.0):
    """`n` binary-ish scores, one a minute, of exchanges that other metrics share by `name` and number."""
    rng = np.random.default_rng([seed, len(metric), n])
    values = np.where(rng.random(n) < mean, rng.uniform(0.9, 1.0, n), rng.uniform(0.0, 0.1, n))
    return [
        Observation(
            sample_id=f"{name}{start:.0f}-{index}",
            metric=metric,
            started_at=start + 60.0 * index,
            rate=rate,
            outcome="score",
            value=value,
            reason="",
            version="1",
            judge=judge,
            strata=strata or {},
        )
        for index, value in enumerate(values.tolist())
    ]


def before(**means):
    return [one for metric, mean in means.items() for one in scores(metric, mean, BEFORE)]


def since(n=SINCE, **means):
    return [one for metric, mean in means.items() for one in scores(metric, mean, n, start=60.0 * BEFORE, seed=1)]


def part(key, **values):
    """Scores of faithfulness by stratum, before and since: name=(n before, mean before, n since, mean since)."""
    sides = [], []
    for seed, (value, (n_before, mean_before, n_since, mean_since)) in enumerate(values.items()):
        about = {"name": value, "strata": {key: value}, "seed": seed + 2}
        sides[0].extend(scores("faithfulness", mean_before, n_before, **about))
        sides[1].extend(scores("faithfulness", mean_since, n_since, start=60.0 * BEFORE, **about))
    return sides


def unscored(metric, reason, outcome, n, *, start=0.0, name="x"):
    return [
        replace(one, outcome=outcome, value=None, reason=reason)
        for one in scores(metric, 0.5, n, start=start, name=name)
    ]


OLD = {"faithfulness": 0.9, "context_relevancy": 0.8}


def test_anchors_that_moved_come_before_everything_else():
    found = explain(
        "faithfulness",
        before(**OLD),
        since(faithfulness=0.5, context_relevancy=0.3),
        judge=JudgeEvidence(drifted=True, detail="12 of 40 anchors"),
    )
    assert (found.cause, found.detail) == ("judge", "12 of 40 anchors")


def test_more_failures_are_the_judge_even_when_retrieval_fell_too():
    broken = unscored("faithfulness", "timeout", "failed", 80, start=60.0 * BEFORE)
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.5, context_relevancy=0.3) + broken)
    assert found.cause == "judge"
    assert "17 % of the evaluations failed (timeout), 0 % before (n 480)" in found.detail


def test_a_few_more_failures_are_nothing():
    broken = unscored("faithfulness", "timeout", "failed", 10, start=60.0 * BEFORE)
    assert explain("faithfulness", before(**OLD), since(faithfulness=0.5, context_relevancy=0.3) + broken).cause == (
        "retrieval"
    )


@pytest.mark.parametrize("change", [{"judge": "model-b"}, {"version": "2"}])
def test_scores_by_another_judge_or_version_are_not_compared_with_the_old_ones(change):
    new = [replace(one, **change) for one in since(faithfulness=0.5, context_relevancy=0.3)]
    found = explain("faithfulness", before(**OLD), new)
    assert found.cause == "judge"
    assert next(iter(change.values())) in found.detail


def test_a_new_judge_for_some_scores_is_cleared_when_the_others_fell_as_much():
    new = since(faithfulness=0.5, context_relevancy=0.3)
    half = [replace(one, judge="model-b") if index % 2 else one for index, one in enumerate(new)]
    assert explain("faithfulness", before(**OLD), half).cause == "retrieval"


def test_a_new_judge_is_no_excuse_for_what_fell_by_the_old_one_too():
    kept, new = since(1000, faithfulness=0.7, context_relevancy=0.3), since(1000, faithfulness=0.1)
    other = [replace(one, judge="model-b", sample_id=f"b{one.sample_id}") for one in new]
    assert explain("faithfulness", before(**OLD), kept + other).cause == "retrieval"


def test_less_relevant_contexts_are_the_retrieval():
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.6, context_relevancy=0.4))
    assert found.cause == "retrieval"
    assert "context_relevancy fell with faithfulness" in found.detail
    assert f"(n {SINCE})" in found.detail


def test_what_fell_first_is_said_with_the_time_between():
    late = scores("faithfulness", 0.9, 60, start=60.0 * BEFORE, seed=3, name="late")
    later = scores("faithfulness", 0.3, 340, start=60.0 * (BEFORE + 60), seed=4, name="later")
    found = explain("faithfulness", before(**OLD), since(context_relevancy=0.2) + late + later)
    assert found.cause == "retrieval"
    assert "context_relevancy fell first" in found.detail
    assert found.detail.split("faithfulness followed ")[1].startswith(("1.0 h", "58 min", "59 min", "60 min", "61 min"))


def test_contexts_that_fell_long_after_the_answers_did_not_cause_it():
    good = scores("context_relevancy", 0.8, 200, start=60.0 * BEFORE, seed=3)
    bad = scores("context_relevancy", 0.2, 200, start=60.0 * (BEFORE + 200), seed=4)
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.3) + good + bad)
    assert found.cause == "generation"
    assert "context_relevancy only later" in found.detail


def test_exchanges_without_contexts_are_the_retrieval():
    nothing = unscored("faithfulness", "no_contexts", "skipped", 150, start=60.0 * BEFORE)
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.7, context_relevancy=0.8) + nothing)
    assert found.cause == "retrieval"
    assert "Contexts came with" in found.detail


def test_worse_answers_from_contexts_as_good_as_before_are_the_generation():
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.6, context_relevancy=0.8))
    assert found.cause == "generation"
    assert "context_relevancy did not" in found.detail


def test_a_slight_fall_of_relevance_beside_a_large_one_of_the_answers_is_still_the_generation():
    old = [one for metric in OLD for one in scores(metric, OLD[metric], 5000)]
    new = [
        one
        for metric, mean in (("faithfulness", 0.5), ("context_relevancy", 0.75))
        for one in scores(metric, mean, 5000, start=300_000.0, seed=1)
    ]
    found = explain("faithfulness", old, new)
    assert found.cause == "generation"
    assert "context_relevancy fell too, by less than half as much, 0.77 to 0.71 (n 5000)" in found.detail
    assert "did not" not in found.detail


def test_too_few_scores_of_the_contexts_leave_it_open():
    few = scores("context_relevancy", 0.8, 9, start=60.0 * BEFORE)
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.6) + few)
    assert found.cause == "unknown"
    assert "context_relevancy has too few scores (n 9)" in found.detail


def test_relevance_that_may_have_fallen_as_much_leaves_it_open():
    few = scores("context_relevancy", 0.75, 25, start=60.0 * BEFORE, seed=5)
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.7) + few)
    assert found.cause == "unknown"
    assert "leaves room for a fall of" in found.detail


def test_without_a_metric_of_the_retrieval_it_stays_open():
    lexical = [replace(one, judge=None) for one in before(lexical_groundedness=0.8)]
    found = explain(
        "lexical_groundedness", lexical, [replace(one, judge=None) for one in since(lexical_groundedness=0.5)]
    )
    assert found.cause == "unknown"
    assert "cannot be told apart" in found.detail


def test_use_of_the_contexts_is_no_metric_of_the_retrieval():
    """It asks the judge what the response used, and falls with the response."""
    old, new = before(faithfulness=0.9, context_utilization=0.8), since(faithfulness=0.5, context_utilization=0.3)
    assert explain("faithfulness", old, new).cause == "unknown"


def test_a_judge_that_may_have_become_stricter_is_not_blamed_on_the_retrieval_without_anchors():
    calm = [replace(one, judge=None) for one in before(lexical_groundedness=0.7)]
    still = [replace(one, judge=None) for one in since(lexical_groundedness=0.7)]
    old, new = before(**OLD) + calm, since(faithfulness=0.6, context_relevancy=0.4) + still
    found = explain("faithfulness", old, new)
    assert found.cause == "unknown"
    assert "anchors would tell" in found.detail
    assert explain("faithfulness", old, new, judge=JudgeEvidence(drifted=False)).cause == "retrieval"


def test_no_drop_is_not_explained():
    found = explain("faithfulness", before(**OLD), since(faithfulness=0.9, context_relevancy=0.3))
    assert found.cause == "unknown"
    assert "did not clearly change" in found.detail


def test_nothing_at_all_is_no_error():
    assert explain("faithfulness", [], []).cause == "unknown"
    assert "Too few scores" in explain("faithfulness", before(**OLD), since(9, faithfulness=0.1)).detail
    nothing = explain("faithfulness", [], since(120, faithfulness=0.1)).detail
    assert nothing == "No scores of faithfulness before the onset to compare with (120 since)."


def squeezed(**means):
    """400 scores of each metric at rate 1 after 8 at rate .002, which alone would weigh 4,000."""
    return [
        one
        for metric, mean in means.items()
        for one in (
            *scores(metric, mean, 8, start=-600.0, rate=0.002, seed=3, name="few"),
            *scores(metric, mean, 400, seed=4),
        )
    ]


def test_a_few_scores_of_a_low_rate_do_not_hide_the_cause():
    good = {"faithfulness": 0.9, "answer_relevancy": 0.9, "context_relevancy": 0.8}
    bad = since(faithfulness=0.5, answer_relevancy=0.6, context_relevancy=0.3)
    assert explain("faithfulness", squeezed(**good), bad, judge=JudgeEvidence(drifted=False)).cause == "retrieval"


def test_too_few_effective_scores_are_named_as_such():
    old = [*scores("faithfulness", 0.9, 8, rate=0.001), *scores("faithfulness", 0.9, 10, seed=5, name="many")]
    detail = explain("faithfulness", old, since(5, faithfulness=0.1)).detail
    assert "18, as informative as 8 equally weighted ones, before, 5 since" in detail


def test_a_metric_whose_best_is_0_is_told_on_its_own_scale():
    found = explain(
        "hallucination",
        before(hallucination=0.9, context_relevancy=0.8),
        since(hallucination=0.5, context_relevancy=0.8),
        lower_is_better=lambda name: name == "hallucination",
    )
    assert found.cause == "generation"
    assert found.detail.startswith("hallucination rose, 0.")
    assert float(found.detail.split()[2]) < 0.2


def test_more_of_what_always_scored_low_is_another_mix():
    old, new = part("tag:team", hard=(200, 0.4, 400, 0.4), easy=(800, 0.95, 400, 0.95))
    found = explain("faithfulness", old, new)
    assert (found.cause, found.slice) == ("traffic_mix", "tag:team=hard")
    assert "went from 20 % to 50 %" in found.detail


def test_somebody_new_whose_questions_are_hard_is_another_mix():
    old, new = part("tag:tenant", a=(500, 0.9, 200, 0.9), b=(500, 0.9, 200, 0.9), c=(0, 0.5, 200, 0.4))
    found = explain("faithfulness", old, new)
    assert (found.cause, found.slice) == ("traffic_mix", "tag:tenant=c")


@pytest.mark.parametrize("few", [(8, 7, 8), (9,)])
def test_a_fall_of_values_with_few_scores_yet_is_not_another_mix(few):
    """They were there before, in the same shares: without their old means the fall would look like a new mix."""
    names = [f"t{index}" for index in range(len(few) + 3)]
    about = {name: (1000 // len(names), 0.98, n, 0.02) for name, n in zip(names, few, strict=False)}
    about |= {name: (1000 // len(names), 0.98, 11, 0.98) for name in names[len(few) :]}
    assert explain("faithfulness", *part("tag:tenant", **about)).cause == "unknown"


def test_a_new_version_that_is_worse_is_no_mix_and_is_named():
    old, new = part("model", old=(1000, 0.9, 300, 0.9), new=(0, 0.9, 200, 0.4))
    found = explain("faithfulness", old, new)
    assert (found.cause, found.slice) == ("generation", "model=new")
    assert "model=new appeared with the onset (40 % of the exchanges since)" in found.detail


def test_a_new_version_for_everybody_is_named_and_proves_nothing():
    old, new = part("prompt", p1=(1000, 0.9, 0, 0.9), p2=(0, 0.9, 400, 0.5))
    found = explain("faithfulness", old, new)
    assert (found.cause, found.slice) == ("unknown", "prompt=p2")


def test_a_version_that_was_there_all_along_did_not_appear_with_the_onset():
    old, new = part("prompt", p1=(950, 0.9, 0, 0.9), p2=(50, 0.9, 400, 0.5))
    assert "appeared" not in explain("faithfulness", old, new).detail


def test_other_shares_do_not_excuse_a_fall_in_every_stratum():
    old, new = part("tag:team", a=(500, 0.9, 100, 0.5), b=(500, 0.9, 300, 0.5))
    assert explain("faithfulness", old, new).cause == "unknown"


def test_a_mix_that_explains_a_part_keeps_others_from_being_blamed():
    old, new = part("tag:team", hard=(200, 0.5, 500, 0.3), easy=(800, 0.95, 300, 0.8))
    old += scores("context_relevancy", 0.8, 1000)
    new += scores("context_relevancy", 0.5, 800, start=60.0 * BEFORE)
    found = explain("faithfulness", old, new)
    assert found.cause == "unknown"
    assert "with the shares of tag:team as before" in found.detail


def test_a_drop_confined_to_one_slice_names_it_and_looks_for_the_cause_inside():
    old, new = part("tag:tenant", a=(700, 0.9, 300, 0.9), b=(300, 0.9, 150, 0.4))
    for side in (old, new):
        side += [
            replace(
                one, metric="context_relevancy", value=0.1 if side is new and one.strata["tag:tenant"] == "b" else 0.8
            )
            for one in list(side)
        ]
    found = explain("faithfulness", old, new)
    assert (found.cause, found.slice) == ("retrieval", "tag:tenant=b")
    assert "Only tag:tenant=b changed (33 % of the exchanges)" in found.detail


def test_a_fall_everywhere_names_no_slice():
    old, new = part("tag:tenant", a=(500, 0.9, 200, 0.5), b=(500, 0.9, 200, 0.5))
    assert explain("faithfulness", old, new).slice == ""


def test_topics_known_of_some_exchanges_stand_for_all():
    old, new = part("topic", hard=(200, 0.4, 400, 0.4), easy=(800, 0.95, 400, 0.95))
    unlabelled = scores("faithfulness", 0.84, 3000, name="unlabelled")
    found = explain("faithfulness", old + unlabelled, new)
    assert (found.cause, found.slice) == ("traffic_mix", "topic=hard")
    assert "went from 20 % to 50 %" in found.detail


def test_exchanges_sampled_more_often_have_no_more_say():
    """Half of the low ones only because low ones are kept ten times as often: nothing changed."""
    often = scores("faithfulness", 0.0, 300, start=60.0 * BEFORE, name="often")
    seldom = scores("faithfulness", 1.0, 300, start=60.0 * BEFORE, rate=0.1, name="seldom")
    assert "did not clearly change" in explain("faithfulness", before(faithfulness=0.9), often + seldom).detail


@pytest.mark.parametrize(
    ("mix", "within", "explains", "matters"),
    [
        ((0.07, 0.01), (0.03, 0.03), True, True),
        ((0.05, 0.01), (0.05, 0.03), False, True),  # it carries half
        ((0.07, 0.01), (0.03, 0.005), False, True),  # what is left is no chance
        ((0.07, 0.05), (0.03, 0.03), False, False),  # it may be chance itself
        ((0.02, 0.002), (0.08, 0.03), False, False),  # it carries a fifth
    ],
)
def test_a_mix_explains_a_drop_when_it_carries_most_of_it_and_the_rest_may_be_chance(mix, within, explains, matters):
    total = Contrast(value=mix[0] + within[0], se=0.02)
    parts = Decomposition(
        total=total,
        mix=Contrast(value=mix[0], se=mix[1]),
        within=Contrast(value=within[0], se=within[1]),
        groups={},
    )
    shift = Shift(key="tag:team", parts=parts, named={})
    assert (shift.explains(0.005), shift.matters(0.005)) == (explains, matters)


@pytest.mark.parametrize(
    ("share", "inside", "rest", "confined"),
    [
        (0.3, (0.4, 0.03), (0.0, 0.02), True),
        (0.3, (0.4, 0.2), (0.0, 0.02), False),  # its fall may be chance
        (0.3, (0.4, 0.03), (0.1, 0.02), False),  # the rest fell, too
        (0.3, (0.4, 0.03), (0.1, 0.07), False),  # the rest may have fallen half as much
        (0.1, (0.4, 0.03), (0.0, 0.02), False),  # it is too small to be the drop
        (0.9, (0.12, 0.03), (-0.02, 0.04), False),  # the two may be alike
    ],
)
def test_a_drop_is_confined_to_a_slice_that_fell_while_the_rest_did_not(share, inside, rest, confined):
    def fall(value, se):
        contrast = Contrast(value=value, se=se)
        return Fall(metric="faithfulness", before=(), since=(), old=None, new=None, contrast=contrast)

    one = Slice(key="model", value="m", new=False, share=share, inside=fall(*inside), rest=fall(*rest))
    assert one.confined(Contrast(value=0.12, se=0.02), 0.005) is confined


@pytest.mark.full
def test_nothing_is_blamed_when_nothing_changed():
    blamed = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        old, new = [], []
        for metric, level in (("faithfulness", 0.85), ("context_relevancy", 0.8), ("answer_relevancy", 0.9)):
            for side, n, start in ((old, 600, 0.0), (new, 150, 36_000.0)):
                side += [
                    replace(one, strata={"tag:team": str(rng.integers(5)), "model": str(rng.integers(2))})
                    for one in scores(metric, level, n, start=start, seed=seed)
                ]
        blamed += explain("faithfulness", old, new).cause != "unknown"
    assert blamed <= 2
