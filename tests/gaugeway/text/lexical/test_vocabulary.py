"""Words that are numbered: which are forgotten, and what stays as it was."""

from __future__ import annotations

import asyncio
import doctest
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaugeway.records import Context, Sample
from gaugeway.settings.shared import Metric
from gaugeway.text.lexical import vocabulary as module
from gaugeway.text.lexical.matching import Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.sentences import Allowance, sentences, stem
from gaugeway.text.lexical.vocabulary import Vocabulary, shipped
from monitors.metrics.lexical_groundedness import LexicalGroundedness
from monitors.metrics.registry import draft

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


ROOT = Path(__file__).parents[4]


def test_the_shipped_table_knows_grammar_in_four_languages_and_nothing_special():
    weights = shipped()
    for word in ("the", "der", "les", "los"):
        assert weights.of(word) < 0.35, word
    assert weights.of("volcan") == weights.of("東京") == 1.0


def test_the_shipped_table_is_what_its_script_makes():
    script = ROOT / "benchmarks" / "groundedness" / "table.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_a_sample_scores_the_same_whatever_was_scored_before():
    context = " ".join(f"The widget {n} is in box {n}." for n in range(1_500))
    large = Sample(id="s", started_at=0.0, response="The widget flew to Mars.", contexts=(Context(text=context),))
    small = Sample(
        id="t",
        started_at=0.0,
        response="The widget flew to a place.",
        contexts=(Context(text="A widget is here. There are volcanoes elsewhere."),),
    )
    metric = LexicalGroundedness()
    first = asyncio.run(metric.score(small))
    asyncio.run(metric.score(large))
    assert asyncio.run(metric.score(small)) == first


def test_not_even_the_last_digit_depends_on_what_was_read_before():
    draw = random.Random(4)
    words = [f"{draw.choice('abcdef')}ord{n}" for n in range(400)]
    samples = [
        Sample(
            id=str(n),
            started_at=0.0,
            response=". ".join(" ".join(draw.sample(words, 12)).capitalize() for _ in range(8)) + ".",
            contexts=tuple(Context(text=" ".join(draw.choices(words, k=90)) + ".") for _ in range(3)),
        )
        for n in range(20)
    ]
    forwards, backwards = LexicalGroundedness(), LexicalGroundedness()
    found = [asyncio.run(forwards.score(one)) for one in samples]
    assert found == [asyncio.run(backwards.score(one)) for one in reversed(samples)][::-1]


def test_the_metric_has_no_options_of_its_own():
    given = Metric(options={"weights": 1})
    (problem,) = draft({"lexical_groundedness": given}, None, None).problems
    assert problem.endswith("unknown option; known: enabled, rate, threshold, objective")


def test_the_examples_in_the_docstrings_hold():
    results = doctest.testmod(module)
    assert (results.attempted > 0, results.failed) == (True, 0)
