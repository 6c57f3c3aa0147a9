"""Matching of a response's sentences against the contexts of its sample, on arrays of word numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaugeway.text.lexical.names import Name
from gaugeway.text.lexical.passages import Passage
from gaugeway.text.lexical.sentences import Sentence
from gaugeway.text.lexical.vocabulary import Ints, Vocabulary

WINDOW = 3
LONGEST_RUN = 6  # internal bound: a number of the format or formula
_ABBREVIATION = 2
_SENTENCES_AT_A_TIME = 16
# Bounds the code of a run: six numbers below 1,024 are 60 bits.
_WORDS_AT_A_TIME = 1_000
# Bounds the memory of one matrix: 32 MB.
_MOST_CELLS = 4_000_000  # internal bound: size of a matrix; more are computed one after the other
_BREAK = np.array([-1], np.int32)
_STEPS = np.arange(LONGEST_RUN)
_PAIRS, _PAIR_BITS = 1 << 15, 5
"""Size of the table of pairs, and by how many bits the first word of one is shifted: 10 bits fit it."""


class Compared(NamedTuple):
    """The match of one sentence: the index of the closest context, shares in [0, 1], and what no context holds."""

    sentence: Sentence
    context: int
    overlap: float
    bigrams: float
    run: float
    numbers: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The contexts of one sample: index, text and parsed passage of each that has words."""

    contexts: Sequence[tuple[int, str, Passage]]
    vocabulary: Vocabulary

    @property
    def sentences(self) -> int:
        return sum(passage.sentences for _, _, passage in self.contexts)


def compare(said: Sequence[Sentence], source: Source) -> tuple[float, list[Compared]]:
    """Match sentences with the contexts, of which one at least has words.

    Returns the share, by weight, of the different words of all sentences that stand in any context, and the match of
    each sentence.
    """
    try:
        return _compared(said, source)
    except BaseException:
        source.vocabulary.clear_scratch()
        raise


def _compared(said: Sequence[Sentence], source: Source) -> tuple[float, list[Compared]]:
    flat = source.vocabulary.ids([token for said_sentence in said for token in said_sentence.tokens]).astype(np.int64)
    lengths = np.array([len(said_sentence.tokens) for said_sentence in said])
    sentence = np.arange(len(said)).repeat(lengths)
    rows = _Rows(flat, source)
    pairs, run = _runs(flat, sentence, lengths, source)
    best, overlap = _overlaps(sentence, lengths, rows)
    bigrams = np.where(lengths > 1, pairs / np.maximum(lengths - 1, 1), overlap)
    stated = frozenset[str]()
    if numbers := [number for said_sentence in said for number in said_sentence.numbers]:
        asked = frozenset().union(*(ask for number in numbers for ask in number.asks))
        stated = frozenset().union(*(asked & passage.numbers for _, _, passage in source.contexts))
    shares = zip(overlap.tolist(), bigrams.tolist(), (run / np.minimum(lengths, LONGEST_RUN)).tolist(), strict=True)
    contexts = rows.contexts(best)
    compared = [
        Compared(
            sentence,
            context,
            *share,
            tuple([number.text for number in sentence.numbers if not number.supported_by(stated)])
            if sentence.numbers
            else (),
            tuple([name.text for name in sentence.names if not _named(name, rows, source)]) if sentence.names else (),
        )
        for sentence, context, share in zip(said, contexts, shares, strict=True)
    ]
    return rows.share, compared


class _Rows:
    """Which sentences of the contexts, one row each, contain the stems of the response.

    `words` are the words of the response by their place among its different words, of which there are `different`.
    Stems are known by their place among those of the response; entries (`stem`, `row`) are distinct; `first` is, for
    each row, the first row of its context.
    """

    def __init__(self, flat: Ints, source: Source) -> None:
        # In the order of the response: the numbers of words depend on what was read before, and no sum may.
        vocabulary = source.vocabulary
        words, self.words = _distinct(flat, vocabulary.scratch)
        stems, self._stem = _distinct(vocabulary.stems(words).astype(np.int64), vocabulary.scratch)
        self.different, self.stems = len(words), len(stems)
        self._numbers, self._source = stems, source
        passages = [passage for _, _, passage in source.contexts]
        counts = np.array([passage.sentences for passage in passages])
        self._ends = counts.cumsum()
        offsets = self._ends - counts
        self.count = int(self._ends[-1])
        self.first = offsets.repeat(counts)
        row = np.concatenate([passage.rows + offset for passage, offset in zip(passages, offsets, strict=True)])
        vocabulary.scratch[stems] = np.arange(1, len(stems) + 1)
        place = vocabulary.scratch[np.concatenate([passage.stems for passage in passages], dtype=np.int64)]
        vocabulary.scratch[stems] = 0
        there = place.nonzero()[0]
        self.stem, self.row = place[there] - 1, row[there]
        found = np.bincount(self.stem, minlength=len(stems))
        whole = self.count + 1.0
        here = np.log(whole / (found + 0.5)) / math.log(whole / 0.5)
        general = vocabulary.idf(stems)
        length = vocabulary.length_weights(words)
        self._weight = ((here + general) / 2)[self._stem] * length
        weight, known = general[self._stem] * length, found[self._stem] > 0
        self.share = float(weight[known].sum() / weight.sum())

    def contexts(self, rows: Ints) -> list[int]:
        """The indexes of the contexts in which these rows are."""
        contexts = self._source.contexts
        return [contexts[place][0] for place in self._ends.searchsorted(rows, side="right").tolist()]

    def weights(self, words: Ints) -> tuple[Ints, NDArray[np.float64]]:
        """The stem and the weight of words of the response."""
        return self._stem[words], self._weight[words]

    def windows(self, stem: int) -> set[int]:
        """The windows that contain a stem, given by its number; window r are the rows r to r + 2 of one context."""
        if not (place := (self._numbers == stem).nonzero()[0]).size:
            return set()
        rows = self.row[self.stem == place[0]].tolist()
        return {row - back for row in rows for back in range(WINDOW) if row - back >= self.first[row]}


def _distinct(values: Ints, scratch: Ints) -> tuple[Ints, Ints]:
    """The different values, in the order in which they first occur, and the place of each value among them."""
    different = values[_first(values, scratch)]
    scratch[different] = np.arange(len(different))
    place = scratch[values]
    scratch[different] = 0
    return different, place


def _first(values: Ints, scratch: Ints) -> Ints:
    """The places where values occur for the first time. `scratch` is all 0 and has a place for each value."""
    places = np.arange(len(values))
    scratch[values[::-1]] = places[::-1]
    new: Ints = (scratch[values] == places).nonzero()[0]
    scratch[values] = 0
    return new


def _overlaps(sentence: Ints, lengths: Ints, rows: _Rows) -> tuple[Ints, NDArray[np.float64]]:
    """For each sentence its best window, and the share by weight of its different words which that holds."""
    ends = [0, *lengths.cumsum().tolist()]
    whole = _window_matrix(rows.stem, rows.row, rows.stems, rows) if rows.stems * rows.count <= _MOST_CELLS else None
    best, held = np.zeros(len(lengths), np.int64), np.zeros(len(lengths))
    scratch = np.zeros(min(len(lengths), _SENTENCES_AT_A_TIME) * rows.different, np.int64)
    for begin in range(0, len(lengths), _SENTENCES_AT_A_TIME):
        end = min(begin + _SENTENCES_AT_A_TIME, len(lengths))
        of, words = sentence[ends[begin] : ends[end]] - begin, rows.words[ends[begin] : ends[end]]
        new = _first(of * rows.different + words, scratch)
        of, (stem, weight) = of[new], rows.weights(words[new])
        asked = np.zeros(rows.stems, np.int64)
        asked[stem] = 1
        stems = asked.nonzero()[0]
        cells = of * len(stems) + (asked.cumsum() - 1)[stem]
        weights = np.bincount(cells, weight, (end - begin) * len(stems)).astype(np.float64, copy=False)
        weights = weights.reshape(end - begin, len(stems))
        windows = weights @ whole[stems] if whole is not None else _in_parts(weights, stems, rows)
        best[begin:end] = windows.argmax(axis=1)
        held[begin:end] = windows.max(axis=1) / np.bincount(of, weight)
    return best, np.minimum(1.0, held)


def _in_parts(weights: NDArray[np.float64], stems: Ints, rows: _Rows) -> NDArray[np.float64]:
    """The weights that windows hold, with no matrix larger than _MOST_CELLS."""
    place = np.full(rows.stems, -1)
    place[stems] = np.arange(len(stems))
    entry = place[rows.stem]
    windows = np.zeros((len(weights), rows.count))
    at_a_time = max(1, _MOST_CELLS // rows.count)
    for low in range(0, len(stems), at_a_time):
        high = min(low + at_a_time, len(stems))
        inside = (entry >= low) & (entry < high)
        windows += weights[:, low:high] @ _window_matrix(entry[inside] - low, rows.row[inside], high - low, rows)
    return windows


def _window_matrix(stem: Ints, row: Ints, stems: int, rows: _Rows) -> NDArray[np.float64]:
    """Which stems stand in which windows, as 0 and 1; shape (stems, rows)."""
    matrix = np.zeros((stems, rows.count))
    window = np.maximum(row - np.arange(WINDOW)[:, np.newaxis], rows.first[row])
    matrix.reshape(-1)[stem * rows.count + window] = 1.0
    return matrix


def _runs(words: Ints, sentence: Ints, lengths: Ints, source: Source) -> tuple[Ints, Ints]:
    """For each sentence how many pairs of neighbours stand in a context, and its longest run of words that does.

    A run ends with its sentence and with its context.
    """
    begins = (lengths + 1).cumsum() - (lengths + 1)
    said = np.full(len(words) + len(lengths), -1)
    said[np.arange(len(words)) + sentence] = words
    parts = [part for _, _, passage in source.contexts for part in (passage.words, _BREAK)]
    there = np.concatenate(parts, dtype=np.int64)
    longest = np.zeros(len(said), np.int64)
    for begin in range(0, len(said), _WORDS_AT_A_TIME):
        part = said[begin : begin + _WORDS_AT_A_TIME + LONGEST_RUN - 1]
        found = _longest_runs(part, there, source.vocabulary.scratch)
        longest[begin : begin + _WORDS_AT_A_TIME] = found[:_WORDS_AT_A_TIME]
    return np.add.reduceat(longest > 1, begins, dtype=np.int64), np.maximum.reduceat(longest, begins)


def _longest_runs(said: Ints, there: Ints, scratch: Ints) -> Ints:
    """For each place in `said` the length of the longest run from it that stands in `there`; -1 is no word.

    A word's number is one of its places in `said`, and 0 where it does not occur there; six numbers make the code of a
    run. Of all codes in `there` the longest common beginning has one next to it in their order. `scratch` is all 0,
    before and after, and has a place for each word.
    """
    size = len(said)
    scratch[said] = np.arange(1, size + 1)
    mine = scratch[said]
    scratch[-1] = 0  # an end in `there` is not one in `said`
    theirs = scratch[there]
    scratch[said] = 0
    present = np.zeros(size + 1, np.int64)
    present[theirs] = 1
    longest: Ints = present[mine]
    pairs = np.zeros(_PAIRS, bool)
    pairs[mine[:-1] << _PAIR_BITS ^ mine[1:]] = True  # and some others, which do no harm
    begins = pairs[theirs[:-1] << _PAIR_BITS ^ theirs[1:]].nonzero()[0]
    if not len(begins):
        return longest
    bits = size.bit_length()
    codes, own = np.sort(_codes(theirs, bits)[begins]), _codes(mine, bits)
    place = codes.searchsorted(own)
    apart = np.minimum(own ^ codes[place - 1], own ^ codes.take(place, mode="clip"))
    common: Ints = LONGEST_RUN - (1 << bits * _STEPS).searchsorted(apart, side="right")
    return np.maximum(longest, common)


def _codes(numbers: Ints, bits: int) -> Ints:
    """The codes of the runs that begin at each place; after the end all numbers are 0."""
    one = np.zeros(len(numbers) + LONGEST_RUN - 1, np.int64)
    one[: len(numbers)] = numbers
    two = one[:-1] << bits | one[1:]
    four = two[:-2] << 2 * bits | two[2:]
    return four[:-2] << 2 * bits | two[4:]


def _named(name: Name, rows: _Rows, source: Source) -> bool:
    """Whether the contexts name it: all its words close together, or, for an abbreviation, words it stands for."""
    windows = [rows.windows(source.vocabulary.stem_id(word)) for word in dict.fromkeys(name.words)]
    if all(windows):
        return bool(set.intersection(*windows))
    if len(name.words) > 1 or not _is_abbreviation(name.text):
        return False
    return any(name.words[0] in passage.initials(text) for _, text, passage in source.contexts)


def _is_abbreviation(text: str) -> bool:
    """Whether most letters are capitals, the last one among them: "ECB", "BoE"."""
    return len(text) >= _ABBREVIATION and text[-1].isupper() and 2 * sum(map(str.isupper, text)) > len(text)
