"""Word weights: the shipped table, and that nothing else has a say."""

from __future__ import annotations

import asyncio
import doctest
import random
import subprocess
import sys
from pathlib import Path

from gaugeway.records import Context, Sample
from gaugeway.settings.shared import Metric
from gaugeway.text.lexical import idf
from gaugeway.text.lexical.idf import shipped
from monitors.metrics.lexical_groundedness import LexicalGroundedness
from monitors.metrics.registry import draft

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
    results = doctest.testmod(idf)
    assert (results.attempted > 0, results.failed) == (True, 0)
