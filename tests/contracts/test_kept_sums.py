"""Sums kept beside the rows: as exact as those of the rows, whatever is written, changed or deleted later."""

import asyncio
import random
import sqlite3
import time
from collections import Counter

import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import Query, from_url
from gaugeway.storage.stores import rollups as sums
from gaugeway.storage.stores.rollup_windows import DAY_S, HOUR_S, hundredths
from tests.support.postgres import postgres
from tests.support.rows import Rows, watched

pytestmark = pytest.mark.full

HOUR, DAY = float(HOUR_S), float(DAY_S)
T0 = 1_700_000_000.0 // DAY * DAY
EVER = Query(since=T0 - DAY, until=T0 + 10 * DAY)


def sample(number, at, **fields):
    return Sample(id=f"x{number}", started_at=at, **{"app": "shop", "model": "m-1", "tags": {"tenant": "a"}, **fields})


def scored(one, value, metric="faithfulness", version="1", rate=1.0):
    return Evaluation(sample_id=one.id, metric=metric, version=version, outcome=Score(value), rate=rate)


def rows_of(store):
    return Rows(store, T0, T0 + 4 * DAY)  # nothing is written before or after


async def fill(store, count=200, days=3):
    draw = random.Random(1)
    for number in range(count):
        at = T0 + days * DAY * number / count + draw.random()
        one = sample(number, at, app=draw.choice(["shop", "desk"]), model=draw.choice(["m-1", "m-2"]))
        await store.add(one, [scored(one, draw.random(), rate=draw.choice([0.5, 1.0]))])


class Engine:
    """A store, and what is in its table of sums."""

    def __init__(self, url):
        self.url = url

    def __call__(self, main):
        async def run():
            store = from_url(self.url)
            try:
                return await main(store)
            finally:
                await store.aclose()

        return asyncio.run(run())

    def ask(self, statement):
        if self.url.startswith("postgresql:"):
            return postgres().ask(self.url, statement)
        with sqlite3.connect(self.url.removeprefix("sqlite:///")) as connection:
            return connection.execute(statement).fetchall()

    def kept(self):
        ((count,),) = self.ask("SELECT count(*) FROM sums WHERE sums LIKE '[%'")
        return count


@pytest.fixture(params=["sqlite", "postgresql"])
def running(request, tmp_path):
    return Engine(f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else postgres().database())


def counted(spreads):
    """How many scores of each kind and hundredth there are in all, and what they add up to."""
    numbers, values = Counter(), Counter()
    for one in spreads:
        bins = hundredths([one.bins]).tolist()
        assert one.n == sum(n for _, n, _ in bins)
        assert one.x == pytest.approx(sum(x for _, _, x in bins))
        for k, n, x in bins:
            assert k * n / 100 - 1e-9 <= x <= (k + 1) * n / 100 + 1e-9
            key = (one.app, one.metric, one.slice, one.version, one.judge, one.rate, k)
            numbers[key] += n
            values[key] += round(x, 9)
    return numbers, {key: pytest.approx(x) for key, x in values.items()}, pytest.approx(sum(one.x2 for one in spreads))


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
def test_kept_sums_are_those_of_the_rows(running, by, fields):
    query = Query(**{"since": EVER.since, "until": EVER.until, **fields})

    async def main(store):
        await fill(store)
        await store.summary(EVER, by)
        return await store.summary(query, by), await rows_of(store).summary(query, by)

    same(*running(main))
    assert running.kept() > 0


@pytest.mark.full
@pytest.mark.parametrize(
    "fields", [{"model": "m-2"}, {"tag": ("tenant", "a")}, {"tag": ("tenant", "b")}, {"least": 0.5}]
)
def test_what_is_narrowed_to_a_slice_comes_out_of_its_sums(running, fields):
    query = Query(since=EVER.since, until=EVER.until, **fields)

    async def main(store):
        await fill(store)
        return await store.summary(query), await rows_of(store).summary(query)

    same(*running(main))


@pytest.mark.parametrize("by", ["model", "prompt", "tag:tenant"])
@pytest.mark.parametrize(
    "fields", [{}, {"app": "shop"}, {"metric": "faithfulness"}, {"until": T0 + 1.5 * DAY + 100}, {"since": T0 + 4000.0}]
)
def test_counted_scores_are_those_of_the_rows(running, by, fields):
    query = Query(**{"since": EVER.since, "until": EVER.until, **fields})

    async def main(store):
        await fill(store)
        first = await store.spread(EVER, by)
        assert first.complete
        found = await store.spread(query, by)
        assert found.complete
        assert [one.since for one in found.parts] == sorted(one.since for one in found.parts)
        points = await store.series(query)
        assert sum(one.n for one in found.parts) == len(points)
        return counted(found.parts), counted(await rows_of(store).spread(query, by))

    found, expected = running(main)
    assert found == expected
    assert running.kept() > 0


def test_skips_and_failures_are_not_counted(running):
    async def main(store):
        for number, outcome in enumerate((Skipped("x"), Failed("timeout"), Score(1.0))):
            one = sample(number, T0 + number)
            await store.add(one, [Evaluation(sample_id=one.id, metric="m", version="1", outcome=outcome, judge="j")])
        return await store.spread(EVER, "model")

    ((one,), complete) = running(main)
    assert complete
    assert (one.n, hundredths([one.bins]).tolist(), one.judge, one.rate) == (1, [[99.0, 1.0, 1.0]], "j", 1.0)


def test_tags_beyond_those_that_are_kept_are_counted_from_the_rows(running, monkeypatch):
    monkeypatch.setattr(sums, "MOST_TAGS", 1)

    async def main(store):
        await fill(store)
        await store.spread(EVER, "tag:other")
        before = running.kept()
        whole, none = await store.spread(EVER, "tag:tenant"), await store.spread(EVER, "tag:tenant", -1.0)
        rows = counted(await rows_of(store).spread(EVER, "tag:tenant"))
        return counted(whole.parts), rows, none, running.kept() - before

    found, expected, none, more = running(main)
    assert found == expected
    assert sum(one.n for one in none.parts) < 200
    assert (none.complete, more) == (False, 0)


def test_counting_goes_on_while_others_ask_for_other_sums(running):
    async def main(store):
        await fill(store)
        rows, begun, held = rows_of(store), asyncio.Event(), asyncio.Event()
        read = rows.spread

        async def slowly(query, by):
            if query.until - query.since == HOUR:  # not what is left at both ends, which is read at once
                begun.set()
                await held.wait()
            return await read(query, by)

        rows.spread = slowly
        kept = sums.Rollups(store, rows, time.time)
        while not begun.is_set():
            assert not (await kept.spread(EVER, "model", 0.05)).complete
        assert sum(one.n for one in await kept.summary(EVER)) == 200
        held.set()
        return await kept.spread(EVER, "model")

    later = running(main)
    assert later.complete
    assert sum(one.n for one in later.parts) == 200


def test_a_store_that_is_closed_stops_counting(running):
    async def main(store):
        await fill(store)
        asking, counting = spawn(store.spread(EVER, "model"), name="asking"), []
        while not counting:
            await asyncio.sleep(0)
            counting = [one for one in asyncio.all_tasks() if one.get_name() == "counting scores"]
        asking.cancel()  # it waits for the counting, which goes on without it
        await asyncio.wait([asking])
        await store.aclose()
        return counting

    (counting,) = running(main)
    assert counting.cancelled()


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
def test_whatever_changes_a_row_changes_the_sums(running, change):
    async def main(store):
        await fill(store)

        async def all_of_it():
            return (
                await store.summary(EVER),
                await store.scored(EVER),
                counted((await store.spread(EVER, "model")).parts),
            )

        before = await all_of_it()
        await change(store)
        after = await all_of_it()
        assert after[0] != before[0]
        rows = rows_of(store)
        spread = counted(await rows.spread(EVER, "model"))
        return after, (await rows.summary(EVER), await rows.scored(EVER), spread)

    (summaries, some, spread), (expected, other, rows) = running(main)
    same(summaries, expected)
    assert spread == rows
    told = [sorted((one.app, one.n, round(one.x, 9), round(one.x2, 9)) for one in found) for found in (some, other)]
    assert told[0] == told[1]


def test_a_row_that_comes_while_its_hour_is_added_up_keeps_the_sum_out_of_the_file(running):
    async def main(store):
        await fill(store)
        rows, late = rows_of(store), []
        read = rows.summary

        async def slowly(query, by):
            found = await read(query, by)
            if not late and query.since <= T0 + DAY + 10.0 < query.until:
                late.append(True)
                await _late(store)
            return found

        rows.summary = slowly
        first = await sums.Rollups(store, rows, time.time).summary(EVER)
        return first, await store.summary(EVER), await read(EVER)

    first, second, expected = running(main)
    assert sum(one.n for one in first) == sum(one.n for one in expected) - 1
    same(second, expected)


def test_who_joins_a_count_that_goes_on_is_told_of_what_was_written_before_the_question(running):
    async def main(store):
        await fill(store)
        rows, was_read, held = rows_of(store), asyncio.Event(), asyncio.Event()
        read = rows.spread

        async def slowly(query, by):
            found = await read(query, by)
            if query.since <= T0 + DAY + 10.0 < query.until:
                was_read.set()
                await held.wait()
            return found

        rows.spread = slowly
        kept = sums.Rollups(store, rows, time.time)
        first = asyncio.ensure_future(kept.spread(EVER, "model"))
        await was_read.wait()
        await _late(store)
        second = asyncio.ensure_future(kept.spread(EVER, "model"))
        await asyncio.sleep(0.1)
        assert not second.done()
        held.set()
        return await first, await second, await read(EVER, "model")

    first, second, expected = running(main)
    assert sum(one.n for one in first.parts) == 200
    assert second.complete
    assert counted(second.parts) == counted(expected)


def test_an_hour_that_is_not_over_is_never_kept(running):
    async def main(store):
        for number, ago in enumerate((100.0, 5000.0, 9000.0)):
            one = sample(number, time.time() - ago)
            await store.add(one, [scored(one, 0.5)])
        await store.summary(Query(since=time.time() - 3 * DAY, until=time.time() + DAY))

    running(main)
    assert all(
        start + seconds <= time.time() - 900 for start, seconds in running.ask("SELECT start, seconds FROM sums")
    )
    assert running.kept() > 0


def test_of_several_scores_of_an_answer_the_last_counts(running):
    async def main(store):
        one = sample(1, T0)
        await store.add(one, [scored(one, 0.2), scored(one, 0.9, version="2", rate=0.5)])
        return await store.scored(EVER)

    (found,) = running(main)
    assert (found.n, found.x, found.least_rate) == (1, pytest.approx(0.9), 0.5)


def test_a_clock_that_was_wrong_once_does_not_make_sums_of_fifty_empty_years(running):
    async def main(store):
        for number, at in enumerate((5.0, T0)):
            one = sample(number, at)
            await store.add(one, [scored(one, 0.5)])
        return await store.summary(Query(since=0.0, until=T0 + DAY))

    (found,) = running(main)
    assert found.n == 2
    assert running.kept() == 0


def test_of_a_window_that_begins_in_a_day_written_at_once_only_the_ends_are_read(running):
    now = time.time()

    async def main(store):
        for number in range(72):
            one = sample(number, now - 3 * DAY + number * HOUR)
            await store.add(one, [scored(one, 0.5)])
        await store.prune(now - 10 * DAY)
        asked = []

        async def told(query):
            asked.append(query)
            return await Rows(store, query.since, query.until).scored(query)

        rows = rows_of(store)
        rows.scored = told
        kept = sums.Rollups(store, rows, time.time)
        return await kept.scored(Query(since=now - DAY, until=now, metric="faithfulness")), asked

    (one,), asked = running(main)
    assert one.n == 24
    assert all(query.until - query.since <= HOUR + sums.SETTLED_S for query in asked)


def test_beforehand_only_hours_that_are_over_are_read_and_each_once(running):
    now = time.time()

    async def main(store):
        for number, ago in enumerate((50.5 * HOUR, 30 * HOUR, 2.5 * HOUR, 1.5 * HOUR, 100.0)):
            one = sample(number, now - ago)
            await store.add(one, [scored(one, 0.5)])
        rows, asked = watched(Rows(store, now - 4 * DAY, now))
        kept = sums.Rollups(store, rows, lambda: now)  # else an hour may come to be over meanwhile
        await kept.ready(now - 10 * DAY, rows)
        first = list(asked)
        asked.clear()
        await kept.ready(now - 10 * DAY, rows)
        return first, asked

    first, again = running(main)
    assert any(query.since <= now - 2.5 * HOUR < query.until for query in first)
    assert all(query.until <= now - sums.SETTLED_S for query in first)
    assert again == []
