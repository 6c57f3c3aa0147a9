"""Retrieval metrics: worked values, every edge, and agreement with definitions written down in another way."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.records import Context, Sample, Skipped
from gaugeway.settings.shared import Metric
from monitors.metrics import ranking
from monitors.metrics.ranking import average_precision, ndcg_at
from monitors.metrics.registry import build

NAMES = ("precision@3", "recall@3", "hit@3", "mrr", "ndcg@3")


def sample(retrieved, relevant, **changes):
    contexts = tuple(Context(text="x", id=one) for one in retrieved)
    given = {"id": "s", "started_at": 0.0, "contexts": contexts, "context_source": "explicit"}
    return Sample(**given, reference_context_ids=tuple(relevant), **changes)


def metric(name, **options):
    return build({name: Metric(options=options)}, None, None).enabled[-1].metric


def score(name, retrieved, relevant, **options):
    return asyncio.run(metric(name, **options).score(sample(retrieved, relevant)))


def values(retrieved, relevant):
    return [score(name, retrieved, relevant).value for name in NAMES]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([True, True, False, True, False], 0.91667),
        ([False, True], 0.5),
        ([True, True, True], 1.0),
        ([False, False], 0.0),
        ([], 0.0),
    ],
)
def test_average_precision(verdicts, expected):
    assert average_precision(verdicts) == pytest.approx(expected, abs=5e-6)


@given(st.integers(1, 200))
def test_a_perfect_list_is_worth_exactly_1(n):
    assert average_precision([True] * n) == 1.0
    ids = [str(i) for i in range(n)]
    assert ndcg_at(ranking.Ranking(retrieved=tuple(ids), relevant=frozenset(ids)), n) == 1.0


def test_one_of_ten_relevant_at_rank_1_has_an_ndcg_of_0_2201():
    assert score("ndcg@10", ["a"], "abcdefghij").value == pytest.approx(0.2201, abs=5e-5)


@pytest.mark.parametrize(
    ("retrieved", "relevant", "expected"),
    [
        ("abc", "abc", [1, 1, 1, 1, 1]),
        ("xya", "ab", [1 / 3, 1 / 2, 1, 1 / 3, 0.5 / (1 + 1 / math.log2(3))]),
        ("xyzab", "ab", [0, 0, 0, 1 / 4, 0]),
        ("xyz", "a", [0, 0, 0, 0, 0]),
        ("a", "a", [1 / 3, 1, 1, 1, 1]),
        ("", "a", [0, 0, 0, 0, 0]),
        ("aab", "ab", [2 / 3, 1, 1, 1, 1]),
        ("abc", "aab", [2 / 3, 1, 1, 1, 1]),
        ([None, "a"], "a", [1 / 3, 1, 1, 1 / 2, 1 / math.log2(3)]),
        ([None, None, "a"], "a", [1 / 3, 1, 1, 1 / 3, 1 / 2]),
    ],
)
def test_worked_values(retrieved, relevant, expected):
    assert values(retrieved, relevant) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"relevant": ()}, "no_relevant_ids"),
        ({"relevant": (" ",)}, "no_relevant_ids"),
        ({"retrieved": (None, None)}, "no_context_ids"),
        ({"retrieved": (), "source": "none"}, "no_contexts"),
    ],
)
def test_what_there_is_nothing_to_rank_in_is_skipped(name, changes, reason):
    given = {"retrieved": "a", "relevant": "a", "source": "explicit"} | changes
    of = sample(given["retrieved"], given["relevant"])
    of = Sample(
        id="s",
        started_at=0.0,
        contexts=of.contexts,
        reference_context_ids=of.reference_context_ids,
        context_source=given["source"],
    )
    assert asyncio.run(metric(name).score(of)) == Skipped(reason)


def test_precision_may_be_out_of_what_was_retrieved():
    assert score("precision@3", "a", "a", divide_by="retrieved").value == 1.0
    assert score("precision@3", "axyz", "a", divide_by="retrieved").value == pytest.approx(1 / 3)
    assert score("precision@3", "", "a", divide_by="retrieved") == Skipped("no_contexts")
    assert metric("precision@3").version != metric("precision@3", divide_by="retrieved").version


def test_the_evidence_shows_the_ranks_and_what_was_missed():
    assert score("recall@2", "axb", "abc").evidence == (
        {"rank": 1, "id": "a", "relevant": True},
        {"rank": 2, "id": "x", "relevant": False},
        {"missed": ["b", "c"]},
    )


@given(
    st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=12),
    st.sets(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=12),
    st.integers(1, 15),
)
def test_they_agree_with_the_definitions_spelt_out(retrieved, relevant, k):
    top = retrieved[:k]
    found = len(relevant & set(top))
    gain = sum(1 / math.log2(rank + 1) for rank, one in enumerate(top, 1) if one in relevant)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    first = next((1 / rank for rank, one in enumerate(retrieved, 1) if one in relevant), 0.0)
    expected = [found / k, found / len(relevant), float(found > 0), first, gain / best]
    got = [score(name.replace("3", str(k)), retrieved, relevant).value for name in NAMES]
    assert got == pytest.approx(expected, abs=1e-12)
    assert all(0.0 <= one <= 1.0 for one in got)
