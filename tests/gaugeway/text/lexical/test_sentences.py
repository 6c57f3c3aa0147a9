"""Sentences and words of any script: where they end, and that nothing is lost."""

from __future__ import annotations

import doctest
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.text.lexical import sentences as module
from gaugeway.text.lexical.sentences import (
    capitalised,
    numbers,
    sentences,
    stem,
    weight_of_length,
    without_marks,
    words,
)


def texts(text):
    return [text[start:end] for start, end, _ in sentences(text)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("He came on 6. Mai 2024 with Dr. Ode. Then he left the town again.", 2),
        ("It costs 79. The battery is not included in that.", 2),
        ("1. Take the lamp out.\n2. Put the battery in.", 2),
        ("12. Mai 2024 war der Tag der Wahl.", 1),
        ("ร้านเปิดเก้าโมง ลูกค้าคนแรกมาแล้ว", 2),
        ("यह दीपक है और नया है। वह कल आया था।", 2),
        ("水は百度で沸騰する。氷は零度で溶ける。では\uff1f", 3),
        ("Das Amt öffnet um 9 Uhr. Es schließt z. B. am 6. Mai früher.", 2),
        ("It was built in Fresno, CA. It is open today.", 2),
        ('He said "it is so." Then he left [1]. Really?', 3),
        ("Yes. No. It was never like that at all.", 1),
        ("", 0),
        ("!!! ...", 0),
    ],
)
def test_sentences_end_where_they_should(text, count):
    assert len(texts(text)) == count


@given(st.text(alphabet="ab1 .!?\n-[]。กข\u0301\ud7a3", max_size=80))
def test_sentences_are_in_order_do_not_overlap_and_lose_no_word(text):
    found = list(sentences(text))
    assert all(0 <= start < end <= len(text) for start, end, _ in found)
    assert all(before.end <= after.start for before, after in pairwise(found))
    assert all(piece.strip() == piece for piece in texts(text))
    assert [letter for letter in "".join(texts(text)) if letter in "ab"] == [
        letter for letter in text if letter in "ab"
    ]
    assert all(words(piece) for piece in texts(text))


@given(st.text(alphabet="aB9é. _'\u2019", max_size=30))
def test_a_sentence_has_the_words_of_its_text(text):
    assert [word for sentence in sentences(text) for word in sentence.words] == words(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("東京は大きい", ["東京", "京は", "は大", "大き", "きい"]),
        ("東", ["東"]),
        ("กรุงเทพ", ["กรุ", "รุง", "ุงเ", "งเท", "เทพ"]),
        ("iPhone用ケース", ["iphone", "用ケ", "ケー", "ース"]),
        ("서울은 한국", ["서울", "울은", "한국"]),
        ("भारत की राजधानी", ["भारत", "की", "राजधानी"]),
        ("Bru\u0308cke \uff11\uff12 \ufb01ve", ["brücke", "12", "five"]),
        ("Ode\u2019s [EMAIL_7f3ac1], \u201cso\u201d", ["ode", "s", "email", "7f3ac1", "so"]),
        ("\ud800 \u2014 \U0001f600", []),
    ],
)
def test_words_of_all_scripts(text, found):
    assert words(text) == found


def test_list_marks_and_citations_are_left_out():
    assert (
        without_marks("1. It costs 79 euros [2].\n- It weighs 5 g [1, 3].")
        == " It costs 79 euros  .\n It weighs 5 g  ."
    )
    assert without_marks("12. Mai 2024") == "12. Mai 2024"


def test_numbers_of_texts_that_are_not_ascii():
    assert numbers("\u201c1,234.5\u201d \u2013 \ud800 3\u00a0kg") == ["1,234.5", "3"]


def test_capitals_of_texts_that_are_not_ascii():
    assert capitalised("\u00dcber \u00d6zil aus \u201cGent\u201d, \u00df") == ["Özil", "Gent"]


def test_stems_and_lengths():
    assert (stem("refunds"), stem("東京")) == ("refund", "東京")
    assert (weight_of_length("the"), weight_of_length("12"), weight_of_length("東京")) == (0.6, 1.0, 1.0)


def test_the_examples_in_the_docstrings_hold():
    results = doctest.testmod(module)
    assert (results.attempted > 0, results.failed) == (True, 0)
