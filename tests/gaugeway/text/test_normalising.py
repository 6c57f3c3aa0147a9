"""Normalisation is Unicode's, in linear time."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.text.normalising import nfkc


@pytest.mark.parametrize("row", ["\u0301\u0316", "\uff9e\u0316", "\u0f73\u0301\u0316", "\u0344\u0327"])
def test_rows_of_combining_marks_are_normalised_in_linear_time(row):
    assert len(nfkc("a" + row * 300_000 + "b" + row)) < 100
    assert nfkc("a" + row * 10) == unicodedata.normalize("NFKC", "a" + row * 10)


@given(st.text())
def test_ordinary_text_is_normalised_as_unicode_says(text):
    assert nfkc(text) == unicodedata.normalize("NFKC", text)
