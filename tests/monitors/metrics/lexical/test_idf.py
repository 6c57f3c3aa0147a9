"""Word weights: the shipped ones, and those learnt from the traffic."""

from __future__ import annotations

import asyncio
import doctest
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from monitors.metrics.lexical import idf
from monitors.metrics.lexical.idf import Fixed, Weights, shipped
from monitors.metrics.lexical.idf.traffic import TrafficIdf
from monitors.metrics.lexical_groundedness import LexicalGroundedness
from monitors.records import Context, Sample

ROOT = Path(__file__).parents[4]


def test_the_shipped_table_knows_grammar_in_four_languages_and_nothing_special():
    weights = shipped()
    for word in ("the", "der", "les", "los"):
        assert weights.of(word) < 0.35, word
    assert weights.of("volcan") == weights.of("東京") == 1.0


def test_the_shipped_table_is_what_its_script_makes():
    script = ROOT / "benchmarks" / "groundedness" / "table.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_what_the_traffic_says_often_weighs_less():
    learning = TrafficIdf(shipped())
    before = learning.weights()
    learning.observe([{"widget", f"word{n}"} for n in range(2_000)])
    after = learning.weights()
    assert after.of("widget") < 0.2
    assert after.of("unseen") == 1.0
    assert before.of("widget") == 1.0, "what was handed out does not change"


def test_weights_are_published_at_doublings_only():
    learning = TrafficIdf(shipped())
    published = []
    for n in range(9_000):
        learning.observe([{"lamp", str(n)}])
        if not published or learning.weights() is not published[-1]:
            published.append(learning.weights())
    assert [round(one.sentences) for one in published] == [1_000, 2_024, 3_048, 5_096, 9_192]


def test_a_passage_retrieved_again_and_again_counts_once():
    learning = TrafficIdf(shipped())
    for _ in range(5_000):
        learning.observe([{"lamp", "runs", "nine"}])
    assert learning.weights().of("lamp") == 1.0


def test_what_is_learnt_stays_bounded():
    learning = TrafficIdf(shipped())
    for n in range(0, 300_000, 1_000):
        learning.observe([{f"a{n}", *(f"b{n + k}" for k in range(1_000))}, {f"a{n}", "common"}])
    assert len(learning._counts) <= 100_000  # noqa: SLF001 - what is published holds less
    assert len(learning._seen) <= 20_000  # noqa: SLF001 - same


def test_old_traffic_is_forgotten():
    learning = TrafficIdf(shipped())
    learning.observe([{"old", f"{n}"} for n in range(70_000)])
    before = learning.weights().of("old")
    learning.observe([{"new", f"x{n}"} for n in range(200_000)])
    assert before < learning.weights().of("old")


def test_threads_may_learn_at_once():
    learning = TrafficIdf(shipped())

    def learn(name):
        for n in range(4_000):
            learning.observe([{name, f"{name}{n}"}])

    threads = [threading.Thread(target=learn, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    learning.observe([{f"more{n}"} for n in range(384)])  # the next to be published are 16,384
    prior, published = TrafficIdf(shipped()).weights(), learning.weights()
    assert published.sentences == prior.sentences + 16_384
    assert all(published.counts[name] - prior.counts.get(name, 0.0) == pytest.approx(4_000) for name in "abcd")


def test_the_metric_learns_only_where_it_is_given_something_that_does():
    context = " ".join(f"The widget {n} is in box {n}." for n in range(1_500))
    sample = Sample(id="s", started_at=0.0, response="The widget flew to Mars.", contexts=(Context(text=context),))
    small = Sample(
        id="t",
        started_at=0.0,
        response="The widget flew to a place.",
        contexts=(Context(text="A widget is here. There are volcanoes elsewhere."),),
    )

    def twice(metric):
        first = asyncio.run(metric.score(small)).value
        asyncio.run(metric.score(sample))
        return first, asyncio.run(metric.score(small)).value

    first, second = twice(LexicalGroundedness())
    assert first == second
    first, second = twice(LexicalGroundedness(TrafficIdf(shipped())))
    assert second < first, "what everybody talks about proves less"


def test_fixed_weights_are_those_given():
    assert Fixed(Weights(9, {"a": 9.0})).weights().of("a") < 0.1


def test_the_examples_in_the_docstrings_hold():
    results = doctest.testmod(idf)
    assert (results.attempted > 0, results.failed) == (True, 0)
