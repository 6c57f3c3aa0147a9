"""Runs of words, and vocabularies that grow, against the obvious ways to compute the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gaugeway.text.lexical.matching import LONGEST_RUN, Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.sentences import Allowance, Sentence
from gaugeway.text.lexical.vocabulary import shipped


def sentence(words):
    return Sentence(" ".join(words), tuple(words), (), ())


def obvious(said, contexts):
    """The share of pairs that stand in a context, and the longest run, of one sentence."""
    runs = {tuple(one[at : at + n]) for one in contexts for n in range(1, LONGEST_RUN + 1) for at in range(len(one))}
    pairs = [tuple(said[at : at + 2]) in runs for at in range(len(said) - 1)]
    longest = max(
        n if tuple(said[at : at + n]) in runs else 0 for n in range(LONGEST_RUN + 1) for at in range(len(said) - n + 1)
    )
    return sum(pairs) / len(pairs), longest / min(len(said), LONGEST_RUN)


@pytest.mark.parametrize(("words", "sentences"), [(3, 5), (12, 30), (60, 30), (40, 300)])
def test_pairs_and_runs_are_those_of_the_obvious_search(words, sentences):
    """The last has more words than are compared at a time."""
    draw = random.Random(words)
    vocabulary = [f"word{'abcdefghij'[at % 10]}{'abcdefghij'[at // 10]}" for at in range(words)]
    passages = PassageCache(shipped())
    passages.vocabulary.ids([f"other{number}" for number in range(5_000)])  # it has grown
    texts = [" ".join(draw.choices(vocabulary, k=200)) for _ in range(3)]
    parsed = [(index, text, passages.get(text, Allowance())) for index, text in enumerate(texts)]
    said = [draw.choices([*vocabulary, "unheard"], k=draw.randint(2, 20)) for _ in range(sentences)]
    for one in said[::3]:  # quotes, so that runs are long
        context = draw.choice(texts).split()
        at = draw.randrange(len(context) - 8)
        one[1:1] = context[at : at + draw.randint(2, 8)]
    _, found = compare([sentence(one) for one in said], Source(parsed, passages.vocabulary))
    contexts = [text.split() for text in texts]
    assert [(one.bigrams, one.run) for one in found] == [pytest.approx(obvious(one, contexts)) for one in said]
    assert len({one.run for one in found}) > 1
    assert not np.any(passages.vocabulary.scratch)
