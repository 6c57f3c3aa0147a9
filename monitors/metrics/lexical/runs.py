"""An index of runs of words in texts, in 48 bytes a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]


class Runs:
    """The runs of up to `longest` words in `texts`; a run ends with its text.

    A run has a number: its first words' number and its last word's, in one. So it is found exactly, without being held.
    """

    def __init__(self, texts: Iterable[Sequence[str]], longest: int) -> None:
        self._words: dict[str, int] = {}
        numbers: list[int] = []
        for text in texts:
            numbers += [self._words.setdefault(word, len(self._words) + 1) for word in text]
            numbers.append(0)
        self._base = len(self._words) + 1
        words = np.array(numbers, dtype=np.int64)
        self._known: list[Ids] = []
        starts = np.flatnonzero(words)
        firsts = words[starts]
        for length in range(2, longest + 1):
            lasts = words[starts + (length - 1)]
            starts, firsts, lasts = starts[lasts > 0], firsts[lasts > 0], lasts[lasts > 0]
            known, firsts = np.unique(firsts * self._base + lasts, return_inverse=True)
            firsts = firsts + 1
            self._known.append(known)
            starts, firsts = starts[starts + length < len(words)], firsts[starts + length < len(words)]

    def found(self, words: Sequence[str]) -> tuple[int, int]:
        """Return how many pairs of neighbours among `words` stand somewhere, and the length of the longest run."""
        numbers = np.array([self._words.get(word, 0) for word in words], dtype=np.int64)
        starts = np.flatnonzero(numbers)
        firsts, pairs, longest = numbers[starts], 0, min(1, len(starts))
        for length, known in enumerate(self._known, 2):
            inside = starts + (length - 1) < len(numbers)
            starts, firsts = starts[inside], firsts[inside]
            runs = firsts * self._base + numbers[starts + (length - 1)]
            places = np.searchsorted(known, runs)
            there = places < len(known)
            there[there] = known[places[there]] == runs[there]
            if not there.any():
                break
            starts, firsts, longest = starts[there], places[there] + 1, length
            pairs = pairs or len(starts)
        return pairs, longest
