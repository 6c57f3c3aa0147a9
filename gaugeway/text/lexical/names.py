"""Names: capitalised words where grammar requires no capital."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gaugeway.text.lexical.languages import Language
from gaugeway.text.lexical.numbers import UNITS

_PARTS = r"de|del|della|di|da|do|du|des|la|le|van|ter|bin|al|&|[^\W\d_]\."
_BETWEEN = re.compile(rf"[\s.\u2019'-]*(?:(?:of|the|von|der|den|{_PARTS})[\s-]+)*")
_BETWEEN_NOUNS = re.compile(rf"[\s.\u2019'-]*(?:(?:{_PARTS})[\s-]+)*")
_CLAUSE_BEGINS = tuple(":;\"'\u201c\u201e\u2018\u00ab(*|\u2022#>\u2014\u2013/[")
# Where all nouns have capitals, one that follows these without an article is a name more often than not.
_BEFORE_NAMES = frozenset(("in", "aus", "nach", "bei", "von", "gegen", "durch", "um"))
_TITLE = 3
# A dot after a word ends a name, unless the word is one of these.
_TITLES = "dr mr mrs ms prof st mt ft jr sr gen sen rep gov hon rev capt lt col sgt"
_DOTTED = frozenset(_TITLES.split())
_LOOK_BACK = 8


class Word(NamedTuple):
    """A word of a sentence: as written, folded, and where it stands."""

    written: str
    folded: str
    start: int
    end: int


class Name(NamedTuple):
    """A name as written; the words that must be found for it, folded; its initials, for an abbreviation to fit.

    `initials` are without and with words such as "of": "be" and "boe" of "Bank of England".
    """

    text: str
    words: tuple[str, ...]
    initials: frozenset[str]


def find(text: str, words: Sequence[Word], language: Language) -> tuple[Name, ...]:
    """Find the names of a sentence. A sentence's first word alone is no evidence: it is always capitalised."""
    if _is_title(words, language):
        return ()
    found = []
    for first, last in _runs(text, words, language):
        run = list(words[first:last])
        before = text[max(0, run[0].start - _LOOK_BACK) : run[0].start].rstrip()
        opens = not before or before.endswith(_CLAUSE_BEGINS)
        if (opens or before.endswith(".")) and run[0].folded in language.openers:
            run, opens = run[1:], False
        between, run = run, [word for word in run if _capital(word)]
        asked = run[1:] if opens else run
        if not asked or (language.nouns_capitalised and not _name_among_nouns(words, first, len(asked))):
            continue
        shown = text[run[0].start : run[-1].end]
        shown = re.sub("['\u2019]s?$", "", shown)
        every = between[between.index(run[0]) :]
        initials = frozenset("".join(word.folded[0] for word in some) for some in (run, every))
        found.append(Name(shown, tuple(word.folded for word in asked), initials))
    return tuple(found)


def _runs(text: str, words: Sequence[Word], language: Language) -> list[tuple[int, int]]:
    """From where to where capitalised words stand together, with nothing but "of", "van" and the like in between."""
    between = _BETWEEN_NOUNS if language.nouns_capitalised else _BETWEEN
    runs: list[tuple[int, int]] = []
    previous: int | None = None
    for index, word in enumerate(words):
        if not _capital(word):
            continue
        if previous is not None and _stand_together(text, words[previous], word, between, language):
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
        previous = index
    return runs


def _stand_together(text: str, first: Word, second: Word, between: re.Pattern[str], language: Language) -> bool:
    """Whether two capitalised words may be one name: "Bank of England", but not "Ada's Paris" nor "CA. It"."""
    if first.written.endswith(("'s", "\u2019s")) or between.fullmatch(text, first.end, second.start) is None:
        return False
    if "." not in text[first.end : second.start]:
        return True
    dotted = first.folded in _DOTTED or not text.startswith(".", first.end)
    return dotted and second.folded not in language.openers


def _capital(word: Word) -> bool:
    """Whether a word begins like a name; "I'm" and "USD" do not count."""
    return (
        word.written[0].isupper()
        and len(word.written) > 1
        and not word.written.startswith(("I'", "I\u2019"))
        and word.folded not in UNITS
    )


def _name_among_nouns(words: Sequence[Word], first: int, asked: int) -> bool:
    return asked > 1 or (first > 0 and words[first - 1].folded in _BEFORE_NAMES)


def _is_title(words: Sequence[Word], language: Language) -> bool:
    """Whether all words that are more than grammar begin with capitals, as in a heading: such capitals name nothing."""
    said = 0
    for word in words:
        if word.folded not in language.openers and word.folded not in language.marks:
            if not word.written[0].isupper():
                return False
            said += 1
    return said >= _TITLE
