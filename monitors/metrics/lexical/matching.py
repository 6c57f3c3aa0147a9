"""Matching of a response's sentences against the contexts of its sample, on arrays of word numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from monitors.metrics.lexical.names import Name
from monitors.metrics.lexical.passages import Passage
from monitors.metrics.lexical.sentences import Sentence
from monitors.metrics.lexical.vocabulary import Ids, Vocabulary

WINDOW = 3
LONGEST_RUN = 6
_ABBREVIATION = 2
_SENTENCES_AT_A_TIME = 16
# Bounds the table of pairs: 4 MB.
_WORDS_AT_A_TIME = 1_000
# Bounds the memory of one matrix: 32 MB.
_MOST_CELLS = 4_000_000
_BREAK = np.array([-1], np.int32)

Ints: TypeAlias = NDArray[np.int64]


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
    flat = source.vocabulary.ids([token for one in said for token in one.tokens])
    with source.vocabulary.table() as table:
        runs = _runs(flat, np.array([len(one.tokens) for one in said]), source, table)
    with source.vocabulary.table() as place:
        rows = _Rows(flat, source, place)
        compared = _compared(said, flat, rows, source, runs)
        place[rows.of_response] = 0
    return rows.share, compared


def _compared(
    said: Sequence[Sentence], flat: Ids, rows: _Rows, source: Source, runs: tuple[Ints, Ints]
) -> list[Compared]:
    """The match of each sentence; `runs` is what `_runs` returns."""
    pairs, run = runs
    lengths = np.array([len(one.tokens) for one in said])
    best, overlap = _overlaps(flat.tolist(), lengths.tolist(), rows)
    bigrams = np.where(lengths > 1, pairs / np.maximum(lengths - 1, 1), overlap)
    stated = frozenset[str]()
    if any(one.numbers for one in said):
        stated = frozenset().union(*(passage.numbers for _, _, passage in source.contexts))
    shares = zip(overlap.tolist(), bigrams.tolist(), (run / np.minimum(lengths, LONGEST_RUN)).tolist(), strict=True)
    contexts = rows.context[best].tolist()
    return [
        Compared(
            sentence,
            context,
            *share,
            tuple([one.text for one in sentence.numbers if not one.supported_by(stated)]),
            tuple([one.text for one in sentence.names if not _named(one, rows, source)]),
        )
        for sentence, context, share in zip(said, contexts, shares, strict=True)
    ]


class _Rows:
    """Which sentences of the contexts, one row each, contain the stems of the response.

    Stems are known by their place among those of the response; entries (`stem`, `row`) are distinct; `first` and
    `context` are, for each row, the first row of its context and the index of the context. `table` is one of the
    vocabulary: the place of each stem in `of_response`, plus 1, is written to it.
    """

    def __init__(self, flat: Ids, source: Source, table: Ids) -> None:
        self._vocabulary = vocabulary = source.vocabulary
        # In the order of the response: the numbers of words depend on what was read before, and no sum may.
        words = np.array(list(dict.fromkeys(flat.tolist())), np.int32)
        self.of_response = stems = np.array(list(dict.fromkeys(vocabulary.stems(words).tolist())), np.int32)
        self.stems = len(stems)
        self._table = table
        table[stems] = np.arange(1, len(stems) + 1)
        passages = [passage for _, _, passage in source.contexts]
        counts = [passage.sentences for passage in passages]
        offsets = np.cumsum([0, *counts[:-1]])
        self.count = sum(counts)
        self.first = np.repeat(offsets, counts)
        self.context = np.repeat([index for index, _, _ in source.contexts], counts)
        place = self._places(np.concatenate([passage.stems for passage in passages]))
        row = np.concatenate([passage.rows for passage in passages])
        row = row + np.repeat(offsets, [len(passage.rows) for passage in passages])
        there = (place >= 0).nonzero()[0]
        self.stem, self.row = place[there], row[there]
        found = np.bincount(self.stem, minlength=len(stems))
        whole = self.count + 1.0
        here = np.log(whole / (found + 0.5)) / np.log(whole / 0.5)
        general = vocabulary.idf(stems)
        self._idf = (here + general) / 2
        place = self._places(vocabulary.stems(words))
        weight, known = general[place] * vocabulary.length_weights(words), found[place] > 0
        self.share = float(weight[known].sum() / weight.sum())

    def _places(self, stems: Ids) -> Ints:
        """The place of each stem among those of the response, -1 for others."""
        return self._table[stems].astype(np.int64) - 1

    def weights(self, words: Ids) -> tuple[Ints, NDArray[np.float64]]:
        """The stem and the weight of words of the response."""
        stem = self._places(self._vocabulary.stems(words))
        return stem, self._idf[stem] * self._vocabulary.length_weights(words)

    def windows(self, stem: int) -> set[int]:
        """The windows that contain a stem, given by its number; window r are the rows r to r + 2 of one context."""
        if stem < 0 or (place := int(self._table[stem]) - 1) < 0:
            return set()
        rows = self.row[self.stem == place].tolist()
        return {row - back for row in rows for back in range(WINDOW) if row - back >= self.first[row]}


def _overlaps(words: list[int], lengths: list[int], rows: _Rows) -> tuple[Ints, NDArray[np.float64]]:
    """For each sentence its best window, and the share by weight of its different words which that holds."""
    ends = list(accumulate(lengths, initial=0))
    different = [list(dict.fromkeys(words[begin:end])) for begin, end in pairwise(ends)]
    counts = [len(one) for one in different]
    of = np.repeat(np.arange(len(lengths)), counts)
    stem, weight = rows.weights(np.array(list(chain.from_iterable(different)), np.int32))
    ends = list(accumulate(counts, initial=0))
    whole = _window_matrix(rows.stem, rows.row, rows.stems, rows) if rows.stems * rows.count <= _MOST_CELLS else None
    best, held = np.zeros(len(lengths), np.int64), np.zeros(len(lengths))
    for begin in range(0, len(lengths), _SENTENCES_AT_A_TIME):
        end = min(begin + _SENTENCES_AT_A_TIME, len(lengths))
        part = slice(ends[begin], ends[end])
        asked = np.zeros(rows.stems, np.int64)
        asked[stem[part]] = 1
        stems, place = asked.nonzero()[0], asked.cumsum() - 1
        weights = np.zeros((end - begin, len(stems)))
        np.add.at(weights.reshape(-1), (of[part] - begin) * len(stems) + place[stem[part]], weight[part])
        windows = weights @ whole[stems] if whole is not None else _in_parts(weights, stems, rows)
        best[begin:end] = windows.argmax(axis=1)
        held[begin:end] = windows.max(axis=1)
    return best, np.minimum(1.0, held / np.bincount(of, weight))


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


def _runs(words: Ids, lengths: Ints, source: Source, table: Ids) -> tuple[Ints, Ints]:
    """For each sentence how many pairs of neighbours stand in a context, and its longest run of words that does.

    A run ends with its sentence and with its context. `table` is one of the vocabulary.
    """
    begins = (lengths + 1).cumsum() - (lengths + 1)
    said = np.full(len(words) + len(lengths), -1, np.int32)
    said[np.arange(len(words)) + np.repeat(np.arange(len(lengths)), lengths)] = words
    there = np.concatenate([part for _, _, passage in source.contexts for part in (passage.words, _BREAK)])
    longest = np.zeros(len(said), np.int64)
    for begin in range(0, len(said), _WORDS_AT_A_TIME):
        part = _longest_runs(said[begin : begin + _WORDS_AT_A_TIME + LONGEST_RUN - 1], there, table)
        longest[begin : begin + _WORDS_AT_A_TIME] = part[:_WORDS_AT_A_TIME]
    return np.add.reduceat(longest > 1, begins, dtype=np.int64), np.maximum.reduceat(longest, begins)


def _longest_runs(said: Ids, there: Ids, table: Ids) -> Ints:
    """For each place in `said` the length of the longest run from it that stands in `there`; -1 is no word.

    Runs of one length are numbered. With the next word such a number makes a run one longer, so every run is found
    exactly without being held. `table` is all 0, before and after, and has a place for each word and one more.
    """
    size = len(said)
    both = np.concatenate([said, _BREAK, there])
    words = _numbered(both, size, table)
    words[both < 0] = 0
    longest = np.zeros(size, np.int64)
    base = int(words.max()) + 1
    table = np.zeros((size + 1) * base, np.int32)
    starts = words.nonzero()[0]
    runs = words[starts]
    for length in range(1, LONGEST_RUN):
        longest[starts[: starts.searchsorted(size)]] = length
        last = words[starts + length]
        goes_on = last.nonzero()[0]
        starts = starts[goes_on]
        runs = _numbered(runs[goes_on] * base + last[goes_on], int(starts.searchsorted(size)), table)
        known = runs.nonzero()[0]
        starts, runs = starts[known], runs[known]
    longest[starts[: starts.searchsorted(size)]] = LONGEST_RUN
    return longest


def _numbered(values: Ids | Ints, size: int, table: Ids) -> Ints:
    """Numbers from 1, equal for equal values, for those both among the first `size` and after them; 0 for the others.

    `table` is all 0, before and after, and has a place for each value.
    """
    first = values[:size]
    table[first] = np.arange(1, size + 1)
    numbers = table[values]
    table[first] = 0
    both = np.zeros(size + 1, np.int64)
    both[numbers[size:]] = 1
    both[0] = 0
    return (both.cumsum() * both)[numbers]


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
