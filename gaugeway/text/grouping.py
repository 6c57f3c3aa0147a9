"""Groups of alike texts without a model: TF-IDF cosines and average linkage. Deterministic.

`gaugeway.text.topics` divides all questions into topics. Here only texts that are alike make a group, however few, and
the weights of words come from a background: a word that all of these texts share still sets them apart from others.

References: R. R. Sokal, C. D. Michener (1958), A statistical method for evaluating systematic relationships;
F. Murtagh (1983), A survey of recent advances in hierarchical clustering algorithms (nearest-neighbour chains).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gaugeway.text.topics import STEM, Terms, frequent_form

Array: TypeAlias = NDArray[np.float32]

ALIKE = 0.06
"""Mean cosine of the texts of two groups, from which on they are one group. Texts about different subjects have 0.02 to
0.03, by chance; those of one subject have 0.08 to 0.2, as few of their words are the same."""
MAX_COLUMNS = 4_096
"""Words that are compared: those in most texts. All of them count for a text's length."""
KEYWORDS = 8
_LEAST_TEXTS, _LEAST_SHARE = 3, 0.1
"""A keyword is in three texts of its group, and in a tenth of them: rarer ones may be names."""


class WordWeights:
    """Weights of words, cut to six letters: those in few texts of the background weigh most."""

    def __init__(self, background: Iterable[Terms]) -> None:
        self._texts: Counter[str] = Counter()
        self._forms: Counter[str] = Counter()
        self._size = 0
        for terms in background:
            self._size += 1
            self._forms.update(terms.keys())
            self._texts.update({term[:STEM] for term in terms})

    def vectors(self, texts: Sequence[Terms], others: Sequence[Terms] = ()) -> tuple[Array, Array]:
        """Return unit vectors of texts, and of others in the same space; zero for a text without a word."""
        counts = Counter(term[:STEM] for terms in texts for term in terms)
        kept = sorted(counts, key=lambda stem: (-counts[stem], stem))[:MAX_COLUMNS]
        column = {stem: at for at, stem in enumerate(kept)}
        return self._matrix(texts, column), self._matrix(others, column)

    def _matrix(self, texts: Sequence[Terms], column: Mapping[str, int]) -> Array:
        matrix = np.zeros((len(texts), len(column)), dtype=np.float32)
        for row, terms in enumerate(texts):
            stems: Counter[str] = Counter()
            for term, n in terms.items():
                stems[term[:STEM]] += n
            weighed = {stem: (1.0 + math.log(n)) * self._weight(stem) for stem, n in stems.items()}
            length = math.sqrt(math.fsum(weight**2 for weight in weighed.values()))
            for stem, weight in weighed.items():
                if stem in column:
                    matrix[row, column[stem]] = weight / length
        return matrix

    def _weight(self, stem: str) -> float:
        # a word of every text says little, but is all that equal texts have
        return 0.02 + math.log((1.0 + self._size) / (1.0 + self._texts[stem]))

    def keywords(self, texts: Sequence[Terms]) -> tuple[str, ...]:
        """Return the words that texts of a group have more often than those of the background, the most typical first.

        >>> weights = WordWeights([{"refund": 1, "trains": 1}] * 5 + [{"trains": 1}] * 20)
        >>> weights.keywords([{"refund": 1, "trains": 1}] * 5)
        ('refund',)
        """
        counts = Counter(stem for terms in texts for stem in {term[:STEM] for term in terms})
        least = max(_LEAST_TEXTS, _LEAST_SHARE * len(texts))
        typical = {
            stem: n * math.log(n / len(texts) * (self._size + 1.0) / (self._texts[stem] + 1.0))
            for stem, n in counts.items()
            if n >= least
        }
        stems = sorted((stem for stem in typical if typical[stem] > 0.0), key=lambda stem: (-typical[stem], stem))
        return tuple(frequent_form(stem, self._forms) for stem in stems[:KEYWORDS])


def linked(likeness: Array, sizes: Sequence[int], least: float = ALIKE) -> list[int]:
    """Return the number of each text's group, from 0 in the order of their first texts.

    `likeness` [n, n] are cosines of texts, which stand for `sizes` equal ones each; it is overwritten. Groups are
    joined, the most alike first, while the mean cosine of two is at least `least`.

    >>> linked(np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]], dtype=np.float32), [1, 1, 1])
    [0, 0, 1]
    """
    weight, alive = np.array(sizes, dtype=np.float64), np.ones(len(sizes), dtype=np.bool_)
    joined, chain = list(range(len(sizes))), list[int]()
    np.fill_diagonal(likeness, -1.0)

    def drop(at: int) -> None:
        alive[at] = False
        likeness[at], likeness[:, at] = -1.0, -1.0

    while alive.any():
        chain = chain or [int(alive.argmax())]
        at, before = chain[-1], chain[-2] if len(chain) > 1 else -1
        nearest = int(likeness[at].argmax())
        if before >= 0 and likeness[at, before] >= likeness[at, nearest]:
            nearest = before
        if likeness[at, nearest] < least:  # by average linkage, merging others brings none nearer
            drop(chain.pop())
        elif nearest != before:
            chain.append(nearest)
        else:
            del chain[-2:]
            kept, gone = min(at, before), max(at, before)
            both = weight[kept] * likeness[kept] + weight[gone] * likeness[gone]
            weight[kept] += weight[gone]
            mean = np.where(alive, both / weight[kept], -1.0).astype(np.float32)
            mean[kept] = -1.0
            likeness[kept], likeness[:, kept] = mean, mean
            drop(gone)
            joined[gone] = kept
    return _numbered(joined)


def _numbered(joined: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}

    def last(at: int) -> int:
        while joined[at] != at:
            at = joined[at]
        return at

    return [numbers.setdefault(last(at), len(numbers)) for at in range(len(joined))]
