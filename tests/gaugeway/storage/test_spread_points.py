"""Points read from the whole time of a query, on the real embedded store."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.spread_points import PARTS, spread_points
from gaugeway.storage.stores import Query

T0, DAY_S = 1_760_000_040.0, 86_400.0
METRICS = ("abstained", "faithfulness", "wordy")


def read(path, times, most, *, metric="faithfulness", metrics=("faithfulness",), since=T0, until=T0 + 1200.0):
    """What is read of a store with an exchange at each of `times`, in seconds after T0."""

    async def main():
        store = SQLiteStore(path / "store.db")
        for number, time in enumerate(times):
            sample = Sample(id=f"x{number:04}", started_at=T0 + time, app="shop")
            made = [Evaluation(sample_id=sample.id, metric=one, version="1", outcome=Score(0.5)) for one in metrics]
            await store.add(sample, made)
        try:
            return await spread_points(store, Query(since=since, until=until, app="shop", metric=metric), most)
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("most", [7, 8, 100])
def test_few_points_are_read_whole_and_newest_first(tmp_path, most):
    points, complete = read(tmp_path, [3.0, 900.0, 5.0, 1199.0, 4.0, 20.0, 30.0], most)
    assert complete
    assert [point.started_at - T0 for point in points] == [1199.0, 900.0, 30.0, 20.0, 5.0, 4.0, 3.0]


def test_without_points_nothing_is_read(tmp_path):
    assert read(tmp_path, [], 10) == ([], True)
    assert read(tmp_path, [-1.0, 1200.0], 10) == ([], True)


def test_of_many_points_the_newest_of_each_part_of_the_time_are_read(tmp_path):
    points, complete = read(tmp_path, [10.0 * number for number in range(120)], 24)
    assert not complete
    assert [point.started_at - T0 for point in points] == [
        100.0 * part + place for part in reversed(range(12)) for place in (90.0, 80.0)
    ]


def test_what_a_part_does_not_use_goes_to_the_others(tmp_path):
    points, complete = read(tmp_path, [*range(100), 650.0, 660.0, *range(1100, 1200)], 50)
    assert (len(points), complete) == (50, False)
    assert Counter(int((point.started_at - T0) // 100) for point in points) == {0: 24, 6: 2, 11: 24}


def test_an_app_that_is_young_is_read_from_its_first_point_on(tmp_path):
    times = [DAY_S - 1200.0 + number for number in range(1200)]
    points, complete = read(tmp_path, times, 240, until=T0 + DAY_S)
    assert not complete
    assert len(points) == 240
    assert min(point.started_at for point in points) < T0 + times[150]
    shares = Counter(int((point.started_at - T0 - times[0]) // 200) for point in points)
    assert min(shares.values()) >= 20
    assert len(shares) == 6


@pytest.mark.parametrize("age_s", [12.0, 110.0, 700.0, 5000.0])
def test_the_first_points_of_a_young_app_are_among_those_read(tmp_path, age_s):
    times = [DAY_S - age_s + age_s * number / 600 for number in range(600)]
    points, complete = read(tmp_path, times, 120, until=T0 + DAY_S)
    read_at = sorted(point.started_at - T0 for point in points)
    assert (len(points), complete) == (120, False)
    assert max(b - a for a, b in pairwise([times[0], *read_at, times[-1]])) <= age_s / 3


def test_an_exchange_is_read_with_all_its_points_or_not_at_all(tmp_path):
    points, complete = read(tmp_path, [2.0 * number for number in range(600)], 300, metric=None, metrics=METRICS)
    assert not complete
    assert set(Counter(point.sample_id for point in points).values()) == {3}
    assert 300 - 2 * PARTS <= len(points) <= 300


def test_points_of_one_moment_are_not_all_left_out(tmp_path):
    points, complete = read(tmp_path, [7.0] * 20, 10, metric=None, metrics=("faithfulness",))
    assert (len(points), complete) == (10, False)
