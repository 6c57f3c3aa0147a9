"""Lexical groundedness: how much of the response is in its contexts verbatim; needs no model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from gaugeway.records import Sample, Score, Skipped
from gaugeway.runtime.tasks import spawn
from gaugeway.text.lexical.matching import Compared, Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.sentences import Allowance, TooLongError, sentences
from gaugeway.text.lexical.vocabulary import shipped
from monitors.metrics.judged.prompts import sent_contexts

T = TypeVar("T")
_OVERLAP, _BIGRAMS, _RUN = 0.6, 0.2, 0.2
_NUMBER_PENALTY, _NAME_PENALTY = 0.3, 0.2
_MANY_CHARACTERS, _VERY_MANY_CHARACTERS = 50_000, 200_000
MAX_CONTEXT_TOKENS, MAX_RESPONSE_TOKENS = 400_000, 100_000
"""A number counts as 8. Bounds the time (some seconds) and the memory (about 100 MB) of a score."""

MAX_EVIDENCE = 200
"""How many of the least grounded sentences a score shows."""


class LexicalGroundedness:
    """The mean of two shares in [0, 1]: of the whole response's words that occur in the contexts, by weight; and the
    mean over its sentences of what follows, clipped to [0, 1].

    0.6 x weighted overlap with the best window of three sentences of one context + 0.2 x share of the word pairs found
    in a context + 0.2 x longest run of words found in a context (6 are full marks), minus 0.3 x share of the numbers
    (dates are numbers) and 0.2 x share of the names found in no context.

    In a sentence a word weighs the mean of its inverse document frequency among the sample's own sentences and that in
    the table that comes with the package, in the whole response the latter.

    A sample with more tokens than MAX_CONTEXT_TOKENS and MAX_RESPONSE_TOKENS is skipped as "too_long". Long ones are
    scored in a thread; others wait for them. Passages that recur are parsed once; `passages` says how often.

    It finds invented answers, not subtle ones, and punishes honest paraphrase: a cheap signal for all traffic, not a
    measure of faithfulness.
    """

    name = "lexical_groundedness"
    on_by_default = True
    measures = "answer"
    covariate_rank = 2
    review_question = "Is everything the response says supported by the passages?"
    version = "3"
    judge = None

    def __init__(self) -> None:
        self._place = asyncio.Semaphore()
        self.passages = PassageCache(shipped())

    def scores_at_once(self, sample: Sample) -> bool:
        """Whether `score` awaits nothing: for all but long samples, while no long one is scored."""
        return not self._place.locked() and not self.passages.full and self._is_short(sample)

    async def score(self, sample: Sample) -> Score | Skipped:
        if not sample.response.strip():
            return Skipped("no_response")
        async with self._place:  # side by side they would only take more memory
            if self.passages.full:
                await _in_thread(self.passages.trim)
            self.passages.trim()
            if self._is_short(sample):
                return self._score(sample)
            return await _in_thread(lambda: self._score(sample))

    def _is_short(self, sample: Sample) -> bool:
        size = len(sample.response) + sum(len(context.text) for context in sample.contexts)
        return size < _MANY_CHARACTERS or (size < _VERY_MANY_CHARACTERS and self._known(sample))

    def _known(self, sample: Sample) -> bool:
        """Whether little of a sample is new."""
        new = sum(len(context.text) for context in sample.contexts if context.text not in self.passages)
        return len(sample.response) + new < _MANY_CHARACTERS

    def _score(self, sample: Sample) -> Score | Skipped:
        allowance = Allowance(MAX_CONTEXT_TOKENS)
        contexts = []
        try:
            for index in sent_contexts(sample):
                text = sample.contexts[index].text
                if (passage := self.passages.get(text, allowance)).sentences:
                    contexts.append((index, text, passage))
            source = Source(contexts, self.passages.vocabulary)
            return grade(sample.response, source) if contexts else Skipped("no_contexts")
        except TooLongError:
            return Skipped("too_long")


async def _in_thread(work: Callable[[], T]) -> T:
    """Work in a thread; after a timeout, too, wait for its end: the vocabulary is not safe for two threads."""
    thread = spawn(asyncio.to_thread(work), name="long step of lexical_groundedness")
    try:
        return await asyncio.shield(thread)
    finally:
        await asyncio.wait([thread])


def grade(response: str, source: Source) -> Score | Skipped:
    """Score a response against its contexts.

    Raises TooLongError for a response of more than MAX_RESPONSE_TOKENS.
    """
    # Questions state nothing ("Shall I go on?"); in a response of nothing else there is nothing to judge.
    said = sentences(response, Allowance(MAX_RESPONSE_TOKENS))
    stated = [sentence for sentence in said if not sentence.text.endswith(("?", "\uff1f", "\u061f"))]
    if not stated:
        return Skipped("no_claims")
    share, compared = compare(stated, source)
    scores = [_grade(sentence) for sentence in compared]
    value = (sum(scores) / len(scores) + share) / 2
    reason = f"{len(scores)} sentences, the least grounded {min(scores):.2f}" if len(scores) > 1 else "1 sentence"
    shown: Iterable[int] = range(len(scores))
    if len(scores) > MAX_EVIDENCE:
        shown = sorted(sorted(shown, key=scores.__getitem__)[:MAX_EVIDENCE])
    evidence = tuple(_evidence(compared[index], scores[index]) for index in shown)
    return Score(min(1.0, max(0.0, value)), reason, evidence)


def _grade(compared: Compared) -> float:
    grade = _OVERLAP * compared.overlap + _BIGRAMS * compared.bigrams + _RUN * compared.run
    if compared.numbers:
        grade -= _NUMBER_PENALTY * len(compared.numbers) / len(compared.sentence.numbers)
    if compared.names:
        grade -= _NAME_PENALTY * len(compared.names) / len(compared.sentence.names)
    return min(1.0, max(0.0, grade))


def _evidence(compared: Compared, score: float) -> dict[str, object]:
    return {
        "sentence": compared.sentence.text,
        "score": round(score, 4),
        "context": compared.context,
        "overlap": round(compared.overlap, 4),
        "bigrams": round(compared.bigrams, 4),
        "run": round(compared.run, 4),
        "unsupported_numbers": list(compared.numbers),
        "unsupported_names": list(compared.names),
    }
