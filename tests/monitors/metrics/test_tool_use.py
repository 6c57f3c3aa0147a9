"""Tool use: every call of an answer is judged once, by its choice and its arguments."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from gaugeway.records import Message, Sample, Skipped, ToolCall
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics.tool_use import ToolUse

CALLS = (
    ToolCall(name="get_order", arguments='{"id": "7741"}', hop=1),
    ToolCall(name="search_docs", arguments='{"query": "delivery"}', hop=2),
    ToolCall(name="get_order", arguments='{"id": "7741"}', hop=2),
)
SAMPLE = Sample(id="s", started_at=0.0, question="What did order 7741 cost?", response="12 EUR.", calls=CALLS)
VERDICTS = [("sensible", "right"), ("wrong", "wrong"), ("unnecessary", "incomplete")]


def judge(*, left_out=()):
    def answer(prompt):
        ids = [int(one) for one in re.findall(r'name="call" id="(\d+)"', prompt.user)]
        given = [one for one in ids if one not in left_out or len(ids) < len(CALLS)]
        return {"calls": [{"id": n, "choice": VERDICTS[n][0], "arguments": VERDICTS[n][1]} for n in given]}

    return Scripted({"tool_calls": answer}, model="judge-1")


def test_the_score_is_the_mean_of_choice_times_arguments():
    one = judge()
    score = asyncio.run(ToolUse(one).score(SAMPLE))
    assert score.value == pytest.approx((1.0 + 0.0 + 0.25) / 3)
    assert score.reason == "1 of 3 tool calls are sensible and have the right arguments"
    assert [(each["hop"], each["tool"], each["choice"]) for each in score.evidence] == [
        (1, "get_order", "sensible"),
        (2, "search_docs", "wrong"),
        (2, "get_order", "unnecessary"),
    ]
    assert 'hop 1: get_order {"id": "7741"}' in one.asked[0].user
    assert "12 EUR" not in one.asked[0].user


def test_a_missing_verdict_is_asked_for_once_more():
    one = judge(left_out=(1,))
    assert asyncio.run(ToolUse(one).score(SAMPLE)).value == pytest.approx(1.25 / 3)
    assert len(one.asked) == 2
    never = Scripted({"tool_calls": {"calls": []}})
    with pytest.raises(JudgeError, match="3 of 3 items"):
        asyncio.run(ToolUse(never).score(SAMPLE))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"calls": ()}, "no_tool_calls"), ({"question": None}, "no_question"), ({"response": " "}, "no_response")],
)
def test_what_cannot_be_judged_is_skipped(changes, reason):
    assert asyncio.run(ToolUse(judge()).score(replace(SAMPLE, **changes))) == Skipped(reason)


def test_a_follow_up_is_judged_with_its_history():
    one = judge()
    sample = replace(SAMPLE, history=(Message(role="user", text="I mean order 7741."),))
    assert asyncio.run(ToolUse(one).score(sample)).evidence[0] == {"standalone_question": SAMPLE.question}
    assert "I mean order 7741." in one.asked[0].user
    assert asyncio.run(ToolUse(one, history=False).score(sample)).evidence[0]["tool"] == "get_order"
    assert "I mean order 7741." not in one.asked[1].user
