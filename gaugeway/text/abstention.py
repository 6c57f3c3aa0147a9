"""Whether an answer declines to answer: "I don't know", "the documents do not say", a refusal. A pure function."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gaugeway.text.abstention_phrases import PHRASES, Phrases
from gaugeway.text.decoration import undecorated
from gaugeway.text.language import language_of

LONGEST = 1_000
"""Characters of an answer that only declines: a longer one says something else too."""
_MOST_CLAUSES = 16
_QUOTED = re.compile(
    r"\"[^\"\n]{0,200}\"|\u201c[^\u201d\n]{0,200}\u201d|\u201e[^\u201c\u201d\n]{0,200}[\u201c\u201d]|\u00ab[^\u00bb\n]{0,200}\u00bb"
    r"|\u300c[^\u300d\n]{0,200}\u300d|`[^`]{0,200}`|(?<!\w)'[^'\n]{2,200}'(?!\w)|(?m:^>.*$)"
)
_QUOTES = re.compile("[\"\u201c\u201e\u00ab\u300c`'>]")
_QUOTATION = "\u25a1"
_SENTENCE = re.compile(r"[.!?\u061f]\s+|[\u3002\uff01\uff1f\u0964]\s*|\n+")
_EDGES = " \t\r.,;:!?*_#>-\u2022\u3002\uff0c\u3001\uff01\uff1f\u0964\u061f\u060c\u00bf\u00a1()[]"
_LETTER = re.compile(r"\w")
_LATIN = ("en", "de", "fr", "es", "it", "pt", "nl", "tr")


def abstained(text: str) -> bool:
    """Return whether an answer declines, in one of the languages of `PHRASES`.

    It does if a clause of it says so, and no other clause says anything but apologies, offers of help or where else to
    look: "The documents do not give a date, but the fair opens in May" answers. What stands around the words is removed
    first (`undecorated`). Quotations are not the answer's own words. In doubt it answers. Takes time in the length of
    the text; one with more than 1000 characters of its own answers.

    >>> abstained("I'm sorry, but the documents do not mention the opening hours. Please contact the museum.")
    True
    >>> abstained("The documents do not mention Sundays, but the museum opens at nine on weekdays.")
    False
    >>> abstained('The host replied "I do not know". Ask it again.')
    False
    """
    if not (text := undecorated(text)) or len(text) > LONGEST:
        return False
    if _QUOTES.search(plain := text.lower().replace("\u2019", "'").replace("\uff0c", ",")) is not None:
        plain = _QUOTED.sub(_QUOTATION, plain)
    return any(_declines(plain, PHRASES[name]) for name in _languages(text))


def _declines(text: str, phrases: Phrases) -> bool:
    """Return whether a clause of a text in lower case declines, and no other one says something."""
    declined = False
    for number, clause in enumerate(_clauses(text, phrases)):
        if number >= _MOST_CLAUSES:
            return False
        said = phrases.declines.match(clause) is not None or phrases.anywhere.search(clause) is not None
        if said or _lacks(clause, phrases):
            declined = True
        elif phrases.polite.match(clause) is None:
            return False
    return declined


def _lacks(clause: str, phrases: Phrases) -> bool:
    """Return whether a clause says that the passages lack something, and beside it nothing but what was asked."""
    if (found := phrases.lacking.search(clause)) is None:
        return False
    before, after = clause[: found.start()].split(",")[:-1], clause[found.end() :].split(",")[1:]
    openings = (phrases.polite, phrases.opening)
    return all(any(pattern.match(part.strip()) for pattern in openings) for part in before if part.strip()) and all(
        phrases.joins.match(part.strip()) or phrases.polite.match(part.strip()) for part in after if part.strip()
    )


def _languages(text: str) -> tuple[str, ...]:
    """The languages to try: the one that the text shows, or all of its script."""
    if (found := language_of(text)) is not None:
        return (found,)
    return _LATIN if text.isascii() else tuple(PHRASES)


def _clauses(text: str, phrases: Phrases) -> Iterator[str]:
    """Yield the clauses of a text; it is split no further than they are read."""
    for sentence in _sentences(text):
        for part in phrases.turns.split(sentence):
            if _LETTER.search(clause := part.strip(_EDGES)) or _QUOTATION in clause:
                yield clause


def _sentences(text: str) -> Iterator[str]:
    at = 0
    for end in _SENTENCE.finditer(text):
        yield text[at : end.start()]
        at = end.end()
    yield text[at:]
