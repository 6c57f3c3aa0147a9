"""The index of words that name parts of prompts."""

import pytest

from gaugeway.prompts.form.word_index import HEAD, TAIL, IndexedText


def test_of_a_long_text_the_beginning_and_the_end_are_indexed():
    filler = "The mill turns.\n" * ((HEAD + TAIL) // 16 + 10)
    text = IndexedText(f"Context:\n{filler}Question: how far?")
    assert text.has("context", 0, 10)
    assert text.has("question", len(text.text) - 30, len(text.text))
    hidden = f"{'The mill turns.' * 9000}\nContext:\n{filler}"
    assert not IndexedText(hidden).has("context", 0, len(hidden))


@pytest.mark.parametrize("said", ["İİİ Context: a", "\ud800 Context: a", "ẞ Context: a"])
def test_odd_letters_leave_offsets_as_they_are(said):
    text = IndexedText(said)
    assert [said[at:stop] for at, stop in text.found("context", 0, len(said))] in (["Context"], ["ontext:"])
    assert len(text.lower) == len(said)


def test_a_word_is_found_behind_letters_that_another_entry_shares_with_it():
    text = IndexedText("Give a concise answer.")  # "se a" opens sentences in Portuguese
    assert text.has("answer", 0, len(text.text))
