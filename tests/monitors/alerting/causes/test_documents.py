"""A document that contradicts the others is named, and keeps the answers from being blamed."""

from __future__ import annotations

import numpy as np
import pytest

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
    """The answers lose all, the relevance a part: what writes the answers is the same for all sources."""
    before, since, passages = traffic(bad_share=0.5, bad_mean=0.1, contradicted=0.05, relevance=0.45)
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
