"""Steps that refine an answer passage by passage are no answers of their own; those with the first passages are."""

from __future__ import annotations

import pytest

from gateway.capture.auxiliary_calls import auxiliary
from gaugeway.exchange import Request, Response
from tests.gaugeway.prompts import prompts

ANSWER = Response(status=200, body={}, text="Perhaps not.", finish_reason="stop")
LONG = ["The harbour is far. " * 200]


def kind_of(messages):
    return auxiliary(Request(route="chat_completions", headers={}, body={"messages": messages}), ANSWER)


@pytest.mark.parametrize("build", [prompts.refine, prompts.refine_sources, prompts.refine_chat])
@pytest.mark.parametrize("passages", [["Short."], LONG])
def test_langchains_later_steps_are_apart(build, passages):
    assert kind_of(build("How far?", passages)) == "refine"


def test_an_answer_too_long_for_the_beginning_changes_nothing():
    step = prompts.refine("How far?", LONG)
    assert kind_of([{**step[0], "content": step[0]["content"].replace("Perhaps.", LONG[0])}]) == "refine"
    turns = prompts.refine_chat("How far?", LONG)
    turns[1]["content"] = LONG[0]
    assert kind_of([{"role": "system", "content": "Be kind."}, *turns]) == "refine"


@pytest.mark.parametrize("build", [prompts.refine_first, prompts.refine_first_system, prompts.refine_first_sources])
def test_the_first_step_is_an_answer(build):
    assert kind_of(build("How far?", LONG)) is None


def test_a_question_behind_the_words_of_a_step_is_none():
    turns = prompts.refine_chat("How far?", LONG)
    asked = f"{prompts.refine_block(LONG)}\nThat is the prompt I use. {LONG[0]} Why?"
    assert kind_of([*turns[:2], *prompts.user(asked)]) is None
