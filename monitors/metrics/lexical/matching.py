"""Matching of a response's sentences against the contexts of its sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from monitors.metrics.lexical.idf import Weights
from monitors.metrics.lexical.names import Name
from monitors.metrics.lexical.runs import Runs
from monitors.metrics.lexical.sentences import Allowance, Sentence, sentences, stem, weight_of_length

WINDOW = 3
LONGEST_RUN = 6
_ABOUT_THE_SAME = 0.5
# A word in more sentences than this says nothing about the place, and looking it up everywhere would cost the square.
_EVERYWHERE = 64
_ABBREVIATION = 2


@dataclass(frozen=True, slots=True)
class Compared:
    """The match of one sentence: the index of the closest context, shares in [0, 1], and what no context holds."""

    sentence: Sentence
    context: int
    overlap: float
    bigrams: float
    run: float
    numbers: tuple[str, ...]
    names: tuple[str, ...]
    negation: bool


class Source:
    """The contexts of one sample, indexed. A row is a sentence; window r are the rows r, r+1 and r+2 of one context.

    Raises TooLongError when they have more tokens than the allowance.
    """

    def __init__(
        self, contexts: Iterable[tuple[int, str]], weights: Weights, allowance: Allowance | None = None
    ) -> None:
        self.sentences: list[Sentence] = []
        self._weights = weights
        self._context: list[int] = []
        self._first_row: list[int] = []
        texts: list[list[str]] = []
        for index, text in contexts:
            parsed = sentences(text, allowance)
            self._first_row += [len(self.sentences)] * len(parsed)
            self._context += [index] * len(parsed)
            self.sentences += parsed
            texts.append([token for sentence in parsed for token in sentence.tokens])
        self._runs = Runs(texts, LONGEST_RUN)
        self._rows: dict[str, list[int]] = {}
        for row, stems in enumerate(self.stems()):
            for one in stems:
                self._rows.setdefault(one, []).append(row)
        self._windows: dict[str, set[int]] = {}
        self._weights_of: dict[str, float] = {}
        self._numbers = {state for sentence in self.sentences for number in sentence.numbers for state in number.states}
        self._initials = {name.initials for sentence in self.sentences for name in sentence.names}

    def stems(self) -> Iterator[frozenset[str]]:
        """The stems of each row."""
        return (frozenset(map(stem, sentence.tokens)) for sentence in self.sentences)

    def compare(self, sentence: Sentence) -> Compared:
        """Match one sentence of the response against all contexts."""
        weight, (best, overlap), (closest, likeness) = self._overlaps(sentence.tokens)
        pairs, run = self._runs.found(sentence.tokens)
        neighbours = len(sentence.tokens) - 1
        return Compared(
            sentence=sentence,
            context=self._context[best],
            overlap=overlap / weight,
            bigrams=pairs / neighbours if neighbours else overlap / weight,
            run=run / min(LONGEST_RUN, len(sentence.tokens)),
            numbers=tuple(number.text for number in sentence.numbers if not number.supported_by(self._numbers)),
            names=tuple(name.text for name in sentence.names if not self._names(name)),
            negation=likeness / weight >= _ABOUT_THE_SAME and sentence.negated != self.sentences[closest].negated,
        )

    def _windows_of(self, one: str) -> set[int]:
        """The windows a stem of the contexts stands in; a window ends with its context."""
        if one not in self._windows:
            rows = self._rows[one]
            self._windows[one] = {
                row - back for row in rows for back in range(WINDOW) if row - back >= self._first_row[row]
            }
        return self._windows[one]

    def _overlaps(self, words: Sequence[str]) -> tuple[float, tuple[int, float], tuple[int, float]]:
        """The weight of all words of a sentence; the best window and row, and how much of it they hold."""
        total = everywhere = 0.0
        windows: dict[int, float] = {}
        rows: dict[int, float] = {}
        for word in dict.fromkeys(words):
            one = stem(word)
            weight = self._weight(one) * weight_of_length(word)
            total += weight
            found = self._rows.get(one, ())
            if len(found) > _EVERYWHERE:
                everywhere += weight
            elif found:
                for row in found:
                    rows[row] = rows.get(row, 0.0) + weight
                for window in self._windows_of(one):
                    windows[window] = windows.get(window, 0.0) + weight
        best, closest = _heaviest(windows), _heaviest(rows)
        return total, (best[0], best[1] + everywhere), closest  # words that are everywhere point to no row

    def _weight(self, one: str) -> float:
        """Return the weight of a stem: the mean of its IDF in these contexts and in general."""
        if one not in self._weights_of:
            whole = len(self.sentences) + 1.0
            here = math.log(whole / (len(self._rows.get(one, ())) + 0.5)) / math.log(whole / 0.5)
            self._weights_of[one] = (here + self._weights.of(one)) / 2
        return self._weights_of[one]

    def _names(self, name: Name) -> bool:
        """Whether the contexts name it: all its words close together, or, for an abbreviation, words it stands for."""
        stems = {stem(word) for word in name.words}
        if all(one in self._rows for one in stems):
            places = [self._windows_of(one) for one in stems if len(self._rows[one]) <= _EVERYWHERE]
            return not places or bool(set.intersection(*places))
        return (
            len(name.words) == 1
            and name.text.isupper()
            and len(name.text) >= _ABBREVIATION
            and (name.words[0] in self._initials)
        )


def _heaviest(places: Mapping[int, float]) -> tuple[int, float]:
    """The place with the largest weight, the first of several; place 0 with nothing where there is none."""
    if not places:
        return 0, 0.0
    best = max(places, key=lambda place: (places[place], -place))
    return best, places[best]
