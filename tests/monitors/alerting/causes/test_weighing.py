"""A cause is named only if the sizes of the falls single it out, and carries the strength of its evidence."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from monitors.alerting.causes import Explanation, JudgeEvidence, Observation, Passages, explain, strength_word
from monitors.alerting.causes.observations import Words, compare
from monitors.alerting.causes.retrieval_or_generation import Evidence
from monitors.alerting.causes.weighing import NAMED, PRIORS, Moved, posterior, repeated, weighed

MEANS = {"faithfulness": 0.85, "context_relevancy": 0.8, "lexical_groundedness": 0.7}


def exchanges(n, start, *, seed, question="", **falls):
    """Scores around the usual means less the falls, sd .2, of `n` exchanges a minute apart."""
    rng = np.random.default_rng(seed)
    return [
        Observation(
            sample_id=f"{question}{start:.0f}-{index}",
            metric=metric,
            started_at=start + 60.0 * index,
            rate=1.0,
            outcome="score",
            value=float(np.clip(rng.normal(mean - falls.get(metric, 0.0), 0.2), 0.0, 1.0)),
            reason="",
            version="1",
            judge=None if metric == "lexical_groundedness" else "model-a",
            strata={},
            question=f"{question} {index % 20}" if question else "",
        )
        for metric, mean in MEANS.items()
        for index in range(n)
    ]


def said(n=1000, judge=None, **falls):
    return explain("faithfulness", exchanges(2000, 0.0, seed=1), exchanges(n, 2e5, seed=2, **falls), judge=judge)


def test_relevance_that_falls_slightly_with_the_answers_may_be_harder_questions():
    found = said(faithfulness=0.06, context_relevancy=0.05, lexical_groundedness=0.04)
    assert (found.cause, found.strength, found.evidence) == ("unknown", None, ())
    assert "harder questions (" in found.detail
    assert "retrieval (" in found.detail


def test_relevance_that_falls_far_more_than_the_answers_is_the_retrieval():
    found = said(faithfulness=0.2, context_relevancy=0.45, lexical_groundedness=0.2)
    assert found.cause == "retrieval"
    assert strength_word(found.strength) == "strong"
    assert "sizes of the falls of context_relevancy, faithfulness" in found.evidence[0]


def test_answers_that_fall_more_than_the_relevance_could_explain_are_not_blamed_on_the_retrieval():
    """A stricter judge without anchors, and a broken prompt at the same time."""
    assert said(faithfulness=0.25, context_relevancy=0.1, lexical_groundedness=0.08).cause == "unknown"


def test_anchors_that_stayed_make_a_cause_in_the_app_more_likely():
    falls = {"faithfulness": 0.12, "context_relevancy": 0.25, "lexical_groundedness": 0.1}
    found = said(60, judge=JudgeEvidence(drifted=False), **falls)
    assert found.strength > said(60, **falls).strength
    assert "anchors that stayed" in found.evidence


@pytest.mark.parametrize("same", [True, False])
def test_questions_that_recur_tell_harder_questions_from_a_broken_retrieval(same):
    """Either all exchanges got worse, or those of new questions only."""
    falls = {"faithfulness": 0.1, "context_relevancy": 0.12, "lexical_groundedness": 0.08}
    before = exchanges(1000, 0.0, seed=1, question="old")
    old = exchanges(500, 2e5, seed=2, question="old", **(falls if same else {}))
    new = exchanges(
        500, 3e5, seed=3, question="new", **{name: (1 if same else 2) * fall for name, fall in falls.items()}
    )
    found = explain("faithfulness", before, old + new)
    assert found.cause == ("retrieval" if same else "unknown")
    assert ("questions that recur fell as well" in found.evidence) is same


def test_questions_asked_once_are_not_compared():
    scores = [one for one in exchanges(100, 0.0, seed=1) if one.metric == "faithfulness"]
    asked = [replace(one, question=f"a {index}") for index, one in enumerate(scores)]
    other = [replace(one, question=f"b {index}") for index, one in enumerate(scores)]
    assert repeated(compare("faithfulness", asked, other)) is None
    assert repeated(compare("faithfulness", scores, scores)) is None
    again = repeated(compare("faithfulness", asked, asked))
    assert again is not None
    assert again.value == 0.0


def test_the_posterior_of_no_evidence_is_the_prior_and_factors_multiply_its_odds():
    total = sum(value for name, value in PRIORS.items() if "judge" not in name)
    found = posterior([])
    assert found["retrieval"] == pytest.approx(1.0 / total, rel=1e-4)
    less = posterior([], {"retrieval": 0.05})
    assert less["retrieval"] / less["generation"] == pytest.approx(0.05, rel=1e-4)


def test_falls_that_no_hypothesis_predicts_favour_none():
    rose = [Moved(level=0.8, fall=-0.7, se=1e-4, retrieval=True, judged=True, main=True)]
    assert max(posterior(rose).values()) < NAMED


def ranks(n, start, *, seed, **shifts):
    """The signals of the retrieval of `n` exchanges a minute apart."""
    rng = np.random.default_rng(seed)
    return [
        replace(score, metric=name, judge=None, value=float(np.clip(rng.uniform() + shifts.get(name, 0.0), 0.0, 1.0)))
        for name in ("contexts_per_answer", "retriever_score")
        for score in exchanges(n, start, seed=1)[:n]
    ]


FEWER_BUT_BETTER = {"faithfulness": 0.12, "context_relevancy": -0.08, "lexical_groundedness": 0.08}


@pytest.mark.parametrize(
    ("shifts", "verb"),
    [
        ({"contexts_per_answer": -0.4}, "contexts_per_answer fell from"),
        ({"contexts_per_answer": 0.4}, "contexts_per_answer rose from"),
        ({"retriever_score": -0.4}, "retriever_score fell from"),
    ],
)
def test_a_changed_signal_of_the_retrieval_is_evidence_for_it_although_passages_are_as_relevant(shifts, verb):
    before = exchanges(1000, 0.0, seed=1) + ranks(1000, 0.0, seed=3)
    scores = exchanges(500, 2e5, seed=2, **FEWER_BUT_BETTER)
    assert explain("faithfulness", before, scores + ranks(500, 2e5, seed=4)).cause != "retrieval"
    found = explain("faithfulness", before, scores + ranks(500, 2e5, seed=4, **shifts))
    assert (found.cause, found.strength) == ("retrieval", 0.9)
    assert verb in found.detail


def test_the_number_of_passages_is_said_where_it_was_read():
    before = exchanges(500, 0.0, seed=1) + ranks(500, 0.0, seed=3)
    since = exchanges(500, 2e5, seed=2, **FEWER_BUT_BETTER) + ranks(500, 2e5, seed=4, contexts_per_answer=-0.4)
    passages = {
        score.sample_id: Passages(documents=frozenset({f"d{number % 7}"}), contradicted=None, count=count)
        for side, count in ((before, 6), (since, 3))
        for number, score in enumerate(side[:500])
    }
    assert (
        "contexts_per_answer fell from 6.0 to 3.0" in explain("faithfulness", before, since, passages=passages).detail
    )


def test_better_retriever_scores_are_no_evidence_against_the_retrieval():
    before = exchanges(1000, 0.0, seed=1) + ranks(1000, 0.0, seed=3)
    since = exchanges(500, 2e5, seed=2, **FEWER_BUT_BETTER) + ranks(500, 2e5, seed=4, retriever_score=0.4)
    assert explain("faithfulness", before, since).cause != "retrieval"


def test_one_judged_metric_that_falls_alone_may_be_a_judge_stricter_on_it():
    found = said(faithfulness=0.15)
    assert found.cause == "unknown"
    assert "a judge that is stricter on this metric alone" in found.detail
    assert said(faithfulness=0.15, judge=JudgeEvidence(drifted=False)).cause == "generation"


def all_answers_fell():
    """Evidence that all metrics of the answers fell far, and the relevance stayed."""
    before = exchanges(2000, 0.0, seed=1)
    since = exchanges(2000, 2e5, seed=2, faithfulness=0.6, lexical_groundedness=0.5)
    scores = [[score for score in side if score.metric == "faithfulness"] for side in (before, since)]
    return Evidence(compare("faithfulness", *scores), before, since)


@pytest.mark.parametrize(
    ("judge", "word"),
    [
        (None, "moderate"),
        (JudgeEvidence(drifted=False, pending=True), "moderate"),
        (JudgeEvidence(drifted=False), "strong"),
    ],
)
def test_generation_is_strong_only_with_anchors_that_stayed(judge, word):
    named = Explanation(cause="generation", detail="")
    found = weighed(named, all_answers_fell(), Words(lambda _: False), judge=judge, place=None)
    assert strength_word(found.strength) == word
