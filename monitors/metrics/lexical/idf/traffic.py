"""Weights learnt from the traffic's contexts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from monitors.metrics.lexical.idf import Weights

_FIRST = 1_024
_MOST = 65_536
_STEMS = 50_000
_REMEMBERED = 20_000


class TrafficIdf:
    """Weights that begin as those of `prior` and shift towards the traffic's own.

    The prior counts as much as `prior_sentences` sentences. What was learnt is published after 1,024 sentences and at
    every doubling: scores are compared over hours, so the weights move seldom and ever less. At 65,536 all counts are
    halved, and so on each time. A sentence counts once among some 20,000, however often its passage is retrieved.
    Holds at most 100,000 stems. For all threads of a process.
    """

    def __init__(self, prior: Weights, *, prior_sentences: float = 1_000.0) -> None:
        share = prior_sentences / prior.sentences
        self._prior = Weights(prior_sentences, {stem: count * share for stem, count in prior.counts.items()})
        self._counts: Counter[str] = Counter()
        self._sentences = 0
        self._next = _FIRST
        self._seen: set[int] = set()
        self._lock = threading.Lock()
        self._published = self._prior

    def weights(self) -> Weights:
        return self._published

    def observe(self, sentences: Iterable[Collection[str]]) -> None:
        with self._lock:
            for stems in sentences:
                self._add(frozenset(stems))
            if self._sentences >= self._next:
                self._publish()

    def _add(self, stems: frozenset[str]) -> None:
        if not stems or hash(stems) in self._seen:
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(hash(stems))
        self._counts.update(stems)
        self._sentences += 1
        if len(self._counts) > 2 * _STEMS:
            self._counts = Counter(dict(self._counts.most_common(_STEMS)))

    def _publish(self) -> None:
        self._published = _together(self._prior, self._sentences, self._counts)
        if self._sentences >= _MOST:
            self._counts = Counter({stem: half for stem, count in self._counts.items() if (half := count // 2)})
            self._sentences //= 2
        self._next = min(2 * self._next, _MOST)


def _together(prior: Weights, sentences: int, counts: Mapping[str, int]) -> Weights:
    """Return the sum of prior and traffic counts."""
    both: dict[str, float] = dict(prior.counts)
    for stem, count in counts.items():
        if count > 1:  # what was seen once only is no more frequent than what was never seen
            both[stem] = both.get(stem, 0.0) + count
    return Weights(prior.sentences + sentences, both)
