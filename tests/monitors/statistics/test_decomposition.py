"""Two times compared: the parts of a fall, their errors, and its date."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from monitors.statistics.decomposition import Grouped, decompose, onset


def test_the_parts_of_a_fall_add_up_and_their_errors_are_right():
    rng = np.random.default_rng(7)
    found = []
    for _ in range(300):
        groups = [rng.random(400) < 0.2, rng.random(400) < 0.5]
        values = [(rng.random(400) < np.where(members, 0.4, 0.9)).astype(float) for members in groups]
        rates = [rng.choice([0.2, 1.0], 400) for _ in groups]
        sides = [
            Grouped(values=v.tolist(), rates=r.tolist(), groups=g.astype(int).tolist())
            for v, r, g in zip(values, rates, groups, strict=True)
        ]
        found.append(decompose(*sides))
    assert all(abs(one.within.value + one.mix.value - one.total.value) < 1e-12 for one in found)
    for name, truth in (("within", 0.0), ("mix", 0.15), ("total", 0.15)):
        parts = [getattr(one, name) for one in found]
        assert np.mean([part.value for part in parts]) == pytest.approx(truth, abs=0.01)
        covered = [low <= truth <= high for low, high in (part.interval(0.05) for part in parts)]
        assert 0.91 <= np.mean(covered) <= 0.99, name


def test_groups_without_a_counterpart_are_not_compared():
    old = Grouped(values=[0.5] * 100, rates=[1.0] * 100, groups=[0] * 100)
    assert decompose(old, replace(old, groups=[1] * 100)) is None


def test_an_onset_is_dated_within_its_interval():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        values = rng.random(400) < np.where(np.arange(400) < 250, 0.9, 0.6)
        found = onset(range(400), values.astype(float).tolist(), [1.0] * 400)
        hits += found.earliest <= 250 <= found.latest
    assert hits >= 190
    assert onset(range(10), [1.0] * 5 + [0.0] * 5, [1.0] * 10) is None
    assert onset(range(40), [0.0] * 20 + [1.0] * 20, [1.0] * 40) is None
