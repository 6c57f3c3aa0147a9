"""The weight of an evaluation in alerts: what lowers all rates alike cancels out, what the exchange decides stays."""

import asyncio
import time

from gaugeway.records import Sample, Score
from gaugeway.sampling import Bias, MetricSampler
from monitors.evaluation.evaluator import BudgetFactor, Evaluator


class Half:
    name, version, judge = "half", "1", "judge"

    async def score(self, sample):
        return Score(0.5)


class Rated:
    def __init__(self, metric, rate):
        self.metric, self.rate = metric, rate


def weights(samples, *, rate=1.0, bias=(), budget=lambda *_: BudgetFactor()):
    """(rate, weight) of each evaluation of the judged metric."""
    evaluator = Evaluator([Rated(Half(), rate)], MetricSampler("salt", bias=bias), budget_factor=budget)
    found = [asyncio.run(evaluator.evaluate(one)) for one in samples]
    return [(one.rate, one.weight) for some in found for one in some]


def sample(number, **fields):
    return Sample(id=f"s{number}", started_at=time.time(), response="Two.", **fields)


def test_a_budget_that_lowers_all_rates_leaves_the_weights_at_one():
    found = weights([sample(n) for n in range(400)], budget=lambda *_: BudgetFactor(0.1, 0.1))
    assert 10 < len(found) < 90
    assert set(found) == {(0.1, 1.0)}


def test_a_slice_that_the_reserve_judges_more_often_weighs_less():
    factors = {"rare": BudgetFactor(0.8, 0.2), "common": BudgetFactor(0.2, 0.2)}
    rare = weights([sample(n, model="rare") for n in range(200)], budget=lambda one, _: factors[one.model])
    common = weights([sample(n, model="common") for n in range(200)], budget=lambda one, _: factors[one.model])
    assert {(rate, round(weight, 9)) for rate, weight in rare} == {(0.8, 0.25)}
    assert set(common) == {(0.2, 1.0)}


def test_a_bias_keeps_its_ratio_whatever_the_budget():
    bias = [Bias(factor=2.0, model="new")]
    for budget in (1.0, 0.3):
        run = {"rate": 0.4, "bias": bias, "budget": lambda *_, b=budget: BudgetFactor(b, b)}
        assert {weight for _, weight in weights([sample(n, model="new") for n in range(100)], **run)} == {0.5}
        assert {weight for _, weight in weights([sample(n, model="old") for n in range(100)], **run)} == {1.0}


def test_the_capture_rate_bounds_what_a_bias_can_raise():
    run = {"rate": 0.4, "bias": [Bias(factor=2.0, model="new")]}
    found = weights([sample(n, model="new", rate=0.5) for n in range(200)], **run)
    assert set(found) == {(0.5, 0.8)}
    found = weights([sample(n, model="new", rate=0.1) for n in range(200)], **run)
    assert set(found) == {(0.1, 1.0)}
