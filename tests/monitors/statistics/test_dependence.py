"""The design effect of scores that nothing names, from their order in time."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.statistics.dependence import ASSUMED, GROWTH, SerialDependence, closed_design_effect


def sessions(rng: np.random.Generator, n: int, length: int, correlation: float) -> list[float]:
    """Scores in [0, 1] of sessions that follow each other, with this correlation within."""
    own = np.repeat(rng.standard_normal(n // length), length)
    noise = rng.standard_normal(n // length * length)
    shared, single = np.sqrt(correlation), np.sqrt(1.0 - correlation)
    return (0.5 + 0.1 * np.clip(shared * own + single * noise, -5.0, 5.0)).tolist()


def effect(scores: list[float], weights: list[float] | None = None) -> float:
    dependence = SerialDependence()
    dependence.add(scores, weights)
    return dependence.design_effect


def test_before_the_first_pair_of_blocks_it_is_assumed() -> None:
    assert SerialDependence().design_effect == pytest.approx(ASSUMED * GROWTH**3)


@pytest.mark.parametrize(("length", "correlation"), [(5, 0.3), (5, 0.8), (20, 0.2), (40, 0.5)])
def test_it_is_near_that_of_the_sessions(length: int, correlation: float) -> None:
    known = 1.0 + (length - 1) * correlation
    estimates = [effect(sessions(np.random.default_rng(seed), 30_000, length, correlation)) for seed in range(6)]
    assert 0.7 * known < np.median(estimates) < 1.5 * known


def test_independent_scores_cost_little() -> None:
    estimates = [effect(np.random.default_rng(seed).random(30_000).tolist()) for seed in range(6)]
    assert max(estimates) < 1.7


def test_weights_do_not_matter_where_scores_are_independent() -> None:
    rng = np.random.default_rng(5)
    assert effect(rng.random(30_000).tolist(), rng.choice([0.25, 1.0], 30_000).tolist()) < 1.7


def test_a_drop_is_one_surprise() -> None:
    rng = np.random.default_rng(6)
    before, after = rng.random(10_000), 0.6 * rng.random(1_000)
    assert effect([*before, *after]) < effect(list(before)) + 1.5


def test_constant_scores_say_nothing() -> None:
    assert effect([1.0] * 5_000) >= ASSUMED


def test_a_restart_changes_nothing() -> None:
    scores = sessions(np.random.default_rng(7), 4_000, 5, 0.5)
    whole, first, second = SerialDependence(), SerialDependence(), SerialDependence()
    whole.add(scores)
    first.add(scores[:2_000])
    second.state = first.state
    second.add(scores[2_000:])
    assert second.design_effect == whole.design_effect


@pytest.mark.parametrize(("length", "correlation"), [(5, 0.4), (5, 0.8), (12, 0.5)])
def test_a_closed_sample_has_the_design_effect_of_the_sessions_in_its_order(length: int, correlation: float) -> None:
    known = 1.0 + (length - 1) * correlation
    rngs = map(np.random.default_rng, range(20))
    estimates = [closed_design_effect(sessions(rng, 1_200, length, correlation)) for rng in rngs]
    assert np.median(estimates) == pytest.approx(known, rel=0.2)


def test_a_closed_sample_of_independent_scores_keeps_its_interval() -> None:
    for n in (20, 100, 1_000):
        estimates = [closed_design_effect(np.random.default_rng(seed).random(n).tolist()) for seed in range(200)]
        assert np.mean([estimate > 1.0 for estimate in estimates]) < 0.1
        assert np.mean(estimates) < 1.05
    assert [closed_design_effect(scores) for scores in ([0.5], [0.0, 1.0], [1.0] * 50)] == [1.0, 1.0, 1.0]
