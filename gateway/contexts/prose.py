"""Whether a text is prose: running text rather than a status, a log, code or a table."""

from __future__ import annotations

_LETTERS = 80
_SHARE = 0.82
_SPACES = 10
_LOOKED_AT = 2_000
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
