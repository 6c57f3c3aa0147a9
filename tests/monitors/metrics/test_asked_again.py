"""Asked again: repetitions in nearly the same words are found, and no follow-up is taken for one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gaugeway.records import Message, Sample, Skipped
from gaugeway.text.lexical.vocabulary import shipped
from monitors.metrics.asked_again import AskedAgain, rewords

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "corpora" / "asked_again.jsonl").read_text("utf-8").splitlines()
]
WEIGHTS = shipped()


def found(pairs):
    """Repetitions found of all there are, and follow-ups taken for one."""
    said = [(rewords(one["question"], one["before"], WEIGHTS), one["again"]) for one in pairs]
    return sum(both == (True, True) for both in said), sum(both == (True, False) for both in said)


def test_most_repetitions_are_found_and_no_follow_up_is_taken_for_one():
    held = [one for one in PAIRS if one.get("held_out")]
    assert (len(PAIRS), len(held)) == (92, 28)
    assert found(PAIRS) == (32, 0)
    assert found(held) == (8, 0)


def sample(question, *history):
    said = tuple(Message(role=role, text=text) for role, text in history)
    return Sample(id="s", started_at=0.0, question=question, response="Fine.", history=said)


def test_the_last_question_of_the_user_is_compared():
    history = [("user", "Is it sturdy?"), ("assistant", "Yes."), ("user", "What does it weigh?"), ("assistant", "Hm.")]
    again = asyncio.run(AskedAgain().score(sample("Again: what does it weigh?", *history)))
    assert (again.value, again.evidence) == (1.0, ({"earlier_question": "What does it weigh?"},))
    assert asyncio.run(AskedAgain().score(sample("Is it sturdy?", *history))).value == 0.0


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (sample("What does it weigh?"), "no_history"),
        (sample("What does it weigh?", ("assistant", "Hello, how can I help?")), "no_history"),
        (sample(" ", ("user", "What does it weigh?")), "no_question"),
        (sample("What does it weigh?", ("user", f"{'Passage. ' * 100} Question: What is it?")), "no_earlier_question"),
    ],
)
def test_a_first_question_is_skipped(one, reason):
    assert asyncio.run(AskedAgain().score(one)) == Skipped(reason)


@pytest.mark.parametrize("text", ["", "?!", "a" * 100_000, "why " * 50_000, "退" * 50_000, "\ud800", "1 " * 3000])
def test_odd_texts_are_compared_in_no_time_and_never_raise(text):
    assert rewords(text, text, WEIGHTS) in (True, False)
    assert rewords(text, "How long does a refund take?", WEIGHTS) is False
