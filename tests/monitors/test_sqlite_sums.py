"""Sums kept in the file: as exact as those of the rows, whatever is written, changed or deleted later."""

import asyncio
import random
import sqlite3
import time

import pytest

from monitors.records import Evaluation, Sample, Score, Skipped
from monitors.stores import Query
from monitors.stores.sqlite import SQLiteStore

HOUR, DAY = 3600.0, 86_400.0
T0 = 1_700_000_000.0 // DAY * DAY
EVER = Query(since=T0 - DAY, until=T0 + 10 * DAY)


def sample(number, at, **fields):
    return Sample(id=f"x{number}", started_at=at, **{"app": "shop", "model": "m-1", "tags": {"tenant": "a"}, **fields})


def scored(one, value, metric="faithfulness", version="1", rate=1.0):
    return Evaluation(sample_id=one.id, metric=metric, version=version, outcome=Score(value), rate=rate)


async def fill(store, count=200, days=3):
    draw = random.Random(1)
    for number in range(count):
        at = T0 + days * DAY * number / count + draw.random()
        one = sample(number, at, app=draw.choice(["shop", "desk"]), model=draw.choice(["m-1", "m-2"]))
        await store.add(one, [scored(one, draw.random(), rate=draw.choice([0.5, 1.0]))])


def running(path, main):
    async def run():
        store = SQLiteStore(path)
        try:
            return await main(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def kept(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT count(*) FROM sums WHERE sums LIKE '[%'").fetchone()[0]


def same(found, expected):
    def told(some):
        return {(one.app, one.metric, one.slice): one for one in some}

    assert told(found).keys() == told(expected).keys()
    for key, one in told(expected).items():
        for name in ("n", "failed", "w", "wx", "w2", "w2x", "w2x2"):
            assert getattr(told(found)[key], name) == pytest.approx(getattr(one, name)), (key, name)


@pytest.mark.parametrize("by", ["", "model", "tag:tenant"])
@pytest.mark.parametrize(
    "fields", [{}, {"app": "shop"}, {"metric": "faithfulness"}, {"until": T0 + 1.5 * DAY + 100}, {"since": T0 + 4000.0}]
)
def test_kept_sums_are_those_of_the_rows(tmp_path, by, fields):
    query = Query(**{"since": EVER.since, "until": EVER.until, **fields})

    async def main(store):
        await fill(store)
        await store.summary(EVER, by)
        return await store.summary(query, by), await store._summary(query, by)

    same(*running(tmp_path / "store.db", main))
    assert kept(tmp_path / "store.db") > 0


@pytest.mark.parametrize(
    "fields", [{"model": "m-2"}, {"tag": ("tenant", "a")}, {"tag": ("tenant", "b")}, {"least": 0.5}]
)
def test_what_is_narrowed_to_a_slice_comes_out_of_its_sums(tmp_path, fields):
    query = Query(since=EVER.since, until=EVER.until, **fields)

    async def main(store):
        await fill(store)
        return await store.summary(query), await store._summary(query, "")

    same(*running(tmp_path / "store.db", main))


async def _late(store):
    one = sample("late", T0 + DAY + 10.0)
    await store.add(one, [scored(one, 0.25)])


async def _another_version(store):
    one = sample(0, T0)
    await store.add((await store.sample("x0"))[0], [scored(one, 0.1, version="2")])


async def _filled(store):
    one = sample("gap", T0 + DAY + 20.0, context_key="k")
    await store.add(one, [Evaluation(sample_id=one.id, metric="faithfulness", version="1", outcome=Skipped("late"))])
    await store.summary(EVER)
    await store.add(one, [scored(one, 0.75)])


async def _pruned(store):
    await store.prune(T0 + 1.2 * DAY)


@pytest.mark.parametrize("change", [_late, _another_version, _filled, _pruned])
def test_whatever_changes_a_row_changes_the_sums(tmp_path, change):
    async def main(store):
        await fill(store)
        before = await store.summary(EVER), await store.scored(EVER)
        await change(store)
        after = await store.summary(EVER), await store.scored(EVER)
        assert after[0] != before[0]
        return after, (await store._summary(EVER, ""), await store._scored(EVER))

    (summaries, some), (expected, other) = running(tmp_path / "store.db", main)
    same(summaries, expected)
    told = [sorted((one.app, one.n, round(one.x, 9), round(one.x2, 9)) for one in found) for found in (some, other)]
    assert told[0] == told[1]


def test_a_row_that_comes_while_its_hour_is_added_up_keeps_the_sum_out_of_the_file(tmp_path):
    async def main(store):
        await fill(store)
        read, late = store._summary, []

        async def slowly(query, by):
            found = await read(query, by)
            if not late and query.since <= T0 + DAY + 10.0 < query.until:
                late.append(True)
                await _late(store)
            return found

        store._summary = slowly
        first = await store.summary(EVER)
        store._summary = read
        return first, await store.summary(EVER), await read(EVER, "")

    first, second, expected = running(tmp_path / "store.db", main)
    assert sum(one.n for one in first) == sum(one.n for one in expected) - 1
    same(second, expected)


def test_an_hour_that_is_not_over_is_never_kept(tmp_path):
    async def main(store):
        for number, ago in enumerate((100.0, 5000.0, 9000.0)):
            one = sample(number, time.time() - ago)
            await store.add(one, [scored(one, 0.5)])
        await store.summary(Query(since=time.time() - 3 * DAY, until=time.time() + DAY))

    running(tmp_path / "store.db", main)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert all(
            start + seconds <= time.time() - 900
            for start, seconds in connection.execute("SELECT start, seconds FROM sums")
        )
    assert kept(tmp_path / "store.db") > 0


def test_of_several_scores_of_an_answer_the_last_counts(tmp_path):
    async def main(store):
        one = sample(1, T0)
        await store.add(one, [scored(one, 0.2), scored(one, 0.9, version="2", rate=0.5)])
        return await store.scored(EVER)

    (found,) = running(tmp_path / "store.db", main)
    assert (found.n, found.x, found.least_rate) == (1, pytest.approx(0.9), 0.5)


def test_a_clock_that_was_wrong_once_does_not_make_sums_of_fifty_empty_years(tmp_path):
    async def main(store):
        for number, at in enumerate((5.0, T0)):
            one = sample(number, at)
            await store.add(one, [scored(one, 0.5)])
        return await store.summary(Query(since=0.0, until=T0 + DAY))

    (found,) = running(tmp_path / "store.db", main)
    assert found.n == 2
    assert kept(tmp_path / "store.db") == 0
