"""Passages parsed once: RAG traffic shows the same ones again and again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gaugeway.text.lexical.sentences import Allowance, sentences
from gaugeway.text.lexical.vocabulary import MAX_WORDS, Ids, Vocabulary, Weights

MAX_BYTES = 32 * 1024 * 1024
"""Memory of the passages that are kept, as `size_of` estimates it."""
_PASSAGE_BYTES, _NUMBER_BYTES = 1_200, 90
"""What a passage takes besides its arrays, and each of its numbers; measured with the process's resident memory."""

_KEPT_SHARE = 0.75
"""Of the words there may be, so many at most are kept when there are too many. Others come soon: it takes a while."""


@dataclass(slots=True)
class Passage:
    """A parsed passage: its words in order, the different stems of each sentence, and the values its numbers state.

    `stems` and `rows` are pairs of a stem and the sentence it stands in, each pair once, in the order of the sentences.
    """

    words: Ids
    stems: Ids
    rows: Ids
    sentences: int
    numbers: frozenset[str]
    _initials: frozenset[str] | None = field(default=None)

    def initials(self, text: str) -> frozenset[str]:
        """The initials of the names in the passage, whose text is `text`; read when first asked for."""
        if self._initials is None:
            self._initials = frozenset().union(
                *(name.initials for sentence in sentences(text) for name in sentence.names)
            )
        return self._initials


def read_passage(text: str, vocabulary: Vocabulary, allowance: Allowance) -> Passage:
    """Parse a passage. Raises TooLongError when it has more tokens than the allowance has left."""
    said = sentences(text, allowance, with_names=False)
    words = vocabulary.ids([token for sentence in said for token in sentence.tokens])
    rows = np.repeat(np.arange(len(said)), [len(sentence.tokens) for sentence in said])
    pairs = np.sort(rows * len(vocabulary) + vocabulary.stems(words))  # np.unique takes five times as long
    row, stem = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(1, len(vocabulary)))
    return Passage(
        words=words,
        stems=stem.astype(np.int32),
        rows=row.astype(np.int32),
        sentences=len(said),
        numbers=frozenset().union(*(number.states for sentence in said for number in sentence.numbers)),
    )


def size_of(passage: Passage) -> int:
    """Estimate the memory of a parsed passage, in bytes: about 13 for each word, and 1,200 for each passage."""
    arrays = passage.words.nbytes + passage.stems.nbytes + passage.rows.nbytes
    return _PASSAGE_BYTES + arrays + _NUMBER_BYTES * len(passage.numbers)


class PassageCache:
    """Parsed passages by the hash of their text; the least recently used go first. Not safe for several threads."""

    def __init__(self, weights: Weights, max_bytes: int = MAX_BYTES, max_words: int = MAX_WORDS) -> None:
        self.vocabulary = Vocabulary(weights, max_words)
        self.hits = 0
        self.misses = 0
        self._max_bytes, self._max_words = max_bytes, max_words
        self._passages: OrderedDict[bytes, Passage] = OrderedDict()
        self._tokens = self._bytes = 0

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return self._tokens

    @property
    def bytes(self) -> int:
        """Estimated memory of the passages held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._passages)

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._passages

    @property
    def full(self) -> bool:
        """Whether there are too many words: then `trim` takes 0.1 s and more, for the limits of the product."""
        return len(self.vocabulary) > self._max_words

    def trim(self) -> None:
        """Bring the cache back to its limits. Call it between samples: numbers of words do not survive it."""
        while self._bytes > self._max_bytes:
            self._drop_oldest()
        if self.full:
            self._forget_words()

    def _forget_words(self) -> None:
        """Keep the passages used last, as many as need most of the words there may be at most, and their words."""
        needed = self._words_needed()
        while np.count_nonzero(needed) > self._max_words * _KEPT_SHARE:
            for _ in range(1 + len(self._passages) // 8):
                self._drop_oldest()
            needed = self._words_needed()
        numbers = self.vocabulary.keep(needed)
        for passage in self._passages.values():
            passage.words, passage.stems = numbers[passage.words], numbers[passage.stems]

    def _words_needed(self) -> NDArray[np.bool_]:
        """Whether each word stands in a passage that is kept, or is the stem of one that does."""
        needed = np.zeros(len(self.vocabulary), np.bool_)
        for passage in self._passages.values():
            needed[passage.words] = needed[passage.stems] = True
        return needed

    def _drop_oldest(self) -> None:
        _, oldest = self._passages.popitem(last=False)
        self._tokens -= len(oldest.words)
        self._bytes -= size_of(oldest)

    def get(self, text: str, allowance: Allowance) -> Passage:
        """Return the parsed passage.

        Raises TooLongError when it has more tokens than the allowance has left.
        """
        key = _key(text)
        if (found := self._passages.get(key)) is not None:
            self._passages.move_to_end(key)
            self.hits += 1
            allowance.use(len(found.words))
            return found
        self.misses += 1
        parsed = self._passages[key] = read_passage(text, self.vocabulary, allowance)
        self._tokens += len(parsed.words)
        self._bytes += size_of(parsed)
        return parsed


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
