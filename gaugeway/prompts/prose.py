"""Whether a text is prose: running text rather than a status, a log, code or a table."""

from __future__ import annotations

import re

_LETTERS = 80
_SHARE = 0.82
_SPACES = 10
_LOOKED_AT = 2_000
_LAST, _WEIGHED = 12, 200
_ENDS = re.compile(r"[.!?:;\u3002\uff01\uff1f\u2026][\"'\u201d\u00bb)\]*_]{0,3}\s*\Z")
_WIDE = 0x2E80
"""From here on a character is a syllable or a word (Chinese, Japanese, Korean)."""


def reads_like_a_passage(text: str) -> bool:
    """Tell running text from a status, a log, code or a table; looks at the beginning only.

    >>> reads_like_a_passage("Ticket 4711 was created.")
    False
    """
    sample = text[:_LOOKED_AT]
    visible = letters = wide = 0
    for character in sample:
        if character.isspace():
            continue
        visible += 1
        if character.isalpha():
            letters += 1
            wide += ord(character) >= _WIDE
    return letters + 2 * wide >= _LETTERS and letters >= _SHARE * visible and (wide > 0 or sample.count(" ") >= _SPACES)


def ends_a_sentence(text: str) -> bool:
    """Whether a text ends like a sentence."""
    return _ENDS.search(text[-_LAST:]) is not None


def weight(text: str) -> int:
    """Length in letters, where a syllable or a word (Chinese, Japanese, Korean) counts for three."""
    return sum(3 if ord(character) >= _WIDE else 1 for character in text[:_WEIGHED])
