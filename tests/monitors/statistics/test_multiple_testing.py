"""Which slices fell, how the budget is shared, and which exchanges are judged how often."""

from __future__ import annotations

import math

import numpy as np
import pytest
from opentelemetry.sdk.trace._sampling_experimental import composable_traceid_ratio_based, composite_sampler
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from gaugeway.sampling import Bias, Facts, keep_nested_with_otel, otel_position, rate_for, smallest_rate, stratum_of
from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.statistics.multiple_testing import affected, per_period, share


def by_definition(evidence, alpha):
    """The e-BH rule written out: the largest k for which the k-th largest e-value is >= S/(alpha k)."""
    values = sorted((math.exp(value) for value in evidence.values()), reverse=True)
    return max((k for k, value in enumerate(values, 1) if value >= len(values) / (alpha * k)), default=0)


def test_the_list_is_that_of_the_definition():
    rng = np.random.default_rng(1)
    lengths = set()
    for _ in range(300):
        evidence = {str(i): float(value) for i, value in enumerate(rng.normal(2.0, 3.0, 12))}
        listed = affected(evidence, 0.2)
        lengths.add(len(listed))
        assert len(listed) == by_definition(evidence, 0.2)
        assert list(listed) == sorted(evidence, key=evidence.get, reverse=True)[: len(listed)]
    assert len(lengths) > 4


def test_one_slice_needs_what_a_test_needs_and_none_gives_none():
    assert affected({"a": math.log(10.0) + 1e-9}, 0.1) == ("a",)
    assert affected({"a": math.log(9.9)}, 0.1) == ()
    assert affected({}, 0.1) == ()


def test_few_of_the_slices_listed_did_not_fall():
    rng = np.random.default_rng(2)
    shares, found = [], []
    for _ in range(200):
        fell = np.arange(20) < 5
        x = (rng.random((300, 20)) < np.where(fell, 0.6, 0.8)).astype(float)
        # e-values: a fixed bet on "below .8"
        log_e = np.log1p(0.3 * (0.8 - x) / 0.2).sum(axis=0)
        listed = affected({str(i): float(value) for i, value in enumerate(log_e)}, 0.1)
        wrong = sum(int(name) >= 5 for name in listed)
        shares.append(wrong / max(1, len(listed)))
        found.append(len(listed) - wrong)
    assert np.mean(shares) <= 0.1
    assert np.mean(found) > 4.5


def test_a_detectors_evidence_is_normalised_by_what_it_has_collected():
    budget = 1.0 / (30 * 86_400)
    detector = MixtureESR(m0=0.8, budget_per_s=budget)
    detector.update(Bucket(start=0.0, seconds=3600.0, scores=(0.8,), weights=(1.0,)))
    # a score at m0 moves nothing: M is the start weight of one hour, and 1 when the period is that hour
    assert per_period(detector.evidence_log10, budget, 3600.0) == pytest.approx(0.0, abs=1e-9)
    assert affected({"a": per_period(detector.evidence_log10, budget, 3600.0)}, 0.1) == ()
    with pytest.raises(ValueError, match="period"):
        per_period(0.0, budget, 0.0)


def test_the_shares_never_add_up_to_more_than_the_budget():
    assert sum(map(share, range(5000))) < 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: share(-1),
        lambda: affected({"a": float("nan")}, 0.1),
        lambda: affected({"a": 1.0}, 0.0),
    ],
)
def test_what_cannot_be_is_refused(call):
    with pytest.raises(ValueError, match=r"budget|name|counted|evidence|alpha"):
        call()


TRACES = [f"{trace:032x}" for trace in np.random.default_rng(3).integers(0, 2**63, 400).astype(object) ** 2 % 2**128]


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_nested_decision_is_that_of_opentelemetrys_consistent_sampler(rate):
    sampler = composite_sampler(composable_traceid_ratio_based(rate))
    for trace in TRACES:
        decision = sampler.should_sample(None, int(trace, 16), "chat").decision
        assert (decision is Decision.RECORD_AND_SAMPLE) == keep_nested_with_otel(trace, rate)


def test_explicit_randomness_goes_before_the_trace_id_as_in_opentelemetry():
    sampler = composite_sampler(composable_traceid_ratio_based(0.5))
    decisions = set()
    for trace, random in zip(TRACES, reversed(TRACES), strict=True):
        value = f"th:0;rv:{random[-14:]}"
        parent = SpanContext(
            int(trace, 16), 1, is_remote=True, trace_flags=TraceFlags(3), trace_state=TraceState([("ot", value)])
        )
        context = set_span_in_context(NonRecordingSpan(parent))
        state = TraceState([("ot", value)])
        kept = keep_nested_with_otel(trace, 0.5, f"other=1,ot={value}")
        assert otel_position(trace, f"ot={value}") == int(random[-14:], 16)
        decision = sampler.should_sample(context, int(trace, 16), "chat", trace_state=state).decision
        assert kept == (decision is Decision.RECORD_AND_SAMPLE)
        decisions.add(kept)
    assert decisions == {True, False}


@pytest.mark.parametrize(
    "state",
    [
        "",
        "ot=rv:123",
        "ot=rv:GGGGGGGGGGGGGG",
        "ot=th:8",
        "not=rv:11111111111111",
        "ot",
        ",,",
        "ot=th:8,ot=rv:11111111111111",
    ],
)
def test_a_tracestate_without_a_usable_rv_leaves_the_trace_id(state):
    assert otel_position("0" * 18 + "2" * 14, state) == int("2" * 14, 16)


@pytest.mark.parametrize("trace", ["", "12", "g" * 32, "0" * 33])
def test_what_is_no_trace_id_is_refused(trace):
    with pytest.raises(ValueError, match="trace id"):
        otel_position(trace)


def test_the_share_kept_is_the_rate():
    assert sum(keep_nested_with_otel(trace, 0.3) for trace in TRACES) == pytest.approx(120, abs=40)


RULES = [
    Bias(factor=2.0, signal="no_contexts"),
    Bias(factor=0.5, app="batch-*", tags={"tier": "free"}),
    Bias(factor=2.0, model="new-*"),
]


@pytest.mark.parametrize(
    ("facts", "rate"),
    [
        (Facts(), 0.2),
        (Facts(signals=frozenset({"no_contexts", "slow"})), 0.4),
        (Facts(app="batch-1", tags={"tier": "free"}), 0.1),
        (Facts(app="batch-1"), 0.2),
        (Facts(app="batch-1", tags={"tier": "free"}, signals=frozenset({"no_contexts"})), 0.4),
        (Facts(model="new-2"), 0.4),
        (Facts(error=True), 1.0),
    ],
)
def test_the_first_rule_that_applies_decides(facts, rate):
    assert rate_for(facts, 0.2, RULES).rate == pytest.approx(rate)


def test_no_rate_of_a_stream_is_more_than_four_times_another():
    rates = {
        rate_for(Facts(model=m, signals=frozenset(s)), 0.9, RULES).rate for m in "ab" for s in ([], ["no_contexts"])
    }
    assert max(rates) == 1.0
    assert max(rates) <= 4.0 * smallest_rate(0.9, RULES)
    for factors in ([4.1], [0.2], [3.0, 0.5], [-1.0], [float("inf")], [float("nan")]):
        with pytest.raises(ValueError, match=r"4 to 1|positive"):
            rate_for(Facts(), 0.1, [Bias(factor=factor) for factor in factors])
    for base in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="base"):
            rate_for(Facts(), base)


def test_errors_are_a_stratum_of_their_own():
    bad = rate_for(Facts(app="a", model="m", error=True), 0.1)
    good = rate_for(Facts(app="a", model="m"), 0.1)
    assert bad.stratum == ("error", "app=a", "model=m") != good.stratum


def test_only_the_tags_asked_for_make_strata():
    facts = Facts(app="a", model="m", tags={"user": "1", "tenant": "t"})
    assert stratum_of(facts) == ("app=a", "model=m")
    assert stratum_of(facts, ["tenant", "tenant", "unknown"]) == ("app=a", "model=m", "tag:tenant=t")
