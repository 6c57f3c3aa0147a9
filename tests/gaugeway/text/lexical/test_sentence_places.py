"""The places of sentences: those that the lexical metric reads, with their offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.text.lexical.sentences import sentence_places, sentences

TEXTS = [
    "The mill was built in 1907. It grinds wheat, e.g. rye. Ask Dr. Ode on 6. Mai 2024!",
    "- First point of three.\n- Second point of three.\n\nAnd a conclusion here",
    "Das Amt öffnet um 9 Uhr. Es schließt z. B. am 6. Mai früher.",
    "水は百度で沸騰する。氷は零度で溶ける。では\uff1f",
    "น้ำเดือดที่ร้อยองศา น้ำแข็งละลายที่ศูนย์องศา",
    'He said "it is so." Then he left [1]. Really?',
    "Yes. No. It was never like that at all.",
    "",
    "   ",
    "!!! ...",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_sentences_are_those_of_the_lexical_metric(text):
    found = [text[start:end] for start, end in sentence_places(text)]
    assert len(found) == len(sentences(text))
    for place, read in zip(found, sentences(text), strict=True):
        words = [word for word in read.text.split() if word.isalpha()]
        assert all(word in place for word in words), (place, read.text)


@given(st.text(alphabet="ab1 .!?\n-[]。กข\u0301\ud7a3", max_size=80))
def test_places_are_in_order_do_not_overlap_and_lose_no_word(text):
    places = list(sentence_places(text))
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert all(one[1] <= other[0] for one, other in pairwise(places))
    assert all(text[start:end].strip() == text[start:end] for start, end in places)
    covered = "".join(text[start:end] for start, end in places)
    letters = [one for one in text if one in "ab"]
    assert [one for one in covered if one in "ab"] == letters
