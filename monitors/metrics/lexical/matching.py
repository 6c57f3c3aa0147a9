"""Matching of a response's sentences against the contexts of its sample, on arrays of word numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
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
    words = [source.vocabulary.ids(one.tokens).tolist() for one in said]
    lengths = np.array([len(one) for one in words])
    flat = np.array(list(chain.from_iterable(words)), np.int32)
    rows = _Rows(flat, source)
    pairs, run = _runs(words, source)
    of = np.repeat(np.arange(len(said)), lengths)
    weights, best, held = _overlaps(flat, of, len(said), rows)
    stated = frozenset[str]()
    if any(one.numbers for one in said):
        stated = frozenset().union(*(passage.numbers for _, _, passage in source.contexts))
    contexts = rows.context[best].tolist()
    compared = []
    for at, sentence in enumerate(said):
        overlap = min(1.0, float(held[at] / weights[at]))
        neighbours = int(lengths[at]) - 1
        compared.append(
            Compared(
                sentence=sentence,
                context=contexts[at],
                overlap=overlap,
                bigrams=int(pairs[at]) / neighbours if neighbours else overlap,
                run=int(run[at]) / min(LONGEST_RUN, int(lengths[at])),
                numbers=tuple(one.text for one in sentence.numbers if not one.supported_by(stated)),
                names=tuple(one.text for one in sentence.names if not _named(one, rows, source)),
            )
        )
    return rows.share, compared


class _Rows:
    """Which sentences of the contexts, one row each, contain the stems of the response.

    `stem_of` is each word's place among `stems`; entries (`stem`, `row`) are distinct; `first` and `context` are, for
    each row, the first row of its context and the index of the context.
    """

    def __init__(self, flat: Ids, source: Source) -> None:
        vocabulary = source.vocabulary
        # In the order of the response: the numbers of words depend on what was read before, and no sum may.
        stems, first, inverse = np.unique(vocabulary.stems(flat), return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.stems, self.stem_of = stems[order], np.argsort(order)[inverse]
        counts = [passage.sentences for _, _, passage in source.contexts]
        offsets = np.cumsum([0, *counts[:-1]])
        self.count = sum(counts)
        self.first = np.repeat(offsets, counts)
        self.context = np.repeat([index for index, _, _ in source.contexts], counts)
        there = np.concatenate([passage.stems for _, _, passage in source.contexts])
        row = np.concatenate(
            [passage.rows + offset for (_, _, passage), offset in zip(source.contexts, offsets, strict=True)]
        )
        self._place = np.full(len(vocabulary), -1)
        self._place[self.stems] = np.arange(len(self.stems))
        place = self._place[there]
        self.stem, self.row = place[place >= 0], row[place >= 0]
        found = np.bincount(self.stem, minlength=len(self.stems))
        whole = self.count + 1.0
        here = np.log(whole / (found + 0.5)) / np.log(whole / 0.5)
        general = vocabulary.idf(self.stems)
        length = vocabulary.length_weights(flat)
        self.weight = ((here + general) / 2)[self.stem_of] * length
        once = np.sort(np.unique(flat, return_index=True)[1])
        weight, known = (general[self.stem_of] * length)[once], found[self.stem_of[once]] > 0
        self.share = float(weight[known].sum() / weight.sum())

    def windows(self, stem: int) -> set[int]:
        """The windows that contain a stem, given by its number; window r are the rows r to r + 2 of one context."""
        if stem < 0 or (place := self._place[stem]) < 0:
            return set()
        rows = self.row[self.stem == place].tolist()
        return {row - back for row in rows for back in range(WINDOW) if row - back >= self.first[row]}


def _overlaps(
    flat: Ids, of: Ints, sentences: int, rows: _Rows
) -> tuple[NDArray[np.float64], Ints, NDArray[np.float64]]:
    """For each sentence the weight of its different words, its best window, and the weight which that holds."""
    once = np.sort(np.unique(of * (int(flat.max()) + 1) + flat, return_index=True)[1])
    of, stem, weight = of[once], rows.stem_of[once], rows.weight[once]
    total = np.zeros(sentences)
    np.add.at(total, of, weight)
    best, held = np.zeros(sentences, np.int64), np.zeros(sentences)
    at_a_time = max(1, _MOST_CELLS // max(rows.count, 1))
    for begin in range(0, sentences, _SENTENCES_AT_A_TIME):
        end = min(begin + _SENTENCES_AT_A_TIME, sentences)
        part = slice(*np.searchsorted(of, [begin, end]))
        stems, local = np.unique(stem[part], return_inverse=True)
        asked = np.zeros((end - begin, len(stems)))
        np.add.at(asked, (of[part] - begin, local), weight[part])
        place = np.full(len(rows.stems), -1)
        place[stems] = np.arange(len(stems))
        entry = place[rows.stem]
        windows = np.zeros((end - begin, rows.count))
        for low in range(0, len(stems), at_a_time):
            high = min(low + at_a_time, len(stems))
            inside = (entry >= low) & (entry < high)
            windows += asked[:, low:high] @ _window_matrix(entry[inside] - low, rows.row[inside], high - low, rows)
        best[begin:end] = windows.argmax(axis=1)
        held[begin:end] = windows.max(axis=1)
    return total, best, held


def _window_matrix(stem: Ints, row: Ints, stems: int, rows: _Rows) -> NDArray[np.float64]:
    """Which stems stand in which windows, as 0 and 1; shape (stems, rows)."""
    matrix = np.zeros((stems, rows.count))
    for back in range(WINDOW):
        inside = row - back >= rows.first[row]
        matrix[stem[inside], row[inside] - back] = 1.0
    return matrix


def _runs(words: Sequence[Sequence[int]], source: Source) -> tuple[Ints, Ints]:
    """For each sentence how many pairs of neighbours stand in a context, and its longest run of words that does.

    A run ends with its sentence and with its context.
    """
    said = np.array([word for one in words for word in (*one, -1)], np.int32)
    there = np.concatenate([part for _, _, passage in source.contexts for part in (passage.words, _BREAK)])
    table = np.zeros(len(source.vocabulary) + 1, np.int32)
    longest = np.zeros(len(said), np.int64)
    for begin in range(0, len(said), _WORDS_AT_A_TIME):
        part = _longest_runs(said[begin : begin + _WORDS_AT_A_TIME + LONGEST_RUN - 1], there, table)
        longest[begin : begin + _WORDS_AT_A_TIME] = part[:_WORDS_AT_A_TIME]
    begins = np.cumsum([0, *(len(one) + 1 for one in words[:-1])])
    return np.add.reduceat(longest > 1, begins, dtype=np.int64), np.maximum.reduceat(longest, begins)


def _longest_runs(said: Ids, there: Ids, table: Ids) -> Ints:
    """For each place in `said` the length of the longest run from it that stands in `there`; -1 is no word.

    Runs of one length are numbered. With the next word such a number makes a run one longer, so every run is found
    exactly without being held.
    """
    words, given = _numbered(said, there, table)
    words[said < 0] = given[there < 0] = 0
    longest = (words > 0).astype(np.int64)
    base = len(said) + 1
    table = np.zeros(base * base, np.int32)
    (starts,), (places,) = np.nonzero(words), np.nonzero(given)
    runs, known = words[starts], given[places]
    for length in range(2, LONGEST_RUN + 1):
        starts, runs = _longer(words, starts, runs, length, base)
        places, known = _longer(given, places, known, length, base)
        runs, known = _numbered(runs, known, table)
        starts, runs = starts[runs > 0], runs[runs > 0]
        places, known = places[known > 0], known[known > 0]
        longest[starts] = length
    return longest


def _numbered(said: Ids, there: Ids, table: Ids) -> tuple[Ids, Ids]:
    """Numbers from 1 for the values that are in both, equal for equal values, and 0 for the others.

    `table` is all 0, before and after, and has a place for each value.
    """
    table[said] = np.arange(1, len(said) + 1)
    numbers, found = table[said], table[there]
    table[said] = 0
    both = np.zeros(len(said) + 1, bool)
    both[found] = True
    return numbers * both[numbers], found


def _longer(words: Ids, starts: Ints, runs: Ids, length: int, base: int) -> tuple[Ints, Ids]:
    """The runs of `length` words that begin with these runs of one word less: where, and run and last word in one."""
    inside = starts + length <= len(words)
    starts, runs = starts[inside], runs[inside]
    last = words[starts + (length - 1)]
    return starts[last > 0], (runs * base + last)[last > 0]


def _named(name: Name, rows: _Rows, source: Source) -> bool:
    """Whether the contexts name it: all its words close together, or, for an abbreviation, words it stands for."""
    windows = [rows.windows(source.vocabulary.stem_id(word)) for word in dict.fromkeys(name.words)]
    if all(windows):
        return bool(set.intersection(*windows))
    if len(name.words) > 1 or not name.text.isupper() or len(name.text) < _ABBREVIATION:
        return False
    return any(name.words[0] in passage.initials(text) for _, text, passage in source.contexts)
