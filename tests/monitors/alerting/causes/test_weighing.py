"""A cause is named only if the sizes of the falls single it out, and carries the strength of its evidence."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from monitors.alerting.causes import JudgeEvidence, Observation, explain, strength_word
from monitors.alerting.causes.hypotheses import PRIORS, Moved, posterior
from monitors.alerting.causes.observations import compare
from monitors.alerting.causes.weighing import NAMED, repeated

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
