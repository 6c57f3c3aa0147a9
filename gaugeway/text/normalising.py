"""Unicode normalisation in linear time for any text."""

from __future__ import annotations

import functools
import re
import unicodedata
from itertools import chain

MOST_MARKS = 30
"""Combining marks kept in a row: the bound of Unicode's Stream-Safe Text Format (UAX #15); no language reaches it."""

_PLACES = (range(0x300, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000))
"""Where such characters may be: not among the CJK ideographs and Hangul syllables, which are most of Unicode."""
_SUSPECT = re.compile(
    "[" + "".join(f"{chr(place.start)}-{chr(place.stop - 1)}" for place in _PLACES) + f"]{{{MOST_MARKS + 1}}}"
)


def nfkc(text: str) -> str:
    """Return `text` in NFKC; of combining marks in a row the first 30 are kept.

    Normalisation sorts such a row by insertion: half a megabyte of marks would take minutes, with the GIL held.

    >>> nfkc("ﬁve e\u0301")
    'five é'
    """
    if text.isascii():
        return text
    if _SUSPECT.search(text) is None:  # thirty times faster than a class of single characters
        return unicodedata.normalize("NFKC", text)
    return unicodedata.normalize("NFKC", _long_rows().sub(lambda row: row[0][:MOST_MARKS], text))


@functools.cache
def _long_rows() -> re.Pattern[str]:
    """A row of more marks than are kept: of all characters that are or begin with one when decomposed."""
    marks = "".join(re.escape(chr(code)) for code in chain(*_PLACES) if _is_mark(chr(code)))
    return re.compile(f"[{marks}]{{{MOST_MARKS + 1},}}")


def _is_mark(character: str) -> bool:
    if unicodedata.combining(character):
        return True
    decomposed = unicodedata.decomposition(character)
    return bool(decomposed) and unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0
