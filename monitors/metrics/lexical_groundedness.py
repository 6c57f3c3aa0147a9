"""Lexical groundedness: how much of the response is said in its contexts, word for word. No LLM, no model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitors.metrics import tokens
from monitors.metrics.texts import sent_contexts
from monitors.metrics.tokens import Sentence
from monitors.records import Sample, Score, Skipped

_WINDOW = 3
_LONGEST_RUN = 6
_OVERLAP, _BIGRAMS, _RUN = 0.6, 0.2, 0.2
_NUMBER_PENALTY, _NAME_PENALTY, _NEGATION_PENALTY = 0.3, 0.2, 0.15
_ABOUT_THE_SAME = 0.5
_MANY_CHARACTERS = 50_000


@dataclass(frozen=True, slots=True)
class _Judged:
    """One sentence of the response: its score and what it is made of. `context` is the index of the best one."""

    sentence: Sentence
    score: float
    context: int
    overlap: float
    bigrams: float
    run: float
    numbers: tuple[str, ...]
    names: tuple[str, ...]
    negation: bool


class LexicalGroundedness:
    """(mean + minimum)/2 over the response's sentences of what follows, clipped to [0, 1].

    0.6 x IDF-weighted overlap with the best window of three sentences of one context + 0.2 x share of the word pairs
    found in a context + 0.2 x longest run of words found in a context (6 are full marks), minus 0.3 x share of the
    numbers and 0.2 x share of the names found in no context, minus 0.15 when a negation stands in the sentence and not
    in the context sentence it is closest to, or the other way round. The IDF is that of the sample's own contexts.

    It finds invented answers, not subtle ones, and punishes honest paraphrase: a cheap signal for all traffic whose
    shifts mean something, not a measure of faithfulness.
    """

    name = "lexical_groundedness"
    version = "1"
    judge = None

    async def score(self, sample: Sample) -> Score | Skipped:
        size = len(sample.response) + sum(len(context.text) for context in sample.contexts)
        if size < _MANY_CHARACTERS:
            return _score(sample)
        return await asyncio.to_thread(_score, sample)  # it may take half a second, and everybody else would wait


def _score(sample: Sample) -> Score | Skipped:
    if not sample.response.strip():
        return Skipped("no_response")
    source = _Source(sample)
    if not source.sentences:
        return Skipped("no_contexts")
    response = tokens.sentences(sample.response)
    # Questions state nothing ("Shall I go on?"); in a response of nothing else there is nothing to judge.
    stated = [sentence for sentence in response if not sentence.text.endswith(("?", "\uff1f", "\u061f"))]
    if not stated:
        return Skipped("no_claims")
    judged = [source.judge(sentence) for sentence in stated]
    scores = [one.score for one in judged]
    value = (sum(scores) / len(scores) + min(scores)) / 2
    weakest = min(judged, key=lambda one: one.score)
    reason = f"{len(judged)} sentences, the least grounded {weakest.score:.2f}"
    return Score(min(1.0, max(0.0, value)), reason, tuple(_evidence(one) for one in judged))


class _Source:
    """The contexts of one sample, indexed for comparison. A row is a sentence; window r are the rows r, r+1 and r+2."""

    def __init__(self, sample: Sample) -> None:
        self.sentences: list[Sentence] = []
        self._context: list[int] = []
        self._first_row: list[int] = []
        self._runs: list[set[tuple[str, ...]]] = [set() for _ in range(_LONGEST_RUN + 1)]
        for index in sent_contexts(sample):
            parsed = tokens.sentences(sample.contexts[index].text)
            self._first_row += [len(self.sentences)] * len(parsed)
            self._context += [index] * len(parsed)
            self.sentences += parsed
            self._add_runs([token for sentence in parsed for token in sentence.tokens])
        self._rows: dict[str, list[int]] = {}
        for row, sentence in enumerate(self.sentences):
            for stem in set(map(tokens.stem, sentence.tokens)):
                self._rows.setdefault(stem, []).append(row)
        self._places: dict[str, tuple[NDArray[np.intp], NDArray[np.intp]]] = {}
        self._numbers = {value for sentence in self.sentences for value in tokens.stated_numbers(sentence)}

    def _add_runs(self, words: Sequence[str]) -> None:
        for length in range(1, _LONGEST_RUN + 1):
            self._runs[length].update(zip(*(words[offset:] for offset in range(length)), strict=False))

    def _places_of(self, stem: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The windows and the rows a stem of the contexts stands in; a window ends with its context."""
        if stem not in self._places:
            rows = self._rows[stem]
            windows = {row - back for row in rows for back in range(_WINDOW) if row - back >= self._first_row[row]}
            self._places[stem] = (np.fromiter(windows, np.intp, len(windows)), np.array(rows, np.intp))
        return self._places[stem]

    def judge(self, sentence: Sentence) -> _Judged:
        """Compare one sentence of the response with everything."""
        weight, overlaps, singles = self._overlaps(sentence.tokens)
        best, closest = int(np.argmax(overlaps)), int(np.argmax(singles))
        overlap = float(overlaps[best]) / weight
        pairs = list(pairwise(sentence.tokens))
        bigrams = sum(pair in self._runs[2] for pair in pairs) / len(pairs) if pairs else overlap
        run = self._longest_run(sentence.tokens) / min(_LONGEST_RUN, len(sentence.tokens))
        numbers = tuple(number.text for number in sentence.numbers if not number.readings & self._numbers)
        names = tuple(name for name in sentence.names if tokens.stem(tokens.fold(name)) not in self._rows)
        about_the_same = float(singles[closest]) / weight >= _ABOUT_THE_SAME
        negation = about_the_same and sentence.negated != self.sentences[closest].negated
        score = (
            _OVERLAP * overlap
            + _BIGRAMS * bigrams
            + _RUN * run
            - _NUMBER_PENALTY * len(numbers) / max(1, len(sentence.numbers))
            - _NAME_PENALTY * len(names) / max(1, len(sentence.names))
            - _NEGATION_PENALTY * negation
        )
        return _Judged(
            sentence=sentence,
            score=min(1.0, max(0.0, score)),
            context=self._context[best],
            overlap=overlap,
            bigrams=bigrams,
            run=run,
            numbers=numbers,
            names=names,
            negation=negation,
        )

    def _overlaps(self, words: Sequence[str]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The weight of all words of a sentence, and how much of it each window and each single row holds."""
        total = 0.0
        windows, rows = np.zeros(len(self.sentences)), np.zeros(len(self.sentences))
        for word in dict.fromkeys(words):
            stem = tokens.stem(word)
            weight = self._idf(stem) * tokens.weight_of_length(word)
            total += weight
            if stem in self._rows:
                in_windows, in_rows = self._places_of(stem)
                windows[in_windows] += weight
                rows[in_rows] += weight
        return total, windows, rows

    def _idf(self, stem: str) -> float:
        return math.log((len(self.sentences) + 1) / (len(self._rows.get(stem, ())) + 0.5))

    def _longest_run(self, words: Sequence[str]) -> int:
        for length in range(min(_LONGEST_RUN, len(words)), 0, -1):
            if any(run in self._runs[length] for run in zip(*(words[at:] for at in range(length)), strict=False)):
                return length
        return 0


def _evidence(judged: _Judged) -> dict[str, object]:
    return {
        "sentence": judged.sentence.text,
        "score": round(judged.score, 4),
        "context": judged.context,
        "overlap": round(judged.overlap, 4),
        "bigrams": round(judged.bigrams, 4),
        "run": round(judged.run, 4),
        "unsupported_numbers": list(judged.numbers),
        "unsupported_names": list(judged.names),
        "negation_mismatch": judged.negation,
    }
