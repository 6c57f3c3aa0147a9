"""Groups of alike texts: which go together, what stays alone, and nothing that depends on the order of words."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway.text.grouping import WordWeights, linked
from gaugeway.text.topics import terms_of


def groups(texts, others=(), least=0.06):
    terms = [terms_of(text) for text in texts]
    vectors, _ = WordWeights([*terms, *map(terms_of, others)]).vectors(terms)
    return linked(vectors @ vectors.T, [1] * len(texts), least)


def slowly(likeness, least):
    """Average linkage as its definition has it: the two groups with the largest mean likeness are joined."""
    parts = [[at] for at in range(len(likeness))]
    while len(parts) > 1:
        means = {
            (a, b): np.mean([likeness[i][j] for i in parts[a] for j in parts[b]])
            for a in range(len(parts))
            for b in range(a)
        }
        (a, b), best = max(means.items(), key=lambda pair: pair[1])
        if best < least:
            break
        parts[b] += parts.pop(a)
    return {frozenset(part) for part in parts}


@pytest.mark.parametrize("seed", range(12))
def test_nearest_neighbour_chains_join_what_the_definition_joins(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 25))
    likeness = rng.uniform(-0.1, 1.0, (n, n)).astype(np.float32)
    likeness = (likeness + likeness.T) / 2.0
    numbers = linked(likeness.copy(), [1] * n, 0.5)
    parts = {frozenset(at for at in range(n) if numbers[at] == number) for number in numbers}
    assert parts == slowly(likeness, 0.5)


def test_a_text_that_stands_for_many_weighs_as_many():
    likeness = np.array([[1, 0.9, 0.8], [0.9, 1, 0.1], [0.8, 0.1, 1]], dtype=np.float32)
    assert linked(likeness.copy(), [1, 9, 1], 0.4) == [0, 0, 1]
    assert linked(likeness.copy(), [9, 1, 1], 0.4) == [0, 0, 0]


def test_what_all_texts_of_a_group_say_still_joins_them():
    assert groups(["saver refund deadline", "deadline of a saver refund"] * 10, ["train times"] * 5) == [0] * 20


def test_texts_without_a_word_are_like_none():
    assert groups(["", "the and of", "refund ticket", "ticket refund"]) == [0, 1, 2, 2]


def test_no_texts_are_no_groups():
    assert linked(np.zeros((0, 0), dtype=np.float32), []) == []


def test_rare_words_are_no_keywords():
    texts = [terms_of(f"refund of ticket {name}") for name in ("Miller", "Smith", "Jones", "Brown")]
    assert WordWeights([*texts, *[terms_of("train times")] * 20]).keywords(texts) == ("refund", "ticket")
