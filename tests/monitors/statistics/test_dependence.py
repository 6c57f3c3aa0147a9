"""The design effect of scores that nothing names, from their order in time."""

from __future__ import annotations

import numpy as np
import pytest

from monitors.statistics.dependence import (
    ASSUMED,
    CAUTION,
    GROWTH,
    SerialDependence,
    block_sums,
    closed_design_effect,
    design_effects,
)


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
    assert SerialDependence().design_effect == pytest.approx(1 + CAUTION * (ASSUMED * GROWTH**3 - 1))


@pytest.mark.parametrize(("length", "correlation"), [(5, 0.3), (5, 0.8), (20, 0.2), (40, 0.5)])
def test_it_is_near_that_of_the_sessions(length: int, correlation: float) -> None:
    known = 1.0 + CAUTION * (length - 1) * correlation
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


def test_constant_scores_are_not_alike_for_good() -> None:
    assert 1.0 < effect([1.0] * 5_000) < 1.3


def test_a_restart_changes_nothing() -> None:
    scores = sessions(np.random.default_rng(7), 4_000, 5, 0.5)
    whole, first, second = SerialDependence(), SerialDependence(), SerialDependence()
    whole.add(scores)
    first.add(scores[:2_000])
    second.state = first.state
    second.add(scores[2_000:])
    assert second.design_effect == whole.design_effect


def final_effect(scores: list[float], weights: list[float] | None = None) -> float:
    x = np.array(scores)
    w = np.ones(x.size) if weights is None else np.array(weights)
    return float(design_effects(block_sums(x, w, 10))[-1])


@pytest.mark.parametrize(("length", "correlation"), [(5, 0.3), (5, 0.8), (20, 0.2), (40, 0.5)])
def test_of_scores_that_are_all_there_it_is_near_that_of_the_sessions(length: int, correlation: float) -> None:
    rng = np.random.default_rng(21)
    found = [final_effect(sessions(rng, 8_000, length, correlation)) for _ in range(12)]
    assert 0.8 < np.median(found) / (1.0 + (length - 1.0) * correlation) < 1.5


def test_of_independent_scores_it_costs_little() -> None:
    rng = np.random.default_rng(22)
    alone = [final_effect(rng.random(3_000).tolist()) for _ in range(12)]
    assert np.mean(alone) < 1.12


def test_what_moves_two_versions_alike_is_no_dependence_of_their_difference() -> None:
    rng = np.random.default_rng(23)
    wave = 0.1 * np.sin(np.arange(20_000) / 10_000 * 2.0 * np.pi)
    a, b = (block_sums(0.5 + wave + 0.1 * rng.normal(size=20_000), np.ones(20_000), 10) for _ in range(2))
    assert design_effects(a, b)[-1] < 1.3
    assert design_effects(a)[-1] > 5.0


def test_the_effect_of_a_prefix_is_that_of_its_scores() -> None:
    rng = np.random.default_rng(24)
    x, w = np.array(sessions(rng, 1_000, 10, 0.5)), rng.choice([0.5, 1.0], size=1_000)
    ends = [0, 1, 2, 33, 64, 100]
    alone = [design_effects(block_sums(x[: 10 * end], w[: 10 * end], 10))[-1] for end in ends]
    assert design_effects(block_sums(x, w, 10))[ends].tolist() == pytest.approx(alone)
    assert alone[:2] == [1.0, 1.0]


def test_equal_scores_have_no_effect_of_their_order() -> None:
    assert final_effect([1.0] * 2_000) == 1.0


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
