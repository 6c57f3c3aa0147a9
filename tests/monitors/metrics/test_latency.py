"""The latency summary."""

from __future__ import annotations

import math

import pytest

from monitors.metrics.latency import Latency, Timing, summary


def test_mean_and_percentiles_of_each_part():
    found = summary([Timing(generation_s=float(i), retrieval_s=0.5) for i in range(1, 101)])
    assert found["retrieval"] == Latency(n=100, mean=0.5, p50=0.5, p95=0.5, p99=0.5)
    assert found["generation"] == Latency(
        n=100, mean=50.5, p50=50.5, p95=pytest.approx(95.05), p99=pytest.approx(99.01)
    )
    assert found["total"] == Latency(n=100, mean=51.0, p50=51.0, p95=pytest.approx(95.55), p99=pytest.approx(99.51))


def test_without_retrieval_the_total_is_the_generation():
    found = summary([Timing(generation_s=2.0)])
    assert found["retrieval"] is None
    assert found["total"] == found["generation"] == Latency(n=1, mean=2.0, p50=2.0, p95=2.0, p99=2.0)


def test_answers_without_a_retrieval_time_do_not_make_the_total_look_faster():
    found = summary([Timing(generation_s=1.0, retrieval_s=9.0), Timing(generation_s=1.0)])
    assert (found["total"].n, found["total"].mean) == (1, 10.0)


def test_nothing_has_no_latency():
    assert summary([]) == {"retrieval": None, "generation": None, "total": None}


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1])
def test_what_is_no_duration_is_refused(wrong):
    with pytest.raises(ValueError, match="duration"):
        summary([Timing(generation_s=wrong)])
