"""Which requests are compared with each other: those that begin with the same instructions."""

import pytest

from gaugeway.exchange import Request
from gaugeway.prompts.learning.frames import MOST_OPENINGS, Openings, frame_of

ORDERS = "You are the assistant of a museum.\nAnswer from the notes below."


def of(openings, user, system=None):
    messages = [{"role": "user", "content": user}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    frame = frame_of(Request(route="chat_completions", headers={}, body={"messages": messages}))
    return openings.of(frame.text)


def notes(number):
    return f"Notes:\nThe hall has {number} windows to the river side.\n\nQuestion: Which room is number {number}?"


def test_requests_that_begin_with_the_same_instructions_have_the_same_opening_from_the_second_on():
    openings = Openings()
    found = [of(openings, f"{ORDERS}\n{notes(number)}") for number in range(4)]
    assert found[0] == ()
    assert len(set(found[1:])) == 1
    assert len(found[1]) == 2


def test_numbers_in_the_instructions_do_not_matter():
    openings = Openings()
    found = [
        of(openings, f"Answer in at most {number} words from these notes.\n{notes(number)}") for number in range(3)
    ]
    assert found[1] == found[2] != ()


def test_other_instructions_behind_the_same_first_line_are_another_opening():
    openings = Openings()
    other = ORDERS.replace("Answer from the notes below.", "Write a list of the notes that speak of it.")
    for number in range(2):
        one, two = of(openings, f"{ORDERS}\n{notes(number)}"), of(openings, f"{other}\n{notes(number)}")
    assert () != one != two != ()


def test_instructions_of_the_system_text_count_and_a_turn_of_one_line_is_a_question():
    openings = Openings()
    found = [of(openings, "Tell me which room it is.", f"{ORDERS}\n{notes(number)}") for number in range(3)]
    assert found[1] == found[2] != ()
    assert len(found[1]) == 2


@pytest.mark.parametrize("label", ["", "[1] ", "Context: "])
def test_a_passage_that_reads_like_an_instruction_and_stands_elsewhere_too_is_no_opening(label):
    openings = Openings()
    advice = "Answer the door of the museum before nine in the morning and use the bell."
    of(openings, f"{label}{advice}\n{notes(1)}")
    of(openings, f"[1] The museum opens at nine.\n[2] {advice}\n\nQuestion: When?")
    assert [of(openings, f"{label}{advice}\n{notes(number)}") for number in range(3)] == [()] * 3


def test_openings_that_are_not_seen_again_are_forgotten():
    openings = Openings()
    words = [f"{one}{two}" for one in "abcdefgh" for two in "abcdefgh"]
    of(openings, f"{ORDERS}\n{notes(1)}")
    for word in words:
        of(openings, f"Answer in the words of {word}.\n{notes(1)}")
    assert len(words) > MOST_OPENINGS
    assert openings.size <= 200 * MOST_OPENINGS
    assert of(openings, f"{ORDERS}\n{notes(1)}") == ()
