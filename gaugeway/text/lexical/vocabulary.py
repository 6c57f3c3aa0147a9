"""Words as integers, so that texts are compared as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import compress
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gaugeway.text.lexical.sentences import stem, weight_of_length

Ids: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]

MAX_WORDS = 170_000
"""Distinct words and stems that are numbered before those that no kept passage needs are forgotten (about 25 MB). With
174,763 a dict doubles.
"""


class Vocabulary:
    """Numbers for words and for their stems, and what each weighs. Not safe for several threads.

    A stem is numbered as the word that it spells. There is room for `usual` of them, and for the new ones of a sample
    beyond these; more make it grow until `keep`.
    """

    def __init__(self, weights: Weights, usual: int = MAX_WORDS) -> None:
        self._weights = weights
        self._room = room = usual + usual // 8
        self._numbers: dict[str, int] = {}
        # Zeros take no memory before they are written to.
        self._stem_of, self._length, self._idf = np.zeros(room, np.int32), np.zeros(room), np.zeros(room)
        self._scratch = np.zeros(usual + 1, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def scratch(self) -> Ints:
        """A place for each word, and one at the end for none; whoever uses them leaves all 0."""
        return self._scratch

    def clear_scratch(self) -> None:
        """Make every place of `scratch` 0, after a failure."""
        self._scratch[:] = 0

    def ids(self, words: Sequence[str]) -> Ids:
        """Return the number of each word; a new word gets the next one."""
        known = self._numbers
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
        return self._numbers.get(stem(word), -1)

    def keep(self, wanted: NDArray[np.bool_]) -> Ids:
        """Forget all words but those wanted, by number, and their stems; return the new number of each that is kept.

        What is returned is indexed by the old numbers, and means nothing for those of forgotten words.
        """
        wanted = wanted.copy()
        wanted[self._stem_of[wanted.nonzero()[0]]] = True
        numbers: Ids = wanted.cumsum(dtype=np.int32)
        numbers -= 1
        kept = wanted.nonzero()[0]
        values = numbers[self._stem_of[kept]], self._length[kept], self._idf[kept]
        self._numbers = dict(zip(compress(self._numbers, wanted.tobytes()), range(len(kept)), strict=False))
        if len(self._stem_of) > self._room:
            self._resize(max(self._room, len(kept)))
        self._stem_of[: len(kept)], self._length[: len(kept)], self._idf[: len(kept)] = values
        return numbers

    def _add(self, word: str) -> int:
        root = stem(word)
        if root == word:
            number = self._next(word)
            self._stem_of[number], self._idf[number] = number, self._weights.of(word)
        else:
            of = self._numbers[root] if root in self._numbers else self._add(root)
            number = self._next(word)
            self._stem_of[number] = of
        self._length[number] = weight_of_length(word)
        return number

    def _next(self, word: str) -> int:
        number = self._numbers[word] = len(self._numbers)
        if number == len(self._stem_of):
            self._resize(2 * number)
        return number

    def _resize(self, size: int) -> None:
        self._scratch = np.zeros(size + 1, np.int64)
        self._stem_of, self._length, self._idf = (
            np.concatenate([old[:size], np.zeros(max(0, size - len(old)), old.dtype)])
            for old in (self._stem_of, self._length, self._idf)
        )


@dataclass(frozen=True, slots=True)
class Weights:
    """The number of sentences, of `sentences`, that contain each stem; 0 if not in `counts`. Immutable.

    >>> weights = Weights(99, {"the": 60.0, "lantern": 1.0})
    >>> [round(weights.of(stem), 2) for stem in ("the", "lantern", "never seen")]
    [0.09, 0.79, 1.0]
    """

    sentences: float
    counts: Mapping[str, float]

    def of(self, stem: str) -> float:
        """ln((N + 1)/(n + 0.5)) as a share of what an unseen stem has: in (0, 1]."""
        whole = self.sentences + 1.0
        return math.log(whole / (self.counts.get(stem, 0.0) + 0.5)) / math.log(whole / 0.5)


def shipped() -> Weights:
    """Read the weights that come with the package: English, German, French and Spanish, from text of our own.

    See benchmarks/groundedness/table.py, which makes the file. Most of it is grammar; a word it does not know has full
    weight.
    """
    lines = resources.files(__package__).joinpath("idf.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    counts = {stem: float(count) for stem, count in rows}
    return Weights(counts.pop("="), counts)
