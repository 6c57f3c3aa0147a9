"""Asked again: whether a user's question is the one before it, reworded. Needs no judge."""

from __future__ import annotations

from collections.abc import Iterable

from gaugeway.data_files import table
from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.lexical.sentences import stem, weight_of_length, words
from gaugeway.text.lexical.vocabulary import Weights, shipped
from monitors.metrics.judged.prompts import unanswered

MAX_WORDS = 400
"""Words of a question that is compared; a longer one is a text, not a question that somebody types again."""
LONGEST_QUESTION = 4_000
_PROMPT_FROM = 400
"""Characters from which the message before is a prompt with passages, whose question is not known."""
_CONTENT = 0.3
"""Stems that weigh less are grammar, and so are words of two letters."""
_GRAMMAR = 2
_ENDING, _SHORTEST = 2, 4
"""Stems are the same word if one is the other with up to two letters more: takes, covered."""
_KEPT = 0.6
"""Share of the earlier question's content, by weight, that the later one has."""
_WORDS = table("monitors.metrics", "asked_again.toml")
_INTERROGATIVES = tuple(frozenset(line.split()) for line in _WORDS["interrogatives"])
_FILLERS = frozenset(stem(word) for line in _WORDS["fillers"] for word in line.split())
"""Words of somebody who asks again, in four languages."""


class AskedAgain:
    """1 where the user's question rewords the one before it, which was not answered then; 0 where it is another one.

    A rewording has at least 60 % of the earlier question's content words (by inverse document frequency), none of its
    own, and no other interrogative. So it finds repetitions in nearly the same words, and seldom takes a follow-up for
    one. The first question of a conversation is skipped, and one after a prompt whose question is not known.
    """

    name = "asked_again"
    version = "2"
    lower_is_better = True

    def __init__(self) -> None:
        self._weights = shipped()

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "question")) is not None:
            return skipped
        earlier = next((message.text for message in reversed(sample.history) if message.role == "user"), None)
        if earlier is None:
            return Skipped("no_history")
        if len(earlier) > _PROMPT_FROM > len(sample.question or ""):
            return Skipped("no_earlier_question")
        again = rewords(sample.question or "", earlier, self._weights)
        reason = "the question rewords the one before" if again else "the question is another one than before"
        return Score(float(again), reason, ({"earlier_question": earlier},))


def rewords(question: str, earlier: str, weights: Weights) -> bool:
    """Return whether a question is an earlier one in nearly the same words.

    >>> rewords("I asked how long a refund takes!", "How long does a refund take?", shipped())
    True
    >>> rewords("How long does a refund for a bike take?", "How long does a refund take?", shipped())
    False
    """
    if max(len(question), len(earlier)) > LONGEST_QUESTION:
        return question.split() == earlier.split()
    new, old = words(question), words(earlier)
    if max(len(new), len(old)) > MAX_WORDS:
        return question.split() == earlier.split()
    if _asks_otherwise(new, old):
        return False
    ours, theirs = _content(new, weights), _content(old, weights)
    if not ours or any(not any(_same(our, other) for other in theirs) for our in ours):
        return False
    kept = sum(weight for other, weight in theirs.items() if any(_same(our, other) for our in ours))
    return kept >= _KEPT * sum(theirs.values())


def _same(text: str, other: str) -> bool:
    short, long = sorted((text, other), key=len)
    return text == other or (
        len(short) >= _SHORTEST and short.isalpha() and long.startswith(short) and len(long) - len(short) <= _ENDING
    )


def _content(asked: Iterable[str], weights: Weights) -> dict[str, float]:
    """Return the stems that say what a question is about, with their weights."""
    found = {stem(word): weights.of(stem(word)) * weight_of_length(word) for word in asked}
    return {
        word: weight
        for word, weight in found.items()
        if weight >= _CONTENT
        and word not in _FILLERS
        and not (len(word) <= _GRAMMAR and word.isascii() and word.isalpha())
    }


def _asks_otherwise(new: Iterable[str], old: Iterable[str]) -> bool:
    """Whether both have interrogatives, and none in common."""
    kinds = [
        {kind for kind, interrogatives in enumerate(_INTERROGATIVES) if not interrogatives.isdisjoint(some)}
        for some in (new, old)
    ]
    return all(kinds) and kinds[0].isdisjoint(kinds[1])
