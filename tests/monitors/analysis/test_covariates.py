"""Which covariate the estimates use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.analysis.quality import Covariates
from monitors.evaluation.evaluator import BudgetFactor, Evaluator

COUNT, NOW, WINDOW_S = 1500, 100_000.0, 3600.0
KEY = ("shop", "faithfulness")


async def traffic(store, *, verified=1.0, before_s=0.0, seed=1):
    """Answers of one window: a verifier that knows more of the judge's score than counting words does."""
    rng = np.random.default_rng(seed)
    for number in range(COUNT):
        good = rng.random() < 0.85
        at = NOW - before_s - WINDOW_S * rng.random() * 0.99
        sample = Sample(id=f"{seed}-{number}", started_at=at, app="shop")
        cheap = {"grounding": 0.2, "lexical_groundedness": 0.6}
        rows = [
            Evaluation(
                sample_id=sample.id,
                metric=name,
                version="1",
                outcome=Score(float(np.clip(0.7 * good + rng.normal(0.15, noise), 0.0, 1.0)))
                if name != "grounding" or rng.random() < verified
                else Failed("timeout"),
                rate=1.0,
            )
            for name, noise in cheap.items()
        ]
        if rng.random() < 0.2:
            rows.append(
                Evaluation(
                    sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(float(good)), rate=0.2
                )
            )
        await store.add(sample, rows)


def helped(tmp_path, names, **options):
    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        await traffic(store, **options)
        covariates = Covariates(store, names, WINDOW_S)
        found = await covariates.helped(Query(since=NOW - WINDOW_S, until=NOW), NOW, [KEY])
        await store.aclose()
        return found

    made = asyncio.run(main())
    assert not {metric for _, metric in made} & {"grounding", "lexical_groundedness"}, "they need no covariate"
    return made[KEY]


BOTH = ("grounding", "lexical_groundedness", "faithfulness")


@pytest.mark.full
def test_the_verifier_is_the_covariate_and_narrows_the_interval_more(tmp_path):
    one = helped(tmp_path / "a", BOTH)
    other = helped(tmp_path / "b", ("lexical_groundedness", "faithfulness"))
    assert (one.covariate, other.covariate) == ("grounding", "lexical_groundedness")
    assert one.found.variance < 0.75 * other.found.variance
    assert one.found.mean == pytest.approx(0.85, abs=0.03)


def test_where_the_verifier_failed_counting_words_takes_its_place(tmp_path):
    assert helped(tmp_path, BOTH, verified=0.7).covariate == "lexical_groundedness"


def test_without_either_there_is_none():
    assert (
        asyncio.run(Covariates(None, ("faithfulness",), WINDOW_S).helped(Query(since=0.0, until=1.0), NOW, [KEY])) == {}
    )


def test_decisions_on_the_same_metric_are_the_covariate_of_the_anchor(tmp_path):
    """Whatever the other metrics say: the anchor's scores are paired with the decisions of their own metric."""

    async def main():
        store, rng = SQLiteStore(tmp_path / "store.db"), np.random.default_rng(7)
        for number in range(COUNT):
            at = NOW - WINDOW_S * (0.01 + 0.98 * rng.random())
            sample = Sample(id=str(number), started_at=at, app="shop")
            truth = {name: rng.random() < mean for name, mean in (("faithfulness", 0.85), ("hallucination", 0.2))}
            scores = {name: (1.0, 0.8 * good + 0.1) for name, good in truth.items()}
            scores["lexical_groundedness"] = (1.0, rng.random())
            if rng.random() < 0.2:
                scores |= {f"{name}~anchor": (0.2, float(good)) for name, good in truth.items()}
            rows = [
                Evaluation(sample_id=sample.id, metric=name, version="1", outcome=Score(value), rate=rate)
                for name, (rate, value) in scores.items()
            ]
            await store.add(sample, rows)
        names = ["faithfulness", "hallucination", "faithfulness~anchor", "hallucination~anchor", "lexical_groundedness"]
        wanted = [("shop", name) for name in names[2:4]]
        window = Query(since=NOW - WINDOW_S, until=NOW)
        both = await Covariates(store, names, WINDOW_S).helped(window, NOW, wanted)
        without = await Covariates(store, names[2:], WINDOW_S).helped(window, NOW, wanted)
        await store.aclose()
        return both, without

    both, without = asyncio.run(main())
    for name, mean in (("faithfulness", 0.85), ("hallucination", 0.2)):
        key = ("shop", f"{name}~anchor")
        assert both[key].covariate == name
        assert without[key].covariate == "lexical_groundedness"
        assert both[key].found.mean == pytest.approx(mean, abs=0.03)
        assert both[key].found.variance < 0.3 * without[key].found.variance


@dataclass(frozen=True)
class Enabled:
    metric: object
    rate: float


class Verified:
    name, version, judge, verifies = "grounding", "1", "verifier-1", True

    async def score(self, sample):
        return Score(0.4)


class Judged(Verified):
    name, verifies = "faithfulness", False


def test_neither_budget_nor_back_pressure_lowers_the_rate_of_the_verifier():
    evaluator = Evaluator(
        [Enabled(Verified(), 1.0), Enabled(Judged(), 1.0)],
        MetricSampler("salt"),
        budget_factor=lambda *_: BudgetFactor(1e-9, 1e-9),
    )
    found = asyncio.run(evaluator.evaluate(Sample(id="1", started_at=0.0)))
    assert [(one.metric, one.judge, one.rate) for one in found] == [("grounding", "verifier-1", 1.0)]
