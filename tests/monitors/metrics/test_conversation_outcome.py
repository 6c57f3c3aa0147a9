"""The metrics of conversations: one judge call for the three of them."""

from __future__ import annotations

import asyncio
import re

import pytest

from gaugeway.records import Message, Sample, Score, Skipped
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics import lower_is_better, scores_conversations
from monitors.metrics.conversation_outcome import MOST_MESSAGES, GaveUp, GoalMet, Outcomes, TurnsToResolution

MET = {"goal": "cancel the order", "outcome": "met", "met_in_turn": 2, "gave_up": False, "reason": "turn 2 answers it"}
LOST = MET | {"outcome": "not_met", "met_in_turn": 0, "gave_up": True, "reason": "turn 2 repeats turn 1"}


def conversation(turns=2, **fields):
    messages = [Message(role=role, text=f"{role} {turn}") for turn in range(turns) for role in ("user", "assistant")]
    return Sample(id="c", started_at=0.0, **({"transcript": tuple(messages)} | fields))


def scores(verdict, sample=None):
    judge = Scripted({"conversation_outcome": verdict}, model="judge-1")
    outcomes = Outcomes(judge)
    metrics = [made(outcomes) for made in (GoalMet, GaveUp, TurnsToResolution)]

    async def main():
        return await asyncio.gather(*(one.score(sample or conversation()) for one in metrics))

    return judge, asyncio.run(main())


def test_three_metrics_share_one_call():
    judge, (met, gave_up, turns) = scores(MET)
    assert (met.value, gave_up.value, turns.value) == (1.0, 0.0, 0.5)
    assert met.reason == "turn 2 answers it"
    assert met.evidence[0] == {
        "goal": "cancel the order",
        "outcome": "met",
        "met_in_turn": 2,
        "gave_up": False,
        "turns": 2,
    }
    assert len(judge.asked) == 1
    shown = re.findall(r'name="(\w+)" id="(\d)">\n(.*)\n', judge.asked[0].user)
    assert shown == [
        ("user", "1", "user 0"),
        ("assistant", "1", "assistant 0"),
        ("user", "2", "user 1"),
        ("assistant", "2", "assistant 1"),
    ]


def test_a_goal_that_was_not_met_has_no_turn_of_resolution():
    _, (met, gave_up, turns) = scores(LOST)
    assert (met.value, gave_up.value) == (0.0, 1.0)
    assert turns == Skipped("not_resolved")
    _, (partly, _, skipped) = scores(LOST | {"outcome": "partly_met", "gave_up": False})
    assert (partly.value, skipped) == (0.5, Skipped("not_resolved"))


@pytest.mark.parametrize("turn", [0, 3, -1])
def test_a_turn_that_the_conversation_does_not_have_is_unreadable(turn):
    with pytest.raises(JudgeError, match=f"turn {turn} of 2"):
        scores(MET | {"met_in_turn": turn})


def test_answers_and_silent_conversations_are_skipped():
    _, found = scores(MET, Sample(id="a", started_at=0.0, question="How long?", response="Two days."))
    assert set(found) == {Skipped("no_transcript")}
    _, found = scores(MET, conversation(transcript=(Message(role="assistant", text="Hello!"),)))
    assert set(found) == {Skipped("no_question")}


def test_a_long_conversation_is_shown_with_its_beginning_and_its_end():
    judge, found = scores(MET, conversation(turns=100))
    assert isinstance(found[0], Score)
    shown = re.findall(r'name="\w+" id="(\d+)"', judge.asked[0].user)
    assert len(shown) == MOST_MESSAGES
    assert (shown[:4], shown[-1]) == (["1", "1", "2", "2"], "100")
    assert "160 messages are not shown" in judge.asked[0].user


def test_only_gave_up_is_better_when_lower():
    outcomes = Outcomes(Scripted({}))
    assert [lower_is_better(made(outcomes)) for made in (GoalMet, GaveUp, TurnsToResolution)] == [False, True, False]
    assert all(scores_conversations(made(outcomes)) for made in (GoalMet, GaveUp, TurnsToResolution))
