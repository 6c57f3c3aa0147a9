"""`gaugeway evaluate` as users run it: every metric there is over the example data set, and its four reports."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples import rules
from monitors.metrics.registry import at_rank, names
from monitors.offline import Run
from tests.support.rules_server import rules_server

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data" / "finance.jsonl"
ROWS = {row["id"]: row for row in map(json.loads, DATA.read_text("utf-8").splitlines())}
CONFIG = """
[judge]
base_url = "{url}"
model = "stub"
price_in = 1.0
price_out = 10.0

[embeddings]
base_url = "{url}"
model = "vectors"

[metrics."geval:clarity"]
criteria = "Is the response clear and complete?"

[metrics."precision@1"]
"""
WHOLE = ("goal_met", "gave_up", "turns_to_resolution")
OF_CONVERSATIONS = ("tool_use", "asked_again", *WHOLE)
PER_CALL = (1000 * 1.0 + 100 * 10.0) / 1e6


def gaugeway(directory, *arguments):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gaugeway", "evaluate", *map(str, arguments)],
        cwd=directory,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One run of everything: what was printed, the directory with the reports, and how often the judge was asked."""
    directory = tmp_path_factory.mktemp("evaluate")
    with rules_server() as llm:
        config = directory / "gaugeway.toml"
        config.write_text(CONFIG.format(url=llm.url))
        outputs = [f"--output=report{suffix}" for suffix in (".html", ".md", ".json", ".xml")]
        first = gaugeway(directory, DATA, "--config", config, "--metrics", "all", *outputs)
        asked = sum("messages" in one.body for one in llm.requests)
        again = gaugeway(
            directory, DATA, "--config", config, "--metrics", "all", "--fail-under", "mrr=0.95,recall@5=0.8"
        )
        asked_again = sum("messages" in one.body for one in llm.requests) - asked
    assert first.returncode == 0, first.stdout + first.stderr
    return {"first": first, "again": again, "asked": asked, "asked_again": asked_again, "directory": directory}


@pytest.fixture(scope="module")
def run(done):
    return Run.load(done["directory"] / "report.json")


def score(run, sample, metric):
    return next(row for row in run.rows if row.sample.id == sample).score(metric)


def mean(run, metric):
    return next(one.mean for one in run.summary if one.metric == metric)


def scored(run):
    """All metrics but those that need a conversation or an agent."""
    return [one for one in run.summary if one.metric not in OF_CONVERSATIONS]


def test_every_metric_there_is_has_scores_and_none_fails(run, done):
    computed = {*names(), *at_rank(5), "geval:clarity", "precision@1"} - {"grounding"}  # needs a verifier
    assert {one.metric for one in run.summary} == computed
    assert len(run.rows) == len(ROWS) == 42
    skipped = {one.metric: dict(one.skipped) for one in run.summary if one.metric in OF_CONVERSATIONS}
    whole = {name: {"no_transcript": 42} for name in WHOLE}
    assert skipped == {"tool_use": {"no_tool_calls": 42}, "asked_again": {"no_history": 42}, **whole}
    for one in scored(run):
        assert one.n >= 10, one
        assert not one.failed, one
        assert one.n + sum(one.skipped.values()) == 42, one
        assert 0.0 <= one.low <= one.mean <= one.high <= 1.0
        assert f"{one.mean:.3f} {one.low:.3f} to {one.high:.3f}" in " ".join(done["first"].stdout.split())
    verifier, note = run.notes
    assert verifier.startswith("grounding needs a verifier")
    assert note.startswith("gave_up, goal_met, turns_to_resolution are about whole conversations")


def test_what_was_paid_is_what_the_judge_was_asked(run, done):
    assert run.paid_usd == pytest.approx(done["asked"] * PER_CALL)
    assert sum(one.usd for one in run.summary) == pytest.approx(run.paid_usd)
    assert f"{run.paid_usd:.4f} USD paid" in done["first"].stdout


def test_rankings_are_worth_what_the_ids_say(run):
    """Each question has one right passage and two found: 40 times it is first, once second, once not there."""
    found = {name: row["retrieved_context_ids"] for name, row in ROWS.items()}
    right = {name: row["reference_context_ids"][0] for name, row in ROWS.items()}
    places = Counter(found[name].index(right[name]) + 1 if right[name] in found[name] else 0 for name in ROWS)
    assert places == {1: 40, 2: 1, 0: 1}
    assert mean(run, "mrr") == pytest.approx((40 + 1 / 2) / 42)
    assert mean(run, "hit@5") == mean(run, "recall@5") == pytest.approx(41 / 42)
    assert mean(run, "precision@5") == pytest.approx(41 / 5 / 42)
    assert mean(run, "precision@1") == pytest.approx(40 / 42)
    assert mean(run, "ndcg@5") == pytest.approx((40 + 1 / math.log2(3)) / 42)
    assert score(run, "fin-42", "ndcg@5") == pytest.approx(0.6309, abs=1e-4)
    assert score(run, "fin-27", "mrr") == 0.0


def test_the_latency_is_that_of_the_rows(run, done):
    taken = sorted(row["duration_s"] for row in ROWS.values())
    assert run.latency.n == 42
    assert run.latency.mean == pytest.approx(statistics.fmean(taken))
    assert run.latency.p50 == pytest.approx(statistics.median(taken))
    assert run.latency.p95 == pytest.approx(taken[38] + 0.95 * (taken[39] - taken[38])), "place 0.95 x 41 = 38.95"
    assert run.latency.p99 == pytest.approx(taken[40] + 0.59 * (taken[41] - taken[40])), "place 0.99 x 41 = 40.59"
    line = f"Answer latency: mean {run.latency.mean:.2f} s"
    assert line in done["first"].stdout
    assert all(line in (done["directory"] / f"report{suffix}").read_text() for suffix in (".html", ".md"))


def test_one_answer_by_hand(run):
    """Two claims, the first word for word in a context, the second a number that is in none."""
    assert score(run, "fin-03", "faithfulness") == 1 / 2
    assert score(run, "fin-03", "context_relevancy") == 1 / 4
    assert score(run, "fin-03", "hallucination") == 0.0
    assert score(run, "fin-03", "context_precision") == score(run, "fin-03", "context_utilization") == 1.0
    assert score(run, "fin-03", "context_recall") == 0.0
    assert score(run, "fin-03", "noise_sensitivity") == 1 / 2
    assert score(run, "fin-03", "geval:clarity") == (5 - 1) / (5 - 1)
    # Of 17 distinct words 3 are in no context, and 10 of 19 pairs of neighbours.
    assert score(run, "fin-03", "lexical_groundedness") == pytest.approx(0.9 * 14 / 17 + 0.1 * 10 / 19, abs=1e-4)


def test_similarity_is_the_cosine_of_the_words(run):
    for name, row in ROWS.items():
        one, other = (Counter(rules.words(row[field])) for field in ("response", "reference"))
        lengths = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
        cosine = sum(one[word] * other[word] for word in one) / lengths
        assert score(run, name, "answer_similarity") == pytest.approx(cosine, abs=0.15)  # words share places
    similarity = score(run, "fin-03", "answer_similarity")
    assert score(run, "fin-03", "answer_correctness") == pytest.approx(0.75 * 0.0 + 0.25 * similarity)


def test_the_four_reports_say_the_same(run, done):
    page, text, xml = (
        (done["directory"] / f"report{suffix}").read_text("utf-8") for suffix in (".html", ".md", ".xml")
    )
    suites = {suite.get("name"): suite for suite in ET.fromstring(xml)}
    for one in scored(run):
        name = re.escape(one.metric.replace("_", r"\_"))
        assert re.search(rf"^\| {name}.* \| {one.n} \| {one.mean:.3f} \| {one.low:.3f} to", text, re.MULTILINE), name
        row = re.search(rf"<tr><td><a href=\"#m\d+\">{re.escape(one.metric)}</a>.*?</tr>", page, re.DOTALL)
        assert f">{one.n}<" in row[0]
        assert f">{one.mean:.3f}<" in row[0]
        suite = suites[one.metric]
        assert int(suite.get("tests")) == 42
        assert int(suite.get("skipped")) == sum(one.skipped.values())
    raw = json.loads((done["directory"] / "report.json").read_text())
    assert [one["mean"] for one in raw["summary"]] == [one.mean for one in run.summary]
    assert raw["latency"]["n"] == 42


def test_a_second_run_pays_nothing_and_a_floor_that_is_missed_fails_it(done):
    again = done["again"]
    assert done["asked_again"] == 0
    assert again.returncode == 1, again.stdout + again.stderr
    assert "missed  mrr 0.95: the lower 95 % bound is 0.8" in again.stdout
    assert "met  recall@5 0.8" in again.stdout
