"""Words as integers, so that texts are compared as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from monitors.metrics.lexical.idf import Weights
from monitors.metrics.lexical.sentences import stem, weight_of_length

Ids: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]

MAX_WORDS = 200_000
"""Distinct words that are numbered before the vocabulary starts again (about 30 MB)."""
_FIRST = 4_096


class Vocabulary:
    """Numbers for words and for their stems, and what each weighs. Not safe for several threads."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._words: dict[str, int] = {}
        self._stems: dict[str, int] = {}
        self._stem_of = np.zeros(_FIRST, np.int32)
        self._length = np.zeros(_FIRST)
        self._idf = np.zeros(_FIRST)
        self._scratch = np.zeros(_FIRST, np.int64)

    def __len__(self) -> int:
        return len(self._words)

    @property
    def scratch(self) -> Ints:
        """A place for each word, and one at the end for none; whoever uses them leaves all 0."""
        return self._scratch

    def ids(self, words: Sequence[str]) -> Ids:
        """Return the number of each word; a new word gets the next one."""
        known = self._words
        try:
            numbers = list(map(known.__getitem__, words))
        except KeyError:
            numbers = [known[word] if word in known else self._add(word) for word in words]
        return np.array(numbers, np.int32)

    def stems(self, ids: Ids | Ints) -> Ids:
        """Return the number of each word's stem."""
        return self._stem_of[ids]

    def length_weights(self, ids: Ids | Ints) -> NDArray[np.float64]:
        """Return what each word weighs by its length, in (0, 1]."""
        return self._length[ids]

    def idf(self, stems: Ids | Ints) -> NDArray[np.float64]:
        """Return the inverse document frequency of each stem, in (0, 1]."""
        return self._idf[stems]

    def stem_id(self, word: str) -> int:
        """Return the number of a word's stem, -1 where no word with it was numbered."""
        return self._stems.get(stem(word), -1)

    def _add(self, word: str) -> int:
        number = self._words[word] = len(self._words)
        if number + 1 == len(self._scratch):
            self._scratch = np.zeros(2 * len(self._scratch), np.int64)
        if number == len(self._stem_of):
            self._stem_of, self._length, self._idf = (
                np.concatenate([old, np.zeros_like(old)]) for old in (self._stem_of, self._length, self._idf)
            )
        root = stem(word)
        if root not in self._stems:
            self._idf[len(self._stems)] = self._weights.of(root)
            self._stems[root] = len(self._stems)
        self._stem_of[number] = self._stems[root]
        self._length[number] = weight_of_length(word)
        return number
