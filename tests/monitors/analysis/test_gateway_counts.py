"""Outcomes of the gateways: what was counted between readings is kept over restarts, and nothing is counted twice."""

from __future__ import annotations

import asyncio

from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.analysis.gateway_counts import BUCKET_S, DAY_S, HOUR_S, MAX_APPS, GatewayCounts, Reading, spread

T0 = 1_760_000_400.0 // DAY_S * DAY_S + 10 * HOUR_S


class Clock:
    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


def reading(url="a", app="shop", **outcomes):
    return Reading(url=url, exchanges={(app, name): float(n) for name, n in outcomes.items()})


def run(tmp_path, scenario):
    async def main():
        store, clock = SQLiteStore(tmp_path / "store.db"), Clock()
        try:
            return await scenario(store, clock)
        finally:
            await store.aclose()

    return asyncio.run(main())


async def whole(counts, clock, **more):
    return await counts.outcomes(clock.now - 40 * DAY_S, clock.now + DAY_S, **more)


def test_counts_go_on_after_both_planes_restarted(tmp_path):
    async def scenario(store, clock):
        first = GatewayCounts(store, 30.0, clock)
        await first.take([reading(captured=5)])  # where counting begins
        clock.now += 15
        await first.take([reading(captured=8, rejected=1)])
        second = GatewayCounts(store, 30.0, clock)  # the monitors restart; the gateway counts on
        clock.now += 15
        await second.take([reading(captured=10, rejected=1)])
        clock.now += 15
        await second.take([reading(captured=2)])  # the gateway restarted
        return await whole(second, clock)

    assert run(tmp_path, scenario) == {"captured": 3 + 2 + 2, "rejected": 1}


def test_a_gateway_that_started_after_the_first_look_is_counted_from_its_start(tmp_path):
    async def scenario(store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([], ["a"])
        clock.now += 15
        await counts.take([reading(captured=5)], ["b"])
        return await whole(counts, clock)

    assert run(tmp_path, scenario) == {"captured": 5}


def test_each_gateway_is_counted_by_itself_and_apps_apart(tmp_path):
    async def scenario(store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(), reading("b")])
        clock.now += 15
        await counts.take([reading(captured=3), reading("b", app="desk", captured=4)])
        clock.now += 15
        await counts.take([reading("b", app="desk", captured=5)])  # the first one is away
        return await whole(counts, clock), await whole(counts, clock, app="desk")

    assert run(tmp_path, scenario) == ({"captured": 8}, {"captured": 5})


def test_what_came_while_nobody_read_is_spread_over_that_time(tmp_path):
    async def scenario(store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(captured=0)])
        clock.now += 4 * BUCKET_S
        await counts.take([reading(captured=100)])
        hour = [await counts.outcomes(T0 + k * BUCKET_S, T0 + (k + 1) * BUCKET_S) for k in range(5)]
        return [one.get("captured", 0) for one in hour]

    assert run(tmp_path, scenario) == [25, 25, 25, 25, 0]


def test_spread_parts_add_up():
    for total in (1, 7, 1000):
        for since, until in ((0.0, 10.0), (850.0, 5000.0), (10.0, 10.0)):
            assert sum(spread(total, since, until).values()) == total


def test_old_days_are_hours_and_then_gone(tmp_path):
    async def scenario(store, clock):
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
        return early, later, states, await whole(counts, clock), await store.load()

    early, later, states, gone, last = run(tmp_path, scenario)
    assert early == later == {"captured": 80}
    day = next(state for name, state in states.items() if name == f"gateway-counts/{int(T0 // DAY_S)}")
    assert day.count(b'"captured"') <= 3
    assert gone == {}
    assert last[f"gateway-counts/{int(T0 // DAY_S)}"] == b""


def test_apps_are_bounded(tmp_path):
    async def scenario(store, clock):
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([Reading(url="a", exchanges={})])
        clock.now += 15
        await counts.take([Reading(url="a", exchanges={(f"app{k}", "captured"): 1.0 for k in range(2 * MAX_APPS)})])
        return await whole(counts, clock), await whole(counts, clock, app="_other")

    every, other = run(tmp_path, scenario)
    assert every == {"captured": 2 * MAX_APPS}
    assert other == {"captured": MAX_APPS}


def test_a_damaged_state_begins_again(tmp_path):
    async def scenario(store, clock):
        await store.save({"gateway-counts/last": b"{", "gateway-counts/x": b"1"})
        counts = GatewayCounts(store, 30.0, clock)
        await counts.take([reading(captured=1)])
        clock.now += 15
        await counts.take([reading(captured=3)])
        return await whole(counts, clock)

    assert run(tmp_path, scenario) == {"captured": 2}
