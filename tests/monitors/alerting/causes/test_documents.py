"""A document that contradicts the others is named, and keeps the answers from being blamed."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from monitors.alerting.causes import Observation, Passages, explain

BEFORE, SINCE = 400, 300


def traffic(
    *, bad_share=0.3, bad_mean=0.4, rest_mean=0.9, contradicted=0.6, others=0.05, named=True, n=SINCE, relevance=0.8
):
    """Exchanges before and since; since then some got the document "bad", with its own mean and contradictions."""
    rng = np.random.default_rng(5)
    sides, passages = ([], []), {}
    for side, start, count in ((0, 0.0, BEFORE), (1, 1e5, n)):
        for index in range(count):
            bad = side == 1 and rng.random() < bad_share
            name = f"{side}-{index}"
            documents = {f"doc-{rng.integers(6)}", f"doc-{rng.integers(6)}"} | ({"bad"} if bad and named else set())
            flag = rng.random() < (contradicted if bad else others)
            passages[name] = Passages(documents=frozenset(documents), contradicted=bool(flag))
            means = {
                "faithfulness": bad_mean if bad else rest_mean if side else 0.9,
                "context_relevancy": relevance if bad else 0.8,
            }
            for metric, mean in means.items():
                value = float(np.clip(rng.normal(mean, 0.1), 0.0, 1.0))
                sides[side].append(
                    Observation(
                        sample_id=name,
                        metric=metric,
                        started_at=start + 60.0 * index,
                        rate=1.0,
                        outcome="score",
                        value=value,
                        reason="",
                        version="1",
                        judge="model-a",
                        strata={},
                    )
                )
    return *sides, passages


def test_a_contradicting_document_is_the_retrieval_and_is_named():
    before, since, passages = traffic()
    found = explain("faithfulness", before, since, passages=passages)
    assert (found.cause, found.slice) == ("retrieval", "source=bad")
    assert "Only exchanges that got the source bad changed" in found.detail
    assert found.strength >= 0.95
    assert "contradicted claims or passages" in found.evidence


def test_without_its_passages_the_same_drop_is_the_generation_with_weak_evidence():
    before, since, _ = traffic()
    found = explain("faithfulness", before, since)
    assert found.cause == "generation"
    assert found.strength < 0.8


def test_answers_that_got_worse_with_every_document_are_the_generation():
    before, since, passages = traffic(bad_share=0.0, rest_mean=0.7, others=0.2)
    found = explain("faithfulness", before, since, passages=passages)
    assert found.cause == "generation"
    assert "no source that the drop is confined to" in found.evidence
    assert found.strength > explain("faithfulness", before, since).strength


def test_a_document_without_contradictions_is_not_named():
    """Exchanges with it may be about something harder."""
    before, since, passages = traffic(contradicted=0.05)
    assert explain("faithfulness", before, since, passages=passages).slice == ""


def test_a_drop_of_all_exchanges_is_not_the_document_that_fell_most():
    before, since, passages = traffic(bad_mean=0.5, rest_mean=0.6)
    assert explain("faithfulness", before, since, passages=passages).slice == ""


def test_a_document_that_may_be_the_cause_keeps_the_generation_from_being_named():
    before, since, passages = traffic(bad_mean=0.55, rest_mean=0.8, contradicted=0.4)
    found = explain("faithfulness", before, since, passages=passages)
    assert found.cause == "unknown"
    assert "or the source bad" in found.detail


@pytest.mark.parametrize("flag", [None, False])
def test_contradictions_that_nobody_looked_for_name_no_document(flag):
    before, since, passages = traffic()
    unknown = {one: Passages(documents=seen.documents, contradicted=flag) for one, seen in passages.items()}
    assert explain("faithfulness", before, since, passages=unknown).slice == ""


def test_a_new_source_whose_passages_are_also_less_relevant_is_the_retrieval():
    """Harder questions may cost that much, but with less relevance; what writes the answers is the same for all."""
    before, since, passages = traffic(bad_share=0.5, bad_mean=0.4, contradicted=0.05, relevance=0.3)
    found = explain("faithfulness", before, since, passages=passages)
    assert (found.cause, found.source) == ("retrieval", "bad")
    assert found.strength >= 0.6
    assert "low scores with the source bad" in found.evidence


@pytest.mark.parametrize("relevance", [0.64, 0.76])
def test_a_new_source_with_harder_questions_is_not_the_retrieval(relevance):
    before, since, passages = traffic(bad_mean=0.7, contradicted=0.05, relevance=relevance)
    found = explain("faithfulness", before, since, passages=passages)
    assert found.cause == "unknown"
    assert found.source == "bad"
    assert "fit generation" not in found.detail


ASKED = 6


def incident(*, comes_with="questions", bad_mean=0.1, before=600, n=300, used_before=0.0, companion=False, late=0):
    """Questions that recur, each with its own documents; the document "legacy" comes with half of the answers since.

    It `comes_with` whole "questions", with "any" exchange, or with "new" questions, or all questions are
    asked "once", or it comes with one "topic". No claim contradicts it. With it
    comes, and with some others, a good `companion`. The onset is dated `late`, that many exchanges.
    """
    rng = np.random.default_rng(3)
    sides, passages = ([], []), {}
    for index in range(before + n):
        since = index >= before
        which = int(rng.integers(ASKED))
        half = which < ASKED // 2
        has = {"questions": half, "new": half, "topic": which == 0}.get(comes_with, rng.random() < 0.5)
        has = has if since else rng.random() < used_before
        asks_anew = comes_with == "once" or (comes_with == "new" and since and has)
        question = f"new {index}" if asks_anew else f"old {which}"
        names = {f"doc-{which}", f"doc-{(which + 1) % ASKED}"} | ({"legacy"} if has else set())
        if companion and since and (has or rng.random() < 0.4):
            names.add("companion")
        passages[str(index)] = Passages(documents=frozenset(names), contradicted=False)
        for metric, mean in (("faithfulness", bad_mean if has else 0.95), ("context_relevancy", 0.57 - 0.2 * has)):
            sides[index >= before + late].append(
                Observation(
                    sample_id=str(index),
                    metric=metric,
                    started_at=1e6 + 2.0 * index,
                    rate=1.0,
                    outcome="score",
                    value=float(np.clip(rng.normal(mean, 0.1), 0.0, 1.0)),
                    reason="",
                    version="1",
                    judge="model-a",
                    strata={"model": "m"} | ({"topic": f"topic:{which}"} if comes_with == "topic" else {}),
                    question=question,
                )
            )
    before_onset, after = sides
    return explain("faithfulness", before_onset, after, passages=passages)


@pytest.mark.full
@pytest.mark.parametrize("comes_with", ["questions", "any"])
@pytest.mark.parametrize("about", [{}, {"n": 60}, {"bad_mean": 0.5}, {"companion": True}, {"late": 50}])
def test_a_new_source_is_to_blame_where_the_same_questions_scored_better_without_it(comes_with, about):
    found = incident(comes_with=comes_with, **about)
    assert (found.cause, found.source, found.slice) == ("retrieval", "legacy", "source=legacy")
    assert "when the same questions scored better" in found.detail
    assert "questions that recur fell with the source" in found.evidence
    assert 0.8 <= found.strength <= 0.9


@pytest.mark.parametrize("comes_with", ["questions", "any"])
def test_a_bad_source_that_was_seldom_retrieved_before_is_to_blame_too(comes_with):
    found = incident(comes_with=comes_with, used_before=0.04)
    assert (found.cause, found.source) == ("retrieval", "legacy")
    assert "It was in use far less before" in found.detail


def test_a_source_that_all_answers_about_the_one_topic_that_fell_got_is_compared_with_the_other_topics():
    found = incident(comes_with="topic")
    assert (found.cause, found.source, found.slice) == ("retrieval", "legacy", "source=legacy")
    assert "In topic" not in found.detail


def test_a_new_source_of_new_questions_is_to_blame_only_if_harder_questions_do_not_cost_that_much():
    bad = incident(comes_with="once")
    assert (bad.cause, bad.source, bad.strength) == ("retrieval", "legacy", pytest.approx(0.8, abs=0.001))
    assert "a larger fall than harder questions explain" in bad.evidence
    maybe = incident(comes_with="once", bad_mean=0.5)
    assert (maybe.cause, maybe.source, maybe.strength) == ("unknown", "legacy", None)


@pytest.mark.parametrize("bad_mean", [0.1, 0.5])
def test_a_new_source_of_new_questions_beside_old_ones_cannot_be_told_apart_from_its_questions(bad_mean):
    found = incident(comes_with="new", bad_mean=bad_mean)
    assert (found.cause, found.source, found.strength) == ("unknown", "legacy", None)
    assert "harder questions (" in found.detail


def test_a_drop_that_one_source_accounts_for_is_never_strong_evidence_of_worse_answers():
    """In use before, with all exchanges of its questions: low scores point at it no more than at the questions."""
    before, since, passages = traffic(bad_share=0.5, bad_mean=0.3, contradicted=0.05)
    rng = np.random.default_rng(9)
    topic = {one.sample_id: "bad" if "bad" in passages[one.sample_id].documents else "other" for one in since}
    topic |= {one.sample_id: "bad" if rng.random() < 0.5 else "other" for one in before}
    passages |= {
        one.sample_id: structs.replace(passages[one.sample_id], documents=passages[one.sample_id].documents | {"bad"})
        for one in before
        if topic[one.sample_id] == "bad"
    }
    sides = [[structs.replace(one, question=topic[one.sample_id]) for one in side] for side in (before, since)]
    found = explain("faithfulness", *sides, passages=passages)
    assert found.cause == "unknown"
    assert "It is the answers, or the source bad: with it 0.89 to 0.3" in found.detail
