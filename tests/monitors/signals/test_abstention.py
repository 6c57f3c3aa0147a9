"""Answers that decline are told from answers that only mention it, in every language of the phrases."""

import pytest

from monitors.signals.abstention import LONGEST, abstained
from monitors.signals.abstention_phrases import PHRASES
from monitors.signals.language import LANGUAGES
from tests.monitors.signals.answers import ANSWERS, DECLINES

DECLINING = [(name, text) for name, texts in DECLINES.items() for text in texts]
ANSWERING = [(name, text) for name, texts in ANSWERS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), DECLINING)
def test_it_declines(name, text):
    assert abstained(text), name


@pytest.mark.parametrize(("name", "text"), ANSWERING)
def test_it_answers(name, text):
    assert not abstained(text), name


def test_every_language_has_examples_of_both_kinds():
    assert set(DECLINES) == set(ANSWERS) == set(PHRASES) == set(LANGUAGES)


@pytest.mark.parametrize(("name", "answer"), [(name, ANSWERS[name][0]) for name in PHRASES])
def test_a_refusal_with_an_answer_behind_it_answers(name, answer):
    for text in DECLINES[name]:
        assert not abstained(f"{text} {answer}"), text
        assert not abstained(f"{answer} {text}"), text


@pytest.mark.parametrize("text", ["", "  \n", "...", "42", "```\nI don't know\n```", "> I don't know.\nRestart it."])
def test_texts_without_a_statement_of_their_own_answer(text):
    assert not abstained(text)


def test_a_long_text_answers():
    assert not abstained("I don't know. " * LONGEST)


@pytest.mark.parametrize(
    "piece", ["i don't know if ", "the provided documents ", "in den ", "не ", "je ne ", ", ", "'", "“"]
)
def test_the_time_is_bounded_for_hostile_texts(piece):
    assert abstained((piece * LONGEST)[:LONGEST]) in (True, False)
