"""The weights of words that come with the package."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

from gaugeway.text.lexical import vocabulary as module
from gaugeway.text.lexical.vocabulary import shipped

ROOT = Path(__file__).parents[4]


def test_the_shipped_table_knows_grammar_in_four_languages_and_nothing_special():
    weights = shipped()
    for word in ("the", "der", "les", "los"):
        assert weights.of(word) < 0.35, word
    assert weights.of("volcan") == weights.of("東京") == 1.0


def test_the_shipped_table_is_what_its_script_makes():
    script = ROOT / "benchmarks" / "groundedness" / "table.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_the_examples_in_the_docstrings_hold():
    results = doctest.testmod(module)
    assert (results.attempted > 0, results.failed) == (True, 0)
