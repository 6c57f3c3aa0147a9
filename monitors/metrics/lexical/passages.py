"""Passages parsed once: RAG traffic shows the same ones again and again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from monitors.metrics.lexical.sentences import Allowance, sentences
from monitors.metrics.lexical.vocabulary import MAX_WORDS, Vocabulary

Ids: TypeAlias = NDArray[np.int32]

MAX_TOKENS = 2_000_000
"""Tokens of the passages that are kept, with 12 bytes each."""


@dataclass(slots=True)
class Passage:
    """A parsed passage: for each token its word, its stem and its sentence; and the values its numbers state."""

    words: Ids
    stems: Ids
    rows: Ids
    sentences: int
    numbers: frozenset[str]
    _initials: frozenset[str] | None = field(default=None)

    def initials(self, text: str) -> frozenset[str]:
        """The initials of the names in the passage, whose text is `text`; read when first asked for."""
        if self._initials is None:
            self._initials = frozenset(name.initials for one in sentences(text) for name in one.names)
        return self._initials

    def sentence_stems(self) -> Iterator[frozenset[int]]:
        """The numbers of the stems of each sentence."""
        bounds = np.searchsorted(self.rows, np.arange(self.sentences + 1))
        stems = self.stems.tolist()
        return (frozenset(stems[begin:end]) for begin, end in pairwise(bounds))


def read_passage(text: str, vocabulary: Vocabulary, allowance: Allowance) -> Passage:
    """Parse a passage. Raises TooLongError when it has more tokens than the allowance has left."""
    words: list[int] = []
    lengths: list[int] = []
    numbers: set[str] = set()
    for one in sentences(text, allowance, with_names=False):
        words += vocabulary.ids(one.tokens)
        lengths.append(len(one.tokens))
        for number in one.numbers:
            numbers |= number.states
    return Passage(
        words=np.array(words, np.int32),
        stems=np.array(vocabulary.stems(words), np.int32),
        rows=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        sentences=len(lengths),
        numbers=frozenset(numbers),
    )


class PassageCache:
    """Parsed passages by the hash of their text; the least recently used go first. Not safe for several threads."""

    def __init__(self, max_tokens: int = MAX_TOKENS, max_words: int = MAX_WORDS) -> None:
        self.vocabulary = Vocabulary()
        self.hits = 0
        self.misses = 0
        self._max_tokens, self._max_words = max_tokens, max_words
        self._passages: OrderedDict[bytes, Passage] = OrderedDict()
        self._tokens = 0

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return self._tokens

    def __len__(self) -> int:
        return len(self._passages)

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._passages

    def trim(self) -> None:
        """Bring the cache back to its limits. Call it between samples: numbers of words do not survive it."""
        if len(self.vocabulary) > self._max_words:
            self.vocabulary = Vocabulary()
            self._passages.clear()
            self._tokens = 0
        while self._tokens > self._max_tokens:
            _, oldest = self._passages.popitem(last=False)
            self._tokens -= len(oldest.words)

    def get(self, text: str, allowance: Allowance) -> tuple[Passage, bool]:
        """Return the parsed passage, and whether it was new.

        Raises TooLongError when it has more tokens than the allowance has left.
        """
        key = _key(text)
        if (found := self._passages.get(key)) is not None:
            self._passages.move_to_end(key)
            self.hits += 1
            allowance.use(len(found.words))
            return found, False
        self.misses += 1
        parsed = self._passages[key] = read_passage(text, self.vocabulary, allowance)
        self._tokens += len(parsed.words)
        return parsed, True


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
