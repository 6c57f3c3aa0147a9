"""Sums kept in PostgreSQL: exact whoever writes meanwhile, made for tables of old releases, which go on beside."""

import asyncio
import contextlib
import random
import time

import asyncpg
import pytest

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.conditions import day_of
from gaugeway.storage.engines.postgres import migrate as migrating
from gaugeway.storage.engines.postgres.migrate import migrate
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.rollups import Rollups
from tests.support.postgres import postgres
from tests.support.rows import Rows

DAY = 86_400.0
T0 = 1_700_000_000.0 // DAY * DAY
EVER = Query(since=T0, until=T0 + 2 * DAY)
_INSERT = """
    INSERT INTO evaluations (sample_id, metric, version, day, started_at, app, model, outcome, value, reason, detail,
        evidence, seconds, cost_usd, rate)
    VALUES ($1, 'm', '1', $2, $3, 'shop', 'm-1', 'score', 0.25, '', '', '[]', 0.0, 0.0, 1.0)
"""
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"


def evaluated(name, at, value=0.5):
    one = Sample(id=name, started_at=at, app="shop", model="m-1")
    return one, [Evaluation(sample_id=name, metric="m", version="1", outcome=Score(value))]


@contextlib.asynccontextmanager
async def connected(url):
    connection = await asyncpg.connect(url, server_settings={"search_path": "gaugeway"})
    try:
        yield connection
    finally:
        await connection.close()


async def somebody_waits(url):
    """Until a lock that somebody wants is held by another."""
    async with connected(url) as watching, asyncio.timeout(60):
        while not await watching.fetchval(_WAITING):  # noqa: ASYNC110 - what it asks has no event
            await asyncio.sleep(0.01)


async def insert(connection, name, at):
    await connection.execute(_INSERT, name, day_of(at), at)


async def fill(store):
    """A whole day, and something after it."""
    await store.add(*evaluated("first", T0))
    await store.add(*evaluated("last", T0 + DAY + 10.0))


async def totals(store):
    """What is kept or made now, and what the rows say."""
    spreads, summaries = (await store.spread(EVER, "model")).parts, await store.summary(EVER)
    rows = await Rows(store, EVER.since, EVER.until).spread(EVER, "model")
    return [(sum(one.n for one in some), round(sum(one.x for one in some), 9)) for some in (spreads, rows)] + [
        (sum(one.n for one in summaries), round(sum(one.wx for one in summaries), 9))
    ]


def exact(found):
    assert found[0] == found[1] == found[2]
    return found[0]


async def test_who_has_written_into_an_hour_and_is_not_done_is_waited_for_before_it_is_added_up():
    url = postgres().database()

    async with contextlib.aclosing(PostgresStore(url)) as store, connected(url) as writer:
        await fill(store)
        transaction = writer.transaction()
        await transaction.start()
        await insert(writer, "late", T0 + 20.0)
        adding = asyncio.ensure_future(store.spread(EVER, "model"))
        await somebody_waits(url)
        await transaction.commit()
        found = await adding
        assert sum(one.n for one in found.parts) == 3
        assert exact(await totals(store)) == (3, 1.25)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_who_writes_into_an_hour_while_it_is_added_up_keeps_its_sum_out_of_the_table(ends):
    url = postgres().database()

    async with contextlib.aclosing(PostgresStore(url)) as store, connected(url) as writer:
        await fill(store)
        rows, transaction = Rows(store, EVER.since, EVER.until), writer.transaction()
        read = rows.spread

        async def slowly(query, by):
            if query.since == T0:
                await transaction.start()
                await insert(writer, "late", T0 + 20.0)
            return await read(query, by)

        rows.spread = slowly
        adding = asyncio.ensure_future(Rollups(store, rows, time.time).spread(EVER, "model"))
        await somebody_waits(url)  # who keeps the sum, for the row that holds the mark
        await getattr(transaction, ends)()
        assert sum(one.n for one in (await adding).parts) == 2
        assert exact(await totals(store)) == ((3, 1.25) if ends == "commit" else (2, 1.0))


async def test_many_who_write_and_many_who_add_up_at_once_leave_exact_sums():
    url = postgres().database()

    async with (
        contextlib.aclosing(PostgresStore(url)) as one,
        contextlib.aclosing(PostgresStore(url)) as other,
    ):
        await fill(one)
        draw, stop = random.Random(1), asyncio.Event()

        async def write(name):
            for number in range(25):
                at = T0 + draw.choice([0.0, 3600.0, DAY]) + draw.random() * 3600.0
                await (one, other)[number % 2].add(*evaluated(f"{name}-{number}", at, draw.random()))
                await asyncio.sleep(draw.random() * 0.02)

        async def add_up(store):
            while not stop.is_set():
                await store.spread(EVER, "model")
                await store.summary(EVER)

        adding = [asyncio.ensure_future(add_up(store)) for store in (one, other)]
        await asyncio.gather(*map(write, "bcde"))
        found = await totals(one)
        stop.set()
        await asyncio.gather(*adding)
        assert exact(found)[0] == 102
        assert exact(await totals(other))[0] == 102
    assert postgres().ask(url, "SELECT count(*) > 0 FROM sums WHERE sums LIKE '[%'") == [(True,)]


async def test_a_day_that_is_dropped_takes_its_sums_with_it():
    url = postgres().database()

    async with contextlib.aclosing(PostgresStore(url)) as store:
        await fill(store)
        assert exact(await totals(store)) == (2, 1.0)
        assert await store.prune(T0 + DAY) == 1
        assert exact(await totals(store)) == (1, 0.5)
    assert postgres().ask(url, f"SELECT count(*) FROM sums WHERE start < {int(T0 + DAY)}") == [(0,)]


async def test_tables_of_a_release_without_sums_get_them_and_that_release_goes_on_beside(monkeypatch):
    url, scripts = postgres().database(empty=True), migrating.scripts()
    # The older release is played by today's code, which writes columns that its tables do not have.
    later = """
        ALTER TABLE evaluations ADD COLUMN cluster text, ADD COLUMN weight float8;
        ALTER TABLE samples ADD COLUMN conversation text, ADD COLUMN turn integer, ADD COLUMN hop integer;
    """
    before = (*scripts[:2], scripts[2] + later)

    async def version():
        async with connected(url) as connection:
            return await migrating.version(connection)

    async with contextlib.aclosing(PostgresStore(url)) as old:
        with monkeypatch.context() as patched:
            patched.setattr(migrating, "scripts", lambda: before)
            for number in range(20):
                await old.add(*evaluated(f"a{number}", T0 + number * 5000.0))
        assert await version() == 3
        async with contextlib.aclosing(PostgresStore(url)) as new:
            assert exact(await totals(new)) == (20, 10.0)
            assert await version() == len(migrating.scripts())
            await old.add(*evaluated("late", T0 + 1.0))  # by a process that was there before
            assert exact(await totals(new)) == (21, 10.5)
            async with contextlib.aclosing(PostgresStore(url)) as again:
                with monkeypatch.context() as patched:
                    patched.setattr(migrating, "scripts", lambda: before)
                    await again.add(*evaluated("later", T0 + 2.0))
            assert exact(await totals(new)) == (22, 11.0)
    async with connected(url) as connection:
        assert await migrate(connection) == (len(migrating.scripts()),) * 2
