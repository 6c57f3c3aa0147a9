"""Finds which of many phrases a text has, in one pass over it."""

from __future__ import annotations

from collections.abc import Iterable

import ahocorasick_rs


class Phrases:
    """A set of phrases to look for.

    >>> sorted(Phrases(["kettle", "the kettle", "tea"]).found_in("the kettle is hot"))
    ['kettle', 'the kettle']
    """

    __slots__ = ("_phrases", "_search")

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = sorted(set(phrases))
        self._search = ahocorasick_rs.AhoCorasick(self._phrases)

    def found_in(self, text: str) -> set[str]:
        """Return the phrases that occur in a text, those within others too."""
        try:
            matches = self._search.find_matches_as_indexes(text, overlapping=True)
        except UnicodeEncodeError:  # half of a surrogate pair
            text = text.encode("utf-8", "replace").decode()
            matches = self._search.find_matches_as_indexes(text, overlapping=True)
        return {self._phrases[index] for index, _, _ in matches}


def addresses_judge(text: str) -> bool:
    """Return whether a text addresses whoever judges it."""
    return "\N{NULL}" in text
