"""What is added up beforehand: every whole hour that is over, in parts of a day at most."""

import asyncio
import statistics
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from gaugeway.storage.stores import rollups as sums
from gaugeway.storage.stores.rollup_windows import DAY_S, HOUR_S, add_spreads, cut
from gaugeway.storage.stores.rollups import LEAST_S, MOST_SPANS, SETTLED_S, _beforehand, _Leisurely
from tests.support.rows import Rows, watched

T0 = 1_700_000_000.0


@given(st.floats(0.0, 60.0 * DAY_S), st.floats(0.0, 2.0 * DAY_S))
def test_every_whole_hour_that_is_over_is_there_and_nothing_else(back, ahead):
    since, now = T0 - back, T0 + ahead
    parts = list(_beforehand(since, now))
    spans, _ = cut(since, now, now - SETTLED_S)
    hours = {since for span in spans for since, _ in span.hours}
    found = [range(int(one.since), int(one.until), HOUR_S) for one in parts]
    assert {float(hour) for part in found for hour in part} == hours
    assert all(one.since // DAY_S == (one.until - 1.0) // DAY_S for one in parts)


@given(st.floats(40.0 * DAY_S, 400.0 * DAY_S), st.floats(0.0, DAY_S))
def test_the_hours_after_the_beginning_of_each_window_are_asked_for_without_their_day(back, ahead):
    now = T0 + ahead
    parts = list(_beforehand(now - back, now))
    for days in (1, 7, 30):
        spans, _ = cut(now - days * DAY_S, now, now - SETTLED_S)
        hours = [span for span in spans if span.seconds == HOUR_S and span.start < now - (days - 1) * DAY_S]
        made = {span for one in parts for span in cut(one.since, one.until, now - SETTLED_S)[0]}
        assert set(hours) <= made


def test_a_clock_that_was_wrong_once_does_not_ask_for_fifty_years():
    assert len(list(_beforehand(0.0, T0))) <= MOST_SPANS + 10


@pytest.mark.parametrize(
    ("seconds_a_day", "usual_s", "longest_s"), [(0.0, HOUR_S, HOUR_S), (10.0, 450.0, 600.0), (1e4, LEAST_S, 300.0)]
)
def test_a_look_is_as_long_as_can_be_read_at_once(monkeypatch, seconds_a_day, usual_s, longest_s):
    now, rested, looks = 0.0, 0.0, []

    async def read(query):
        nonlocal now
        looks.append((query.since, query.until))
        now += seconds_a_day * (query.until - query.since) / DAY_S
        return []

    async def sleep(seconds):
        nonlocal rested
        rested += seconds

    monkeypatch.setattr(sums, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(sums, "asyncio", SimpleNamespace(sleep=sleep))
    reading = _Leisurely(SimpleNamespace(scored=read))
    for hour in range(48):
        asyncio.run(reading.scored(Query(since=T0 + hour * HOUR_S, until=T0 + (hour + 1) * HOUR_S)))
    lengths = [until - since for since, until in looks]
    assert [until for _, until in looks[:-1]] == [since for since, _ in looks[1:]]
    assert (looks[0][0], looks[-1][1]) == (T0, T0 + 2 * DAY_S)
    assert (statistics.median(lengths), max(lengths)) == (usual_s, longest_s)
    assert rested == pytest.approx(now)


def test_what_was_read_in_steps_comes_to_what_one_look_says(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "LOOK_S", 0.0)  # none is short enough

    async def run():
        store = SQLiteStore(tmp_path / "store.db")
        begin = (time.time() // HOUR_S - 5) * HOUR_S
        hour = Query(since=begin, until=begin + HOUR_S)
        for number in range(60):
            one = Sample(id=f"x{number}", started_at=begin + 600.0 + 37.0 * number, app="shop", model=f"m-{number % 2}")
            score = Evaluation(sample_id=one.id, metric="relevancy", version="1", outcome=Score(number / 60))
            await store.add(one, [score])
        rows = Rows(store, hour.since, hour.until)
        expected = await rows.summary(hour), await rows.scored(hour), await rows.spread(hour, "model")
        rows, looks = watched(rows)
        kept = sums.Rollups(store, rows, time.time)
        await kept.ready(0.0, rows)
        read = len(looks)
        found = await kept.summary(hour), await kept.scored(hour), (await kept.spread(hour, "model")).parts
        await store.aclose()
        return expected, found, looks[:read], looks[read:]

    expected, found, looks, later = asyncio.run(run())
    assert looks
    assert {look.until - look.since for look in looks} == {300.0, 150.0, 75.0, 60.0, 15.0}
    assert later == []
    for one, other in zip(expected[0], found[0], strict=True):
        assert (one.app, one.n, one.failed) == (other.app, other.n, other.failed)
        assert other.wx == pytest.approx(one.wx)
    for one, other in zip(expected[1], found[1], strict=True):
        assert (one.n, one.least_rate, one.most_rate) == (other.n, other.least_rate, other.most_rate)
        assert other.x2 == pytest.approx(one.x2)
    assert [(one.since, one.until, one.slice, one.n, one.bins) for one in found[2]] == [
        (one.since, one.until, one.slice, one.n, one.bins) for one in add_spreads(expected[2])
    ]


async def test_what_adds_up_beforehand_keeps_little_of_the_file_in_memory(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    sizes = []
    for database in (store._counter, store._reader):  # noqa: SLF001 - a setting of the connections
        sizes += await database.fetch("PRAGMA cache_size")
    await store.aclose()
    ((counter,), (reader,)) = sizes
    assert (counter, reader) == (-256, -2000)  # KiB


async def test_who_asks_does_not_wait_for_what_is_added_up_beforehand(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    begin = (time.time() // HOUR_S - 5) * HOUR_S
    hour = Query(since=begin, until=begin + HOUR_S)
    one = Sample(id="x", started_at=begin + 1.0, app="shop", model="m")
    await store.add(one, [Evaluation(sample_id=one.id, metric="relevancy", version="1", outcome=Score(0.5))])
    rows, stuck = Rows(store, hour.since, hour.until), asyncio.Event()

    async def summary(*_, **__):
        stuck.set()
        await asyncio.Event().wait()

    kept = sums.Rollups(store, rows, time.time)
    beforehand = asyncio.ensure_future(kept.ready(0.0, SimpleNamespace(summary=summary)))
    await stuck.wait()
    found = await kept.summary(hour)
    beforehand.cancel()
    await asyncio.gather(beforehand, return_exceptions=True)
    await store.aclose()
    assert [(part.app, part.n) for part in found] == [("shop", 1)]


async def test_who_asks_for_the_same_time_at_once_adds_it_up_once(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    begin = (time.time() // HOUR_S - 30) * HOUR_S
    for number in range(20):
        one = Sample(id=f"x{number}", started_at=begin + 1.0 + number * HOUR_S, app="shop", model="m")
        await store.add(one, [Evaluation(sample_id=one.id, metric="relevancy", version="1", outcome=Score(0.5))])
    asked = Query(since=begin, until=begin + 20 * HOUR_S)
    rows, looks = watched(Rows(store, asked.since, asked.until))
    kept = sums.Rollups(store, rows, time.time)
    first, second = await asyncio.gather(kept.outcomes(asked), kept.outcomes(asked))
    await store.aclose()
    assert sorted(map(str, first)) == sorted(map(str, second))
    assert sum(count.n for count in first if not count.metric) == 20
    covered = [hour for look in looks for hour in range(int(look.since), int(look.until), HOUR_S)]
    assert len(covered) == len(set(covered))
