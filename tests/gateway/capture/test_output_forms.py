"""A call is auxiliary by the form of what it gets and gives; what answers a user in the same form is an answer."""

from __future__ import annotations

import pytest

from gateway.capture.auxiliary_calls import auxiliary
from gateway.capture.factory import capture_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Exchange, Request, Response

FERRY = "The ferry to Orsa carries bicycles for 3 crowns. It leaves at seven from the north pier."
CHAT = "guest: When does the ferry leave?\nharbour: At seven.\nguest: And with a bicycle?\nharbour: At seven, too."
OPEN = "guest: When does the ferry leave?\nharbour: At seven.\nguest: And does the bicycle cost more?"


def of(system, user, answer):
    messages = [{"role": "system", "content": system}] if system else []
    body = {"model": "m", "messages": [*messages, {"role": "user", "content": user}]}
    response = Response(status=200, body={}, text=answer, finish_reason="stop")
    return Request(route="chat_completions", headers={}, body=body), response


def kind_of(system, user, answer):
    return auxiliary(*of(system, user, answer))


@pytest.mark.parametrize(
    ("kind", "system", "user", "answer"),
    [
        ("routing", "Tell the tickets apart: yes for boats, no for others. Only yes or no.", "Lost an oar", "no"),
        ("routing", "Zuordnung: fähre, hafen, sonstiges. Nur ein Wort.", "Wann legt sie ab?", "fähre"),
        ("routing", "Mark the message as 'calm' or 'angry'.", "Where is my boat?!", "angry"),
        ("grading", "How useful is the extract, from 0 (not) to 4 (fully)?", f"Extract: {FERRY}\nAsked: When?", "4"),
        ("extraction", 'Fill in as JSON: {"pier": "", "hour": ""}', FERRY, '{"pier": "north", "hour": "seven"}'),
        ("follow_ups", "What could the guest ask now?", CHAT, "1. What is the fare?\n2. Where is the pier?"),
        ("title", "A heading for the sidebar.", CHAT, "Ferry with a bicycle"),
        ("tags", "Labels, as JSON.", CHAT, '["ferry", "bicycle"]'),
        ("standalone_question", "Spell out the last turn.", OPEN, "Does a bicycle cost more on the ferry?"),
        (
            *("multi_query", "Say it in three other ways.", "When does the ferry to Orsa leave?"),
            "At what hour does the Orsa ferry leave?\nWhen is the ferry to Orsa?\nHow early does the ferry leave?",
        ),
    ],
)
def test_an_output_of_a_programs_form_answers_nobody(kind, system, user, answer):
    assert kind_of(system, user, answer) == kind


@pytest.mark.parametrize(
    ("system", "user", "answer"),
    [
        ("Answer the user's question. Say yes or no where that is enough.", "Is it late?", "no"),
        ("You are Pim. Boats: Heron, Swift, Otter.", "Which boat is red?", "Swift"),
        ("You are Pim. The pier has 1 crane and 3 berths.", "How many berths?", "3"),
        ("You are Pim, a guide.", "Rate the ferry from 1 to 5", "4"),
        ("You are Pim, a guide.", "Name a pier as JSON with the key pier", '{"pier": "north"}'),
        ("You are Pim, a guide.", "My boat is gone", "Which boat was it?"),
        ("You are Pim, a guide.", "Three questions for a quiz?", "1. What is a keel?\n2. Who rows?\n3. What floats?"),
        ("", f"{CHAT}\n\nWho is right here?", "The harbour"),
        ("", f"Turns before:\n{CHAT}\n\nNew question: Is there tea?\nAnswer:", "Tea is served on the upper deck."),
        ("", f"The following is a conversation.\n{CHAT}\nguest: Thanks!\nharbour:", "Have a good trip"),
    ],
)
def test_what_answers_a_user_in_such_a_form_is_an_answer(system, user, answer):
    assert kind_of(system, user, answer) is None


class App:
    """An app whose requests are captured one after the other."""

    def __init__(self):
        self.capture, self.count = capture_of(Settings(), "key"), 0

    def kind_of(self, system, user, answer):
        request, response = of(system, user, answer)
        self.count += 1
        sample = self.capture.make(
            Exchange(
                id=str(self.count),
                started_at=9.0 * self.count,
                duration_s=1.0,
                first_chunk_s=None,
                ending="complete",
                stream=False,
                app="a",
                model="m",
                request=request,
                response=response,
            )
        )
        return sample.tags.get("auxiliary")


@pytest.mark.parametrize(
    ("passage", "answer"),
    [
        ('A planner prompt says: Return JSON: {"queries": []}. Nothing else.', '{"queries": []}'),
        ("Summarise the following conversation. Title: Rates. Rate limits apply, only yes or no.", "yes"),
        ("Rewrite the user's question as a standalone question. Standalone question:", "The user's question"),
    ],
)
def test_a_passage_never_decides_the_kind(passage, answer):
    asked = f"Context:\n[1] {FERRY}\n[2] {passage} {FERRY}\n\nQuestion: What does the second text say?"
    assert App().kind_of("Answer the user's question from the context.", asked, answer) is None


QUESTIONS = [f"When does ferry number {number} leave the north pier?" for number in range(8)]


def kinds(pre, question_of):
    app, found = App(), []
    for number, question in enumerate(QUESTIONS):
        found.append(app.kind_of("Pim's notes.", question_of(question), pre(number)))
        asked = f"Context:\n{FERRY}\n\nBoats are painted in spring.\n\nQuestion: {question}"
        assert app.kind_of("Answer from the context.", asked, f"Ferry {number} leaves at seven, says the list.") is None
    return found


@pytest.mark.parametrize("pre", ["harbour".__add__, "An invented paragraph on the harbour, with the number ".__add__])
def test_a_call_that_is_asked_the_question_before_its_passages_are_is_a_step(pre):
    found = kinds(lambda number: pre(str(number)), lambda question: f"Asked: {question}")
    assert found[0] is None
    assert found[-1] == "intermediate_step"


def test_a_chat_beside_is_no_step():
    assert set(kinds(lambda number: f"You are welcome, guest {number}.", lambda _: "Thank you very much!")) == {None}
