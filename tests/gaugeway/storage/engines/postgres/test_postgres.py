"""PostgreSQL beyond the contracts: losing it, migrations, days as partitions, settling in one transaction, leading."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections import Counter

import asyncpg
import pytest

from gaugeway.records import Context, Evaluation, Sample, Score, Skipped, Supplement
from gaugeway.redaction import Redactor
from gaugeway.storage.engines.conditions import DAY_S, day_of
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.postgres import migrate as migrating
from gaugeway.storage.engines.postgres.connection import Database, name_of
from gaugeway.storage.engines.postgres.migrate import migrate
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.postgres.store import AHEAD, PostgresStore
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.leader import Alone, DeposedError, stand, while_leading
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.hashing_store import HashingStore
from tests.support.postgres import postgres

EVER = {"since": 0.0, "until": 1e12}
TICK_S = 0.4


def sample(sample_id="a", started_at=1.0, **fields):
    return Sample(id=sample_id, started_at=started_at, **fields)


def evaluation(sample_id="a", metric="m", outcome=None):
    return Evaluation(sample_id=sample_id, metric=metric, version="1", outcome=outcome or Score(0.5))


@contextlib.asynccontextmanager
async def engines(url, lease_s=60.0):
    async with (
        contextlib.aclosing(PostgresQueue(url, lease_s, 3)) as queue,
        contextlib.aclosing(PostgresStore(url)) as store,
    ):
        yield queue, store


async def until(condition, within_s=60.0):
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what it asks has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:secret@db.example:5433/quality?sslmode=require", "postgresql://db.example:5433/quality"),
        ("postgres:///quality", "postgres://localhost/quality"),
        ("postgresql://me:secret@a:5432,b:5432/q?target_session_attrs=read-write", "postgresql://a:5432,b:5432/q"),
        ("postgresql://me:se%2Fcret@[::1]:5432/q", "postgresql://[::1]:5432/q"),
    ],
)
def test_a_database_is_named_without_user_and_password(url, name):
    assert name_of(url) == name


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se/cret@db/x",
        "postgresql://me:se#cret@db/x",
        "postgresql://me:1/cret@db/x",
        "postgresql://me:secret@db",
        "postgresql://db:x/y",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(url):
    with pytest.raises(ValueError, match="expected postgresql://") as refusal:
        PostgresStore.from_url(url)
    assert "cret" not in str(refusal.value)


async def test_an_engine_that_is_not_there_is_told_without_the_password():
    queue = PostgresQueue("postgresql://me:secret@127.0.0.1:9/quality", 60.0, 3)
    with pytest.raises(EngineError) as told:
        await queue.put([sample()])
    assert str(told.value).startswith("postgresql://127.0.0.1:9/quality: ")
    assert "secret" not in repr(told.value)
    await queue.aclose()


async def test_while_the_engine_is_gone_one_call_at_a_time_knocks_and_the_others_fail_at_once():
    knocks = []

    async def hang_up(_, writer):
        knocks.append(time.monotonic())
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    database = Database(f"postgresql://u@127.0.0.1:{port}/x?sslmode=disable", draw=lambda: 1.0)
    refused = []

    async def keep_asking():
        while time.monotonic() < end:
            with pytest.raises(EngineError) as told:
                async with database.connection():
                    pass
            refused.append(str(told.value))
            await asyncio.sleep(0.01)

    end = time.monotonic() + 1.2
    await asyncio.gather(*(keep_asking() for _ in range(20)))
    server.close()
    # Waits of 0.1, 0.2, 0.4 and 0.8 s: four knocks in 1.2 s at most, however many ask.
    assert 1 <= len(knocks) <= 5
    assert len(refused) >= 10 * len(knocks)


async def test_sessions_that_were_ended_are_replaced_at_the_next_call():
    url = postgres().database()

    async with engines(url) as (queue, store):
        await queue.put([sample()])
        await store.add(sample(), [])
        other = await asyncpg.connect(url)
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'gaugeway'"
        )
        await other.close()
        await asyncio.sleep(0.1)
        assert (await queue.depth()).ready == 1
        assert await store.sample("a") is not None


async def test_what_the_store_is_asked_is_planned_for_the_values_it_is_asked_with():
    async with contextlib.aclosing(PostgresStore(postgres().database(), size=1)) as store:
        for _ in range(10):
            await store.ratings(Query(**EVER, metric="m"))
        async with store.database.connection() as connection:
            plans = await connection.fetch(
                "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE parameter_types <> '{}'"
            )
    assert max(row["custom_plans"] for row in plans) == 10
    assert not any(row["generic_plans"] for row in plans)


async def test_a_statement_that_takes_too_long_is_an_engine_error():
    url = postgres().database()

    database = Database(url)

    async def wait_for_long():
        async with database.connection() as connection:
            await connection.execute("SET statement_timeout = 50")
            await connection.execute("SELECT pg_sleep(5)")

    with pytest.raises(EngineError, match="statement timeout"):
        await wait_for_long()
    async with database.connection() as connection:  # the setting went with the session's reset
        assert await connection.fetchval("SHOW statement_timeout") == "30s"
    await database.aclose()


async def test_of_many_processes_that_find_an_empty_database_one_makes_the_tables():
    url = postgres().database(empty=True)

    connections = [await asyncpg.connect(url) for _ in range(6)]
    found = await asyncio.gather(*map(migrate, connections))
    assert Counter(found)[0, len(migrating.scripts())] == 1
    assert await migrating.version(connections[0]) == len(migrating.scripts())
    for connection in connections:
        await connection.close()


async def test_tables_of_a_newer_release_are_refused():
    url = postgres().database()
    postgres().ask(url, "INSERT INTO versions (version) VALUES (99)")

    store = PostgresStore(url)
    with pytest.raises(EngineError, match="version 99, this release knows"):
        await store.load()
    await store.aclose()


async def test_tables_to_which_a_newer_release_only_added_are_used():
    url = postgres().database()
    known = len(migrating.scripts())
    postgres().ask(url, "INSERT INTO versions (version, oldest) VALUES ($1, $2), ($3, $2)", known + 1, known, known + 2)

    store = PostgresStore(url)
    async with store.database.connection() as connection:
        assert await migrate(connection) == (known + 2, known + 2)
    assert await store.load() == {}
    await store.aclose()


async def test_text_that_postgresql_cannot_hold_is_kept_and_found():
    odd = sample("a\0b", question="why \0 not?", app="x\0", model="m\0", tags={"t\0": "v\0"}, trace_id="t\0")

    async with engines(postgres().database()) as (queue, store):
        await queue.put([odd])
        (lease,) = await queue.lease(1)
        assert lease.sample == odd
        outcomes = [evaluation("a\0b", outcome=Score(0.5, "a \0 reason", ({"claim": "\0"},)))]
        assert list(await store.add(lease.sample, outcomes)) == outcomes
        found, _ = await store.sample("a\0b")
        assert found == odd
        await store.supplement([Supplement(id="\0", received_at=1.0, source="spans", trace_id="t\0")])
        assert len(await store.supplements_of(odd)) == 1
        for fields in ({"text": "why \0"}, {"app": "x\0"}, {"tag": ("t\0", "v\0")}):
            assert len(await store.series(Query(**EVER, **fields))) == 1, fields
        await queue.ack(["a\0b"])
        assert (await queue.depth()).leased == 0


@pytest.mark.parametrize("started_at", [float("nan"), float("inf"), 1e300])
async def test_a_sample_of_no_day_is_refused_and_that_is_not_the_engines_fault(started_at):
    async with engines(postgres().database()) as (_, store):
        with pytest.raises(ValueError, match="not a valid time"):
            await store.add(sample(started_at=started_at), [])


async def test_each_day_is_a_partition_and_a_query_looks_at_the_days_it_asks_for():
    url = postgres().database()

    async with engines(url) as (_, store):
        for day in (-1, 0, 1, 7):
            await store.add(sample(f"d{day}", day * DAY_S + 5.0), [evaluation(f"d{day}")])
        points = await store.series(Query(since=-DAY_S, until=DAY_S))
        assert [point.sample_id for point in points] == ["d-1", "d0"]
        assert await store.prune(2 * DAY_S) == 3
    today = day_of(time.time())
    there = {
        int(row[0].split("_")[1])
        for row in postgres().ask(url, "SELECT relname FROM pg_class WHERE relname ~ '^samples_-?[0-9]+$'")
    }
    assert there == {7, *range(today, today + AHEAD + 1)}
    plan = "\n".join(
        row[0]
        for row in postgres().ask(url, f"EXPLAIN SELECT FROM evaluations WHERE day >= {today} AND day <= {today}")
    )
    assert f"evaluations_{today}" in plan
    assert "evaluations_7" not in plan


async def test_a_day_that_another_process_dropped_is_made_again():
    url = postgres().database()

    async with engines(url) as (_, first), engines(url) as (_, second):
        await first.add(sample("a", 5.0), [])
        assert await second.prune(DAY_S) == 1
        assert list(await first.add(sample("b", 6.0), [evaluation("b")])) == [evaluation("b")]


async def test_a_day_is_not_dropped_while_somebody_reads_and_nobody_waits_for_it_for_long():
    url = postgres().database()

    async with engines(url) as (_, store):
        await store.add(sample("a", 5.0), [])
        reader = await asyncpg.connect(url, server_settings={"search_path": "gaugeway"})
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT FROM samples")
        pruning = asyncio.ensure_future(store.prune(DAY_S))
        await asyncio.sleep(0.3)
        assert not pruning.done()
        begin = time.monotonic()
        await store.add(sample("b", 5 * DAY_S), [])
        assert time.monotonic() - begin < 1.5
        await transaction.rollback()
        await reader.close()
        assert await pruning == 1


async def test_many_processes_add_the_same_sample_and_it_is_stored_once():
    url = postgres().database()

    async with engines(url) as (_, store):
        added = await asyncio.gather(*(store.add(sample(), [evaluation()]) for _ in range(24)))
        assert sorted(map(len, added)) == [0] * 23 + [1]
        assert len(await store.series(Query(**EVER))) == 1


@pytest.mark.parametrize("hashing", [False, True])
async def test_what_is_settled_is_stored_and_out_of_the_queue_together_or_not_at_all(hashing):
    url = postgres().database()

    async with engines(url) as (queue, real):
        store = HashingStore(real, Redactor((), (), "k"), window_s=60.0) if hashing else real
        assert store.settles(queue)
        await queue.put([sample("a"), sample("b")])
        await queue.lease(2)
        await real.add(sample("b"), [evaluation("b", "skipped", Skipped("x"))])
        refused = Evaluation(sample_id="a", metric="m", version="1", outcome=Score(0.5), cost_usd="much")
        with pytest.raises((asyncpg.DataError, ValueError, TypeError)):
            await store.settle(sample("a"), [evaluation("a", "fine"), refused])
        assert await real.sample("a") is None
        assert (await queue.depth()).leased == 2
        assert list(await store.settle(sample("a"), [evaluation("a")])) == [evaluation("a")]
        assert (await queue.depth()).leased == 1
        assert list(await store.settle(sample("b"), [evaluation("b")])) == [evaluation("b")]
        assert (await queue.depth()).leased == 0


async def test_a_store_settles_only_what_is_in_its_own_database(tmp_path):
    urls = [postgres().database(), postgres().database()]

    async with engines(urls[0]) as (_, store), engines(urls[1]) as (queue, _):
        assert not store.settles(queue)
        file = SQLiteQueue(tmp_path / "q.db")
        assert not store.settles(file)
        assert not HashingStore(SQLiteStore(tmp_path / "s.db"), Redactor((), (), "k"), window_s=1.0).settles(file)


async def test_two_worker_processes_share_a_queue_and_never_work_on_the_same_sample(tmp_path):
    url = postgres().database()
    count = 240

    async with engines(url) as (queue, _):
        await queue.put([sample(f"s{k}", 1.0 + k) for k in range(count)])
    path = tmp_path / "noted"
    command = [sys.executable, "-m", "tests.support.postgres_worker", url, str(path), "1.5"]
    for process in [subprocess.Popen(command) for _ in range(2)]:  # noqa: ASYNC220 - the test only waits for them
        assert process.wait(60) == 0
    noted = [line.split() for line in path.read_text().splitlines()]
    assert Counter(name for name, *_ in noted) == {f"s{k}": 1 for k in range(count)}
    assert len({pid for _, pid, *_ in noted}) == 2, "both had work"

    async with engines(url) as (queue, store):
        depth = await queue.depth()
        assert (depth.ready, depth.leased, depth.dead) == (0, 0, 0)
        assert len(await store.series(Query(**EVER))) == count


@contextlib.asynccontextmanager
async def candidates(url, count):
    """So many processes' stores, each with its candidacy and the ledger of the leader."""
    stores = [PostgresStore(url) for _ in range(count)]
    standing = [stand(url, store, TICK_S) for store in stores]
    for leader, _ in standing:
        leader.start()
    try:
        yield standing
    finally:
        for leader, _ in standing:
            await leader.aclose()
        for store in stores:
            await store.aclose()


def leading(standing):
    return [leader for leader, _ in standing if leader.is_leader()]


async def test_of_several_processes_one_leads_and_it_alone_saves():
    async with candidates(postgres().database(), 3) as standing:
        await until(lambda: leading(standing))
        await asyncio.sleep(2 * TICK_S)
        assert len(leading(standing)) == 1
        for leader, ledger in standing:
            if leader.is_leader():
                await ledger.save({"a": b"1"})
            else:
                with pytest.raises(DeposedError):
                    await ledger.save({"a": b"2"})
            assert (await ledger.load()).get("a", b"1") == b"1"


async def test_who_steps_down_hands_over_at_once():
    async with candidates(postgres().database(), 2) as standing:
        await until(lambda: leading(standing))
        (first,) = leading(standing)
        begin = time.monotonic()
        await first.aclose()
        await until(lambda: leading(standing), 2 * TICK_S)
        assert first not in leading(standing)
        assert time.monotonic() - begin < 2 * TICK_S


async def test_a_leader_that_does_not_know_that_it_was_deposed_saves_nothing():
    url = postgres().database()

    async with candidates(url, 2) as standing:
        await until(lambda: leading(standing))
        (first,) = leading(standing)
        old_term = first.term
        old = next(ledger for leader, ledger in standing if leader is first)
        await old.save({"a": b"first"})
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        changed = asyncio.ensure_future(first.changed())
        connection = await asyncpg.connect(url)
        await connection.execute(end)
        await connection.close()
        await asyncio.wait_for(changed, 2 * TICK_S)
        await until(lambda: leading(standing), 4 * TICK_S)
        (second,) = leading(standing)
        assert second.term == old_term + 1
        new = next(ledger for leader, ledger in standing if leader is second)
        await new.save({"a": b"second"})
        await first.aclose()
        first.term = old_term  # as one would believe who was stopped for a while
        with pytest.raises(DeposedError, match="is over"):
            await old.save({"a": b"stale"})
        first.term = None
        assert await new.load() == {"a": b"second"}


async def test_work_of_the_leader_ends_with_its_reign_and_begins_anew_with_the_next():
    begun, ended = [], []

    async def work():
        begun.append(1)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async with candidates(postgres().database(), 1) as ((leader, _),):
        task = asyncio.ensure_future(while_leading(leader, work, name="work"))
        await until(lambda: begun)
        await leader.aclose()
        await until(lambda: ended)
        leader.start()
        await until(lambda: len(begun) == 2)
        task.cancel()
        await asyncio.wait([task])
        assert len(ended) == 2


def test_who_has_a_store_of_its_own_always_leads(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    leader, ledger = stand(f"sqlite:///{tmp_path}/s.db", store, TICK_S)
    assert isinstance(leader, Alone)
    assert leader.is_leader()
    assert ledger is store


async def test_ratings_of_a_trace_with_contexts_do_not_stumble_over_nul():
    async with engines(postgres().database()) as (_, store):
        await store.add(sample(trace_id="t"), [evaluation()])
        said = Supplement(
            id="s", received_at=1.0, source="feedback", trace_id="t", rating=1.0, contexts=(Context(text="\0"),)
        )
        await store.supplement([said])
        assert [one.rating for one in await store.ratings(Query(**EVER))] == [1.0]
