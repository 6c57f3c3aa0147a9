"""The question in what stands around passages."""

from __future__ import annotations

import pytest

from gateway.contexts.structure.question import find_question, is_question, question_of_turn, trimmed
from gateway.contexts.structure.word_index import IndexedText


def asked(said):
    found = find_question(IndexedText(said), [(0, len(said))])
    return None if found is None else found.text


@pytest.mark.parametrize(
    "said",
    [
        "Question: How tall is it?",
        "Question:\nHow tall is it?\n\nAnswer:",
        "<question>How tall is it?</question>",
        "<user_query>\nHow tall is it?\n</user_query>\nAnswer briefly.",
        "# User question\nHow tall is it?",
        'Answer this question: "How tall is it?"',
        "Now answer this question: How tall is it?",
        "Frage: How tall is it?\nAntwort:",
        "问题：How tall is it?",
        "How tall is it?",
        "If you don't know the answer, say that you don't know.\n\nHow tall is it?",
        "Question: How tall is it?\n\nAnswer only from the context. If you don't know, say so.",
        "### Instruction:\nHow tall is it?",
        "Question: How tall is it? /no_think",
    ],
)
def test_the_question_is_found_however_it_is_named(said):
    assert asked(said) == "How tall is it?"


@pytest.mark.parametrize("said", ["", "   ", "Answer only from the context above. If you don't know, say so."])
def test_instructions_are_no_question(said):
    assert asked(said) is None


def test_the_segment_behind_the_passages_comes_first():
    said = "Question: before?\nQuestion: behind?"
    assert find_question(IndexedText(said), [(18, len(said)), (0, 18)]).text == "behind?"
    assert find_question(IndexedText(said), [(len(said), len(said)), (0, 18)]).text == "before?"


def test_a_turn_without_passages_is_all_question():
    assert question_of_turn("How tall is it? And how old?").text == "How tall is it? And how old?"
    assert question_of_turn("<query>How tall?</query>").text == "How tall?"
    assert question_of_turn(" \n") is None


@pytest.mark.parametrize("said", ["How?", "多高？", "كم؟", "How? ", 'How?"', "Πόσο;"])
def test_a_question_mark_of_any_script_asks(said):
    assert is_question(said)


@pytest.mark.parametrize("said", ["It is tall.", "", "Why? Because."])
def test_what_does_not_end_with_one_does_not(said):
    assert not is_question(said)


@pytest.mark.parametrize("said", ['"How?"', "---\nHow?\n---", "How?.", "How? Antwort:", "How?**", "How? \t."])
def test_fences_quotes_and_a_label_behind_are_taken_off(said):
    assert trimmed(said) == "How?"
