"""Which metrics a sample gets: consistent, biased where asked, and with the probability it was done with."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.sampling import Bias, MetricSampler, keeps, signals_of
from monitors.statistics.weighted_mean import hajek


def sample(n, response="Within 30 days.", **about):
    return Sample(id=f"x{n}", started_at=0.0, response=response, contexts=(Context(text="30 days"),), **about)


def lexical(value):
    return [Evaluation(sample_id="x", metric="lexical_groundedness", version="2", outcome=Score(value))]


def test_lower_rates_give_subsets_by_either_rule():
    rng = np.random.default_rng(1)
    traces = [rng.bytes(16).hex() for _ in range(2000)]
    for nested in (False, True):
        chosen = {
            rate: {one for one in traces if keeps(one, "e", rate, salt="s", nested_with_otel=nested)}
            for rate in (0.1, 0.3, 1.0)
        }
        assert chosen[0.1] < chosen[0.3] < chosen[1.0] == set(traces)
        assert abs(len(chosen[0.3]) - 600) < 100


def test_nested_with_otel_goes_by_the_low_56_bits_and_takes_any_name_for_a_trace():
    low, high = "f" * 18 + "0" * 14, "0" * 18 + "f" * 14
    assert not keeps(low, "e", 0.5, salt="s", nested_with_otel=True)
    assert keeps(high, "e", 0.01, salt="s", nested_with_otel=True)
    assert keeps("no trace id", "e", 1.0, salt="s", nested_with_otel=True)
    assert keeps(None, "e", 1.0, salt="s", nested_with_otel=True)


@pytest.mark.parametrize(
    ("response", "refused"),
    [
        ("I'm sorry, but I cannot help with that.", True),
        ("I don\u2019t know.", True),
        ("Das weiß ich nicht.", True),
        ("抱歉\uff0c我无法回答。", True),
        ("Lo siento, no puedo ayudar.", True),
        ("I can help you with that.", False),
        ("Sorry seems to be the hardest word is a song.", False),
        ("", False),
    ],
)
def test_a_refusal_is_told_by_how_it_begins(response, refused):
    assert ("refusal" in signals_of(sample(1, response), [])) == refused


@pytest.mark.full
def test_what_looks_poor_is_judged_more_often_and_the_mean_stays_right():
    choice = MetricSampler("s", bias=[Bias(factor=4.0, signal="low_lexical"), Bias(factor=2.0, app="new-*")])
    assert choice.rate(sample(1), 0.1, lexical(0.2)) == pytest.approx(0.4)
    assert choice.rate(sample(1, app="new-shop"), 0.1, lexical(0.9)) == pytest.approx(0.2)
    assert choice.rate(sample(1), 0.5, lexical(0.2)) == 1.0
    rng = np.random.default_rng(2)
    truth, values, rates = [], [], []
    for n in range(40_000):
        value = float(rng.random() < 0.8)
        seen = lexical(float(np.clip(0.35 + 0.3 * value + rng.normal(0, 0.1), 0, 1)))
        one = sample(n)
        rate = choice.rate(one, 0.1, seen)
        truth.append(value)
        if choice.keeps(one, rate):
            values.append(value)
            rates.append(rate)
    assert hajek(values, rates).mean == pytest.approx(np.mean(truth), abs=0.02)
    assert np.mean(values) < np.mean(truth) - 0.1


def test_all_exchanges_of_a_conversation_get_the_same_metrics_and_the_mean_stays_right():
    choice = MetricSampler("s", by_conversation=True)
    rng = np.random.default_rng(3)
    truth, values, rates = [], [], []
    for conversation in range(4000):
        level = rng.random()
        exchanges = [
            sample(f"{conversation}-{n}", conversation=f"c{conversation}", trace_id=f"{conversation}{n}")
            for n in range(int(rng.integers(1, 8)))
        ]
        chosen = {choice.keeps(one, 0.2) for one in exchanges}
        assert len(chosen) == 1
        truth += [level] * len(exchanges)
        if chosen == {True}:
            values += [level] * len(exchanges)
            rates += [choice.joint(one, 0.2) for one in exchanges]
    assert hajek(values, rates).mean == pytest.approx(np.mean(truth), abs=0.03)
    assert len(values) == pytest.approx(0.2 * len(truth), rel=0.15)


def test_a_conversation_multiplies_the_rate_of_capture_and_a_trace_shares_it():
    one = sample(1, conversation="c", rate=0.5)
    assert MetricSampler("s", by_conversation=True).joint(one, 0.2) == pytest.approx(0.1)
    assert MetricSampler("s").joint(one, 0.2) == 0.2


def test_an_exchange_without_a_conversation_is_chosen_by_its_trace():
    whole, single = MetricSampler("s", by_conversation=True), MetricSampler("s")
    for n in range(50):
        one = sample(n, trace_id=f"t{n}")
        assert whole.keeps(one, 0.5) == single.keeps(one, 0.5)


def test_factors_too_far_apart_are_refused():
    with pytest.raises(ValueError, match="4 to 1"):
        MetricSampler("s", bias=[Bias(factor=5.0)])
