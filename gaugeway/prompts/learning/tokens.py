"""Words, numbers, blanks and signs of a text, and their salted hashes."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

from gaugeway.prompts.learning.alignment import BLANK, SIGN, WORD

_SINGLE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: each character is a token."""

_TOKEN = re.compile(rf"[{_SINGLE}]|[^\W\d_{_SINGLE}]+|\d+|\n|[ \t]+|-+|=+|#+|\*+|_+|\"+|'+|`+|~+|.", re.DOTALL)

MOST_TOKENS = 8_000
"""Most tokens compared per text: its first and last ones, where an app's instructions are."""


def salted(*said: object) -> int:
    """Return a hash that is meaningless outside this process: Python salts string hashes unless PYTHONHASHSEED is set.

    Those of single tokens, of which there are few, have a salt of their own (`hashes`).
    """
    return hash(said)


def spans(text: str) -> tuple[list[str], list[int]]:
    """Return the tokens of a text and where each begins, with the text's length as the last entry."""
    tokens = _TOKEN.findall(text)
    return tokens, [0, *accumulate(map(len, tokens))]


def bounded(tokens: list[str], most: int = MOST_TOKENS) -> tuple[list[str], int]:
    """Return at most `most` tokens, the first and the last, and the number left out in the middle."""
    if len(tokens) <= most:
        return tokens, 0
    half = most // 2
    return tokens[:half] + tokens[-half:], len(tokens) - 2 * half


def hashes(tokens: list[str], salt: int) -> array[int]:
    """Return 32 bits of each token's salted hash: enough to compare texts, too few to read one from."""
    return array("I", [hash((salt, token)) & 0xFFFFFFFF or 1 for token in tokens])


def kind_of(token: str) -> int:
    """Return BLANK, WORD, or SIGN (which includes numbers and line breaks)."""
    first = token[0]
    return WORD if first.isalpha() else BLANK if first in " \t" else SIGN
