"""Lexical groundedness: how many of the response's words are in its contexts; needs no model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.language import language_of
from gaugeway.text.lexical.sentences import PREFIX, Sentence, capitalised, numbers, sentences, without_marks, words
from monitors.metrics.judged.prompts import sent_contexts

_PAIRS = 0.1
"""Weight of the word pairs: they tell copied answers apart, whose words are all in the contexts."""
_MANY_CHARACTERS = 200_000
MAX_CONTEXT_CHARACTERS, MAX_RESPONSE_CHARACTERS = 1_000_000, 300_000
"""Bounds the time (two seconds) and the memory (130 MB) of a score, both of text without spaces."""

MAX_EVIDENCE = 50
"""How many of the least grounded sentences a score shows."""
MAX_MISSING = 50
"""Words that are not in the contexts, in the evidence of one sentence."""
_QUESTIONS = ("?", "\uff1f", "\u061f")
_DECIMALS = re.compile(r"(.*?)(?:[.,](\d{1,2}|\d{4,}))?")


class LexicalGroundedness:
    """0.9 x the share of the response's distinct words that are in its contexts + 0.1 x that of its distinct pairs of
    neighbouring words, in [0, 1]. Questions in the response do not count.

    A word is compared by its first six characters. Numbers and names that no context holds are words like others in the
    score, and named in the evidence, as the other missing words are.

    A sample with more characters than MAX_CONTEXT_CHARACTERS or MAX_RESPONSE_CHARACTERS is skipped as "too_long". Long
    ones are scored in a thread; others wait for them.

    It finds invented answers, not subtle errors, and punishes honest paraphrase: a cheap signal for all traffic, not a
    measure of faithfulness.
    """

    name = "lexical_groundedness"
    on_by_default = True
    measures = "answer"
    covariate_rank = 2
    review_question = "Is everything the response says supported by the passages?"
    version = "4"
    judge = None

    def __init__(self) -> None:
        self._place = asyncio.Semaphore()

    def scores_at_once(self, sample: Sample) -> bool:
        """Whether `score` awaits nothing: for all but long samples, while no long one is scored."""
        return not self._place.locked() and _size(sample) < _MANY_CHARACTERS

    async def score(self, sample: Sample) -> Score | Skipped:
        if not sample.response.strip():
            return Skipped("no_response")
        async with self._place:  # side by side they would only take more memory
            if _size(sample) < _MANY_CHARACTERS:
                return self._score(sample)
            return await asyncio.to_thread(self._score, sample)

    def _score(self, sample: Sample) -> Score | Skipped:
        contexts = {index: sample.contexts[index].text for index in sent_contexts(sample)}
        if sum(map(len, contexts.values())) > MAX_CONTEXT_CHARACTERS or len(sample.response) > MAX_RESPONSE_CHARACTERS:
            return Skipped("too_long")
        response = without_marks(sample.response)
        # Questions state nothing ("Shall I go on?"); in a response of nothing else there is nothing to judge.
        stated = [found for found in sentences(response) if not response.endswith(_QUESTIONS, found.start, found.end)]
        if not stated:
            return Skipped("no_claims")
        return _compared(response, stated, contexts) or Skipped("no_contexts")


def _size(sample: Sample) -> int:
    return len(sample.response) + sum(len(context.text) for context in sample.contexts)


def _compared(response: str, stated: Sequence[Sentence], contexts: dict[int, str]) -> Score | None:
    """Score the stated sentences of a response; None where the contexts have no words."""
    distinct = set(chain.from_iterable([sentence.words for sentence in stated]))
    pairs = set(chain.from_iterable([pairwise(sentence.words) for sentence in stated]))
    stems = {word[:PREFIX] for word in distinct}
    held: dict[int, set[str]] = {}
    held_pairs = set[tuple[str, str]]()
    for index, text in contexts.items():
        if there := words(text):
            held[index] = stems.intersection([word[:PREFIX] for word in set(there)])
            held_pairs |= pairs.intersection(pairwise(there))
    if not held:
        return None
    known = set[str]().union(*held.values())
    share = len(known) / len(stems)
    value = (1 - _PAIRS) * share + _PAIRS * (len(held_pairs) / len(pairs) if pairs else share)
    missing = {word for word in distinct if word[:PREFIX] not in known}
    shares = [1 - sum(map(missing.__contains__, sentence.words)) / len(sentence.words) for sentence in stated]
    many = len(shares) > 1
    reason = f"{len(shares)} sentences, the least grounded {min(shares):.2f}" if many else "1 sentence"
    shown: Iterable[int] = range(len(shares))
    if len(shares) > MAX_EVIDENCE:
        shown = sorted(sorted(shown, key=shares.__getitem__)[:MAX_EVIDENCE])
    evidence = _Evidence(response, held, missing, _missing_numbers(response, contexts.values()))
    return Score(value, reason, tuple([evidence.of(stated[place], shares[place]) for place in shown]))


class _Evidence:
    """What no context of a response holds, for each of its sentences; the index of a context -> the stems it holds."""

    def __init__(self, response: str, held: dict[int, set[str]], missing: set[str], wrong_numbers: set[str]) -> None:
        self._response, self._missing, self._numbers = response, missing, wrong_numbers
        self._contexts, self._held = list(held), list(held.values())
        self._in_numbers = {word for number in wrong_numbers for word in words(number)}
        self._named = language_of(response) != "de"  # where all nouns have capitals

    def of(self, sentence: Sentence, share: float) -> dict[str, object]:
        start, end, said = sentence
        text, missing = self._response[start:end], list(dict.fromkeys(filter(self._missing.__contains__, said)))
        counts = list(map(len, map({word[:PREFIX] for word in said}.__and__, self._held)))
        wrong = [] if self._in_numbers.isdisjoint(said) else [n for n in numbers(text) if n in self._numbers]
        names = [name for name in capitalised(text) if name.casefold() in missing] if missing and self._named else []
        return {
            "sentence": text,
            "score": round(share, 4),
            "context": self._contexts[counts.index(max(counts))],
            "missing_words": missing[:MAX_MISSING],
            "unsupported_numbers": wrong[:MAX_MISSING],
            "unsupported_names": names[:MAX_MISSING],
        }


def _missing_numbers(response: str, contexts: Iterable[str]) -> set[str]:
    """The numbers of a response that no context holds, as they are written."""
    if not (said := set(numbers(response))):
        return said
    there = {_value(number) for text in contexts for number in set(numbers(text))}
    return {number for number in said if _value(number) not in there}


def _value(number: str) -> tuple[str, str]:
    """The digits before and after the decimal mark: "1,234.50" is "1.234,5"; "1.234" and "1,234" are 1234."""
    found = _DECIMALS.fullmatch(number)
    whole, decimals = (found[1], found[2] or "") if found else (number, "")
    return re.sub(r"\D", "", whole).lstrip("0"), decimals.rstrip("0")
