"""Which questions count as unanswered, and how topics add them up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaugeway.records import Evaluation, Sample, Score, Skipped
from gaugeway.text.topics import NAMELESS, UNLIKE
from monitors.analysis.retrieval.coverage_gaps import gaps_of, is_declined
from monitors.analysis.retrieval.sources import RetrievedExchange, Scope

NOW = 1_760_000_000.0
SCOPE = Scope(app="shop", metric="faithfulness", since=NOW - 12 * 3600.0, until=NOW)


def asked(number, topic="topic:refund, invoice", **about):
    fields = {"started_at": NOW - 60.0 * number, "model": "m", "rate": 1.0, "passages": ("a",), "score": 0.9}
    fields |= {"question": f"Where is my refund {number}?", "topic": topic, "passed": True}
    return RetrievedExchange(id=f"x{number}", **(fields | about))


LOW = {"score": 0.2, "passed": False}


def test_each_gap_counts_once_under_its_first_reason_and_examples_are_the_newest():
    report = gaps_of(
        [
            asked(1, declined=True, **LOW),
            asked(2, found_nothing=True, passages=(), score=None, passed=None),
            asked(3, **LOW),
            asked(4),
            asked(5, score=None, passed=None),
        ],
        SCOPE,
    )
    (topic,) = report.topics
    assert (topic.topic, topic.questions, topic.gaps) == ("refund, invoice", 5, 3)
    assert (topic.declined, topic.no_passages, topic.low) == (1, 1, 1)
    assert topic.ratio.ratio == pytest.approx(0.6)
    assert [(one.id, one.gap) for one in topic.examples] == [("x1", "declined"), ("x2", "no_passages"), ("x3", "low")]
    assert (sum(part.questions for part in topic.trend), sum(part.gaps for part in topic.trend)) == (5, 3)
    assert (report.questions, report.gaps) == (5, 3)


def test_topics_come_in_the_order_of_unanswered_traffic_weighted_by_rate():
    some = [asked(1, "topic:a", **LOW), asked(2, "topic:a"), asked(3, "topic:b", rate=0.1, **LOW), asked(4, "", **LOW)]
    report = gaps_of(some, SCOPE)
    assert [one.topic for one in report.topics] == ["b", "a", "other questions"]
    assert report.topics[0].share.ratio == pytest.approx(10 / 13)
    assert report.topics[1].ratio.ratio == pytest.approx(0.5)


def test_what_is_in_no_topic_is_one_row():
    report = gaps_of([asked(1, ""), asked(2, UNLIKE), asked(3, NAMELESS), asked(4, "topic:a")], SCOPE)
    assert {one.topic: one.questions for one in report.topics} == {"other questions": 3, "a": 1}


def evaluation(outcome):
    return Evaluation(sample_id="x", metric="faithfulness", version="1", outcome=outcome)


@pytest.mark.parametrize(
    ("sample", "outcome", "declined"),
    [
        ({}, Score(1.0, "2 of 2 claims are supported by the contexts; noncommittal"), True),
        ({}, Score(0.0, "the response is noncommittal"), True),
        ({}, Skipped("no_claims"), True),
        ({"skip_reason": "refusal"}, Skipped("refusal"), True),
        ({}, Skipped("no_contexts"), False),
        ({}, Score(1.0, "2 of 2 claims are supported by the contexts"), False),
    ],
)
def test_an_answer_that_does_not_answer_is_declined(sample, outcome, declined):
    assert is_declined(Sample(id="x", started_at=0.0, **sample), [evaluation(outcome)]) is declined


REFUSAL = "I'm sorry, but the documents do not mention the opening hours."


@pytest.mark.parametrize(
    ("response", "evaluations", "declined"),
    [
        (REFUSAL, {}, True),
        (REFUSAL, {"faithfulness": Score(1.0, "1 of 1 claims are supported by the contexts")}, True),
        (REFUSAL, {"lexical_groundedness": Score(0.9)}, True),
        ("blake2b:c0ffee", {"abstained": Score(1.0)}, True),
        (REFUSAL, {"abstained": Score(0.0)}, False),
        ("It opens at nine.", {"abstained": Score(0.0), "faithfulness": Score(0.2)}, False),
        ("It opens at nine.", {}, False),
    ],
)
def test_the_signal_abstained_says_that_an_answer_declines_without_a_judge(response, evaluations, declined):
    sample = Sample(id="x", started_at=0.0, response=response)
    some = [replace(evaluation(outcome), metric=metric) for metric, outcome in evaluations.items()]
    assert is_declined(sample, some) is declined
