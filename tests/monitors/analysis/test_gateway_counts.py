"""Outcomes of the gateways: what was counted between readings is kept over restarts, and nothing is counted twice."""

from __future__ import annotations

import contextlib

from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.analysis.gateway_counts import BUCKET_S, DAY_S, HOUR_S, MAX_APPS, GatewayCounts, Reading, spread
from tests.support.clock import Clock

T0 = 1_760_000_400.0 // DAY_S * DAY_S + 10 * HOUR_S


def reading(url="a", app="shop", **outcomes):
    return Reading(url=url, exchanges={(app, name): float(n) for name, n in outcomes.items()})


@contextlib.asynccontextmanager
async def store_and_clock(tmp_path):
    store, clock = SQLiteStore(tmp_path / "store.db"), Clock(T0)
    try:
        yield store, clock
    finally:
        await store.aclose()


async def whole(counts, clock, **more):
    return await counts.outcomes(clock.now - 40 * DAY_S, clock.now + DAY_S, **more)


async def test_counts_go_on_after_both_planes_restarted(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        first = GatewayCounts(store, 30.0, clock)
        await first.take([reading(captured=5)])  # where counting begins
        clock.now += 15
        await first.take([reading(captured=8, rejected=1)])
        second = GatewayCounts(store, 30.0, clock)  # the monitors restart; the gateway counts on
        clock.now += 15
        await second.take([reading(captured=10, rejected=1)])
        clock.now += 15
        await second.take([reading(captured=2)])  # the gateway restarted
        assert (await whole(second, clock)) == {"captured": 3 + 2 + 2, "rejected": 1}


async def test_a_gateway_that_started_after_the_first_look_is_counted_from_its_start(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([], ["a"])
        clock.now += 15
        await counts.take([reading(captured=5)], ["b"])
        assert (await whole(counts, clock)) == {"captured": 5}


async def test_each_gateway_is_counted_by_itself_and_apps_apart(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(), reading("b")])
        clock.now += 15
        await counts.take([reading(captured=3), reading("b", app="desk", captured=4)])
        clock.now += 15
        await counts.take([reading("b", app="desk", captured=5)])  # the first one is away
        assert (await whole(counts, clock), await whole(counts, clock, app="desk")) == (
            {"captured": 8},
            {"captured": 5},
        )


async def test_what_came_while_nobody_read_is_spread_over_that_time(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(captured=0)])
        clock.now += 4 * BUCKET_S
        await counts.take([reading(captured=100)])
        hour = [await counts.outcomes(T0 + k * BUCKET_S, T0 + (k + 1) * BUCKET_S) for k in range(5)]
        assert [one.get("captured", 0) for one in hour] == [25, 25, 25, 25, 0]


def test_spread_parts_add_up():
    for total in (1, 7, 1000):
        for since, until in ((0.0, 10.0), (850.0, 5000.0), (10.0, 10.0)):
            assert sum(spread(total, since, until).values()) == total


async def test_old_days_are_hours_and_then_gone(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        counts = GatewayCounts(store, 5.0, clock)
        await counts.take([reading(captured=0)])
        for k in range(1, 9):
            clock.now += BUCKET_S
            await counts.take([reading(captured=10 * k)])
        early = await whole(counts, clock)
        clock.now += 4 * DAY_S
        await counts.take([reading(captured=80)])
        later = await whole(counts, clock)
        states = await store.load()
        clock.now += 4 * DAY_S
        await counts.take([reading(captured=80)])
        gone, last = await whole(counts, clock), await store.load()
    assert early == later == {"captured": 80}
    day = next(state for name, state in states.items() if name == f"gateway-counts/{int(T0 // DAY_S)}")
    assert day.count(b'"captured"') <= 3
    assert gone == {}
    assert last[f"gateway-counts/{int(T0 // DAY_S)}"] == b""


async def test_apps_are_bounded(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([Reading(url="a", exchanges={})])
        clock.now += 15
        await counts.take([Reading(url="a", exchanges={(f"app{k}", "captured"): 1.0 for k in range(2 * MAX_APPS)})])
        every, other = await whole(counts, clock), await whole(counts, clock, app="_other")
    assert every == {"captured": 2 * MAX_APPS}
    assert other == {"captured": MAX_APPS}


async def test_a_damaged_state_begins_again(tmp_path):
    async with store_and_clock(tmp_path) as (store, clock):
        await store.save({"gateway-counts/last": b"{", "gateway-counts/x": b"1"})
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(captured=1)])
        clock.now += 15
        await counts.take([reading(captured=3)])
        assert (await whole(counts, clock)) == {"captured": 2}
