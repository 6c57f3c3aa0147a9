"""Words that are numbered: which are forgotten, and what stays as it was."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaugeway.records import Context, Sample
from gaugeway.text.lexical.idf import shipped
from gaugeway.text.lexical.matching import Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.sentences import Allowance, sentences, stem
from gaugeway.text.lexical.vocabulary import Vocabulary
from monitors.metrics.lexical_groundedness import LexicalGroundedness

SHELF = "The shelf by the window holds nine ledgers. Refunds are listed in the third one, warranties in the last one."
WORDS = st.text("abcdefgh", min_size=1, max_size=9)


def numbered(count, seed):
    rng = random.Random(seed)
    return " ".join(f"Clerk {rng.randrange(10**6)} keeps rule {rng.randrange(10**6)}." for _ in range(count))


def passages_of(*texts):
    return tuple(Context(text=text) for text in texts)


@given(st.lists(WORDS, min_size=1), st.data())
def test_words_that_are_kept_keep_their_stems_and_weights(words, data):
    vocabulary, fresh = Vocabulary(shipped(), usual=4), Vocabulary(shipped())
    ids = vocabulary.ids(words)
    kept = data.draw(st.lists(st.sampled_from(words), unique=True))
    wanted = np.zeros(len(vocabulary), np.bool_)
    wanted[vocabulary.ids(kept)] = True
    numbers = vocabulary.keep(wanted)
    assert len(vocabulary) == len({*kept, *map(stem, kept)})
    old = dict(zip(words, ids.tolist(), strict=True))
    assert [numbers[old[word]] for word in kept] == vocabulary.ids(kept).tolist(), "known, with their new numbers"
    for again in (kept, words):  # what was forgotten is numbered once more
        here, there = vocabulary.ids(again), fresh.ids(again)
        assert vocabulary.length_weights(here).tolist() == fresh.length_weights(there).tolist()
        roots = vocabulary.stems(here)
        assert vocabulary.idf(roots).tolist() == fresh.idf(fresh.stems(there)).tolist()
        assert [vocabulary.stem_id(word) for word in again] == roots.tolist()


def test_the_scratch_has_a_place_for_each_word_and_is_zeros_after_a_failure():
    vocabulary = Vocabulary(shipped(), usual=10)
    vocabulary.ids([str(number) for number in range(100)])
    assert len(vocabulary.scratch) > len(vocabulary)
    said = sentences("The ferry sails at noon.", Allowance())
    broken = Source([(0, "", None)], vocabulary)  # no passage: it fails halfway
    with pytest.raises(AttributeError):
        compare(said, broken)
    assert not vocabulary.scratch.any()


def test_ever_new_words_cost_no_passage_that_recurs():
    cache = PassageCache(shipped(), max_words=400)
    sizes = []
    for seed in range(50):
        cache.trim()
        sizes.append(len(cache.vocabulary))
        cache.get(SHELF, Allowance())
        cache.get(numbered(20, seed), Allowance())
    assert max(sizes) <= 400
    assert (cache.hits, cache.misses) == (49, 51)
    assert len(cache) < 20, "passages go with their words, those used longest ago first"


@pytest.mark.full
@settings(max_examples=25)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.sampled_from([30, 60, 100_000]))
def test_a_score_does_not_depend_on_what_was_forgotten(drawn, most):
    metric = LexicalGroundedness()
    metric.passages = PassageCache(shipped(), max_words=most)
    for seed in drawn:
        texts = passages_of(SHELF, numbered(4, seed), numbered(4, seed + 1))
        response = f"{numbered(4, seed)[:60]} The third ledger lists refunds. Ledger {seed} is by the window."
        sample = Sample(id="s", started_at=0.0, response=response, contexts=texts)
        assert asyncio.run(metric.score(sample)) == asyncio.run(LexicalGroundedness().score(sample))
