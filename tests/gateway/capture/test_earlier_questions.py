"""An earlier prompt with passages is its question in the history, however short it is and whoever saw it before."""

from functools import partial

import pytest

from gateway.capture.conversation import EarlierQuestions
from gateway.capture.factory import capture_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Explicit
from gaugeway.prompts import Extraction, default_order
from gaugeway.records import Context, Message
from tests.gateway.capture.test_exchange_reader import answer, recording
from tests.support.work import calls

ASKED = "How much sick leave?"
MORE = "Leave is granted by the manager of the department. " * 30
PROMPT = (
    "Context:\n[1] Employees get ten days of sick leave each year.\n"
    f"[2] Sick leave is to be reported to the manager before nine.\n\nQuestion: {ASKED}"
)
LONG = PROMPT.replace("each year.", "each year. " + MORE).replace("before nine.", "before nine. " + MORE)
MOST_CALLS = 600
CHAT = [
    "And in France?",
    "Hi,\n\nI ordered a kettle last week: it has not come.\nMy order is 4711.\n\nWhat can I do?\n\nBest,\nAnn",
    "My three problems:\n1. The kettle leaks.\n2. The cord is short.\n3. It is loud.\nWhat can I do?",
    "Fix this:\n```python\ndef a(x):\n    return x + 1\n```\nIt fails.",
]


def said(*turns):
    """The messages of a conversation: the user's turns with an answer after each but the last."""
    messages = [{"role": "user", "content": turns[0]}]
    for turn in turns[1:]:
        messages += [{"role": "assistant", "content": "Ten days."}, {"role": "user", "content": turn}]
    return messages


def sample_of(capture, *turns, **more):
    found = recording({"model": "m", "messages": said(*turns)}, answer("Yes."), **more)
    return capture.make(capture.read(found))


@pytest.mark.parametrize("seen_before", [True, False])
def test_a_short_prompt_is_its_question_in_the_next_exchanges_history(seen_before):
    capture = capture_of(Settings(), "key")
    if seen_before:
        assert sample_of(capture, PROMPT).question == ASKED
    follow_up = PROMPT.replace(ASKED, "And who grants the sick leave?")
    sample = sample_of(capture, PROMPT, follow_up)
    assert sample.question == "And who grants the sick leave?"
    assert sample.history == (Message(role="user", text=ASKED), Message(role="assistant", text="Ten days."))


def test_a_long_prompt_is_reduced_if_its_exchange_was_seen():
    capture = capture_of(Settings(), "key")
    assert len(LONG) > 2_000
    assert sample_of(capture, LONG, "Why?").history[0].text.startswith("Context:")
    capture = capture_of(Settings(), "key")
    sample_of(capture, LONG)
    assert sample_of(capture, LONG, "Why?").history[0].text == ASKED


@pytest.mark.parametrize("turn", CHAT)
def test_turns_without_passages_stay_as_they_are(turn):
    capture = capture_of(Settings(), "key")
    assert sample_of(capture, turn, "And then?").history[0].text == turn
    sample_of(capture, turn)
    assert sample_of(capture, turn, "And then?").history[0].text == turn


def test_what_the_app_said_about_an_exchange_is_no_question_of_its_prompt():
    capture = capture_of(Settings(), "key")
    explicit = Explicit(question="leave", contexts=(Context(text="Ten days."),))
    sample_of(capture, "Tell me about leave.", explicit=explicit)
    assert sample_of(capture, "Tell me about leave.", "Why?").history[0].text == "Tell me about leave."


def test_without_history_nothing_is_read():
    capture = capture_of(Settings(history_turns=0), "key")
    assert sample_of(capture, PROMPT, "Why?").history == ()


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("gateway.capture.conversation._REMEMBERED", 10)
    questions = EarlierQuestions()
    for number in range(100):
        turn = f"Context: a. Question: {number}?"
        questions.learn(turn, Extraction(question=f"{number}?", contexts=(), source="structure"))
        assert questions.of(turn) == f"{number}?"
    assert len(questions) <= 20


def test_a_chat_turn_that_was_not_seen_costs_few_calls():
    from gateway.capture.factory import extractors_of

    order = ("explicit", "tools", "results", "templates", "patterns", "documents", "structure")
    assert default_order() == order
    extractors = extractors_of(Settings())
    questions = EarlierQuestions(extractors)
    for turn in CHAT:
        questions.of(turn)
    unseen = (f"{CHAT[number % 2]} {number}" for number in range(300))
    counts = sorted(calls(partial(questions.of, turn)) for turn in unseen)
    assert counts[150] < MOST_CALLS
