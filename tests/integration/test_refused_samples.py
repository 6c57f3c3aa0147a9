"""Samples that an engine will never take, among those that it takes: they become dead letters and hold up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import string

import pytest

from gaugeway.records import Context, Sample, Score, Supplement
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.failures import EngineError, RefusedError, engine_failed, refused
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.engines.sqlite.connection import Database, Schema
from gaugeway.storage.queues import from_url as queue_at
from gaugeway.storage.stores import from_url as store_at
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres
from tests.support.redis import own_redis

KEY = "".join(random.Random(1).choices(string.ascii_letters, k=12_000))
"""Text that does not compress: PostgreSQL holds no index entry of more than 2,704 bytes."""


class Metric:
    name, version, judge = "m", "1", None

    async def score(self, sample):
        return Score(0.5)


def sample(name, **fields):
    return Sample(**{"id": name, "started_at": 1.0, "response": "x", **fields})


@contextlib.asynccontextmanager
async def working(queue, store):
    failed = []
    observer = WorkerObserver()
    observer.failed = failed.append
    evaluator = Evaluator([Enabled(metric=Metric(), rate=1.0, threshold=0.5, objective=0.9)], MetricSampler("s"))
    worker = Worker(queue, store, evaluator, settings=WorkerSettings(concurrency=8, poll_s=0.01), observer=observer)
    running = asyncio.ensure_future(worker.run())
    try:
        yield failed
    finally:
        worker.stop()
        await asyncio.wait([running], timeout=10)
        await queue.aclose()
        await store.aclose()


async def until(condition):
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - an engine has no event
            await asyncio.sleep(0.02)


def test_ten_samples_too_long_for_an_index_hold_no_place_and_carry_the_reason(tmp_path):
    """By their ids, which no bound on names shortens."""

    async def scenario():
        queue, store = queue_at(f"sqlite:///{tmp_path}/q.db", 60.0, 5), store_at(postgres().database())
        bad = [sample(f"{k}{KEY}") for k in range(10)]
        await queue.put(bad + [sample(f"ok{k}") for k in range(20)])
        async with working(queue, store) as failed:

            async def is_done():
                depth = await queue.depth()
                return not depth.ready + depth.leased

            await until(is_done)
            assert (await queue.depth()).dead == 10
            assert all([await store.sample(f"ok{k}") for k in range(20)])
            assert failed.count("dead_letter") == 10
        with contextlib.closing(sqlite3.connect(tmp_path / "q.db")) as file:
            ((reason,),) = file.execute("SELECT DISTINCT reason FROM dead").fetchall()
        assert "54000 ProgramLimitExceededError: index row requires" in reason
        assert KEY not in reason

    asyncio.run(scenario())


def test_an_engine_that_is_down_sets_nothing_aside():
    """A database that refuses connections, and one whose disk is full, are the engine's fault."""

    async def scenario():
        store = PostgresStore(postgres().database())
        try:
            with pytest.raises(EngineError):
                async with store.database.connection() as connection:
                    await connection.execute("DO $$ BEGIN RAISE disk_full; END $$")
            with pytest.raises(RefusedError, match="22003") as told:
                async with store.database.connection() as connection:
                    await connection.execute("SELECT 'secret'::text, 2147483647 + 1")
            assert "secret" not in str(told.value)
        finally:
            await store.aclose()

    asyncio.run(scenario())


def awkward():
    """What encoders and engines stumble over, each by itself."""
    return {
        "a lone surrogate": sample("bad", question="\ud83d"),
        "a surrogate in a passage": sample("bad", contexts=(Context(text="\udc80"),)),
    }


@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "clickhouse"])
@pytest.mark.parametrize("which", awkward())
def test_a_store_refuses_what_it_cannot_hold_and_takes_the_next(tmp_path, engine, which):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    url = f"sqlite:///{tmp_path}/s.db" if engine == "sqlite" else engines[engine]().database()

    async def scenario():
        store = store_at(url)
        try:
            added = [store.add(awkward()[which], []), *(store.add(sample(f"ok{k}"), []) for k in range(3))]
            bad, *others = await asyncio.gather(*added, return_exceptions=True)
            assert isinstance(bad, (ValueError, OverflowError))
            assert not isinstance(bad, OSError)
            assert others == [[], [], []]
        finally:
            await store.aclose()

    asyncio.run(scenario())


def test_text_with_nul_is_stored_by_every_engine(tmp_path):
    async def scenario():
        for url in (f"sqlite:///{tmp_path}/s.db", postgres().database()):
            store = store_at(url)
            one = sample("a", question="nul \0 in it", context_key="k\0", app="a\0")
            await store.add(one, [])
            assert (await store.sample("a"))[0].question == one.question
            await store.aclose()

    asyncio.run(scenario())


def test_redis_refuses_what_is_longer_than_it_takes_and_memory_that_is_full_is_its_own_fault():
    async def scenario(server):
        queue = queue_at(server.url(), 60.0, 3)
        try:
            for size in (1_100_000, 20_000_000):
                with pytest.raises(RefusedError, match="bulk"):
                    await queue.put([sample("bad", response="x" * size), sample("ok")])
            await queue.put([sample("ok")])
            assert (await queue.depth()).ready == 1
            await queue.put([sample(f"fill{k}", response="x" * 900_000) for k in range(3)])
            server.ask("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(EngineError, match="maxmemory"):
                await queue.put([sample("late")])
        finally:
            await queue.aclose()

    server = own_redis(options={"proto-max-bulk-len": "1048576"})
    try:
        asyncio.run(scenario(server))
    finally:
        server.destroy()


def test_a_supplement_that_a_store_refuses_does_not_stop_the_others(tmp_path):
    async def scenario():
        queue, store = queue_at(f"sqlite:///{tmp_path}/q.db", 60.0, 5), store_at(postgres().database())
        told = [Supplement(id=f"s{k}", received_at=1.0, source="feedback", key=f"k{k}", rating=1.0) for k in range(5)]
        bad = Supplement(id=KEY, received_at=1.0, source="feedback", key="k", rating=1.0)
        await queue.supply([bad, *told])
        async with working(queue, store) as failed:

            async def is_stored():
                return len(await store.supplements_of(sample("x", context_key="k4"))) == 1

            await until(is_stored)
            assert "supplement" in failed

    asyncio.run(scenario())


def test_sqlite_refuses_what_is_too_long_or_too_large_a_number_and_a_full_file_is_its_own_fault(tmp_path):
    async def refusal(database, statement, *values):
        try:
            await database.change(statement, values)
        except Exception as error:  # noqa: BLE001 - which one it is, is the question
            return refused(error), engine_failed(error), str(error)
        raise AssertionError(statement)

    async def scenario():
        schema = Schema(kind="queue", application_id=1, migrations=("CREATE TABLE t (x INTEGER NOT NULL);\n",))
        database = Database(tmp_path / "q.db", schema=schema, busy_timeout_s=1.0)
        insert = "INSERT INTO t VALUES (?)"
        assert await refusal(database, "INSERT INTO t VALUES (zeroblob(2000000000))") == (
            *(True, False),
            f"{tmp_path}/q.db: SQLITE_TOOBIG",
        )
        for value in (10**30, "\ud83d", None):
            assert (await refusal(database, insert, value))[:2] == (True, False)
        await database.change("PRAGMA max_page_count = 3")
        kept = await refusal(database, insert, "x" * 100_000)
        assert kept == (False, True, f"{tmp_path}/q.db: database or disk is full")
        await database.aclose()

    asyncio.run(scenario())
