"""The shipped judge for tests behaves like a real one."""

from __future__ import annotations

import asyncio

import pytest

from monitors.judges import SPEND, JudgeError, Prompt, Spend, adapted
from monitors.judges.scripted import Scripted
from monitors.metrics.judged import schemas as answers

PROMPT = Prompt(task="claims", version="1", system="", user="x")
FINE = answers.Claims(noncommittal=False, claims=["a"])


def ask(judge):
    return asyncio.run(judge.ask(PROMPT, answers.Claims))


@pytest.mark.parametrize(
    "script",
    [
        {"claims": {"noncommittal": False, "claims": ["a"]}},
        {"claims": FINE},
        {"claims": '```json\n{"noncommittal": false, "claims": ["a"]}\n```'},
        {"claims": lambda prompt: {"noncommittal": False, "claims": ["a"] if prompt.user == "x" else []}},
        lambda prompt: FINE if prompt.task == "claims" else None,
    ],
)
def test_an_answer_may_be_given_in_many_forms(script):
    judge = Scripted(script, model="m")
    assert ask(judge) == FINE
    assert (judge.asked, judge.model) == ([PROMPT], "m")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ({"claims": {"noncommittal": "no", "claims": []}}, "unreadable"),
        ({"claims": {"claims": []}}, "unreadable"),
        ({"claims": "no idea"}, "unreadable"),
        ({"claims": None}, "unreadable"),
        ({"claims": JudgeError("rate_limited")}, "rate_limited"),
        (lambda _: JudgeError("timeout"), "timeout"),
        ({}, "bad_request"),
    ],
)
def test_what_a_real_judge_would_not_get_away_with_fails(script, kind):
    with pytest.raises(JudgeError) as caught:
        ask(Scripted(script))
    assert caught.value.kind == kind


async def test_a_call_is_on_the_tab():
    SPEND.set(spend := Spend())
    await Scripted({"claims": FINE}).ask(PROMPT, answers.Claims)
    assert spend.calls == 1


async def test_a_judge_of_the_users_own_needs_only_model_and_ask_and_keeps_what_else_it_has():
    class Mine:
        model = "mine"

        async def ask(self, prompt, answer_type):
            return answer_type({"happy": True})

    class Sure(Mine):
        identity = "mine at home"

        async def ask_sure(self, prompt, answer_type):
            return await self.ask(prompt, answer_type), 0.5

    plain, sure = adapted(Mine()), adapted(Sure())
    assert (plain.model, plain.identity, sure.identity) == ("mine", "mine", "mine at home")
    assert await plain.ask(PROMPT, dict) == {"happy": True}
    assert await plain.ask_sure(PROMPT, dict) == ({"happy": True}, None)
    assert await plain.ask_scored(PROMPT, ["1"]) is None
    assert await sure.ask_sure(PROMPT, dict) == ({"happy": True}, 0.5)
    await plain.aclose()
    assert adapted(plain) is plain
