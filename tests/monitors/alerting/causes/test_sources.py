"""The source behind a drop is named with its share of bad and good answers, however many sources there are."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.alerting.causes import Observation, Passages, explain

BEFORE, SINCE = 500, 400
ONSET = 1_760_018_700.0  # 14:05 UTC


def traffic(
    *, size=300, share=0.2, used_before=True, worse=0.5, everywhere=0.0, relevance=0.0, flagged=False, beside=None
):
    """Exchanges before and since with three of `size` sources; since the onset the source "bad" lowers the scores."""
    rng = np.random.default_rng(7)
    sides, passages = ([], []), {}
    for side, count in ((0, BEFORE), (1, SINCE)):
        for index in range(count):
            name = f"{side}-{index}"
            has = rng.random() < share and (used_before or side == 1)
            documents = {f"doc-{one}" for one in rng.integers(size, size=3)} | ({"bad"} if has else set())
            if beside is not None and (has or rng.random() < 0.3):
                documents.add(beside)
            low = side * (worse * has + everywhere)
            passages[name] = Passages(documents=frozenset(documents), contradicted=flagged and side == 1 and has)
            for metric, mean in (("faithfulness", 0.9 - low), ("context_relevancy", 0.8 - side * relevance * has)):
                sides[side].append(
                    Observation(
                        sample_id=name,
                        metric=metric,
                        started_at=ONSET + 60.0 * (index - (BEFORE if side == 0 else 0)),
                        rate=1.0,
                        outcome="score",
                        value=float(np.clip(rng.normal(mean, 0.1), 0.0, 1.0)),
                        reason="",
                        version="1",
                        judge="model-a",
                        strata={"model": "m"},
                    )
                )
    return *sides, passages


def found(**about):
    before, since, passages = traffic(**about)
    return explain("faithfulness", before, since, passages=passages)


@pytest.mark.parametrize("size", [50, 300, 2000])
def test_a_source_in_use_that_became_bad_is_named_among_any_number_of_sources(size):
    why = found(size=size)
    assert (why.cause, why.source, why.slice) == ("retrieval", "bad", "source=bad")
    assert why.detail.startswith("Source bad, since 14:05 UTC, in ")
    assert "of the bad answers and" in why.detail
    assert 0.8 <= why.strength <= 0.9


def test_the_popular_source_beside_it_is_not_named():
    assert found(beside="doc-1").source == "bad"


def test_contradictions_make_the_evidence_stronger():
    why = found(flagged=True)
    assert why.source == "bad"
    assert "contradicted claims or passages" in why.evidence
    assert why.strength > 0.95


def test_a_new_source_without_contradictions_may_come_with_new_questions():
    why = found(used_before=False)
    assert (why.cause, why.source, why.slice, why.strength) == ("unknown", "bad", "", None)
    assert "the source, or the questions that it comes with" in why.detail
    assert found(used_before=False, flagged=True).cause == "retrieval"


def test_a_new_source_is_named_where_the_passages_became_less_relevant():
    why = found(used_before=False, relevance=0.6, share=0.3)
    assert (why.cause, why.source) == ("retrieval", "bad")
    assert why.detail.startswith("Source bad, since 14:0")
    assert "low scores with the source bad" in why.evidence


def test_a_drop_of_all_answers_names_no_source():
    assert found(worse=0.0, everywhere=0.3).source is None
    assert found(worse=0.1, everywhere=0.3).source is None
