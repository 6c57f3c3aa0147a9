"""Words as integers, so that texts are compared as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from monitors.metrics.lexical.sentences import stem, weight_of_length

MAX_WORDS = 200_000
"""Distinct words that are numbered before the vocabulary starts again (about 30 MB)."""


class Vocabulary:
    """Numbers for words and for their stems. Not safe for several threads."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._stems: dict[str, int] = {}
        self._stem_of: list[int] = []
        self._length_of: list[float] = []
        self._stem_texts: list[str] = []

    def __len__(self) -> int:
        return len(self._words)

    def ids(self, words: Iterable[str]) -> list[int]:
        """Return the number of each word; a new word gets the next one."""
        known = self._words
        return [known[word] if word in known else self._add(word) for word in words]

    def stems(self, ids: Iterable[int]) -> list[int]:
        """Return the number of each word's stem."""
        return list(map(self._stem_of.__getitem__, ids))

    def length_weights(self, ids: Iterable[int]) -> list[float]:
        """Return what each word weighs by its length, in (0, 1]."""
        return list(map(self._length_of.__getitem__, ids))

    def stem_texts(self, stems: Iterable[int]) -> Sequence[str]:
        """Return the stems behind these numbers."""
        return list(map(self._stem_texts.__getitem__, stems))

    def stem_id(self, word: str) -> int:
        """Return the number of a word's stem, -1 where no word with it was numbered."""
        return self._stems.get(stem(word), -1)

    def _add(self, word: str) -> int:
        number = self._words[word] = len(self._words)
        root = stem(word)
        if root not in self._stems:
            self._stems[root] = len(self._stems)
            self._stem_texts.append(root)
        self._stem_of.append(self._stems[root])
        self._length_of.append(weight_of_length(word))
        return number
