"""Connections to SQLite files: what is written at once shares a transaction and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from functools import partial

import pytest

from gaugeway.storage.engines.failures import EngineError, RefusedError
from gaugeway.storage.engines.sqlite.connection import Database, Schema

SCHEMA = Schema(kind="trial", application_id=7, migrations=("CREATE TABLE t (x INTEGER PRIMARY KEY);\n",))
INSERT = "INSERT INTO t VALUES (?)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trial.db"


@contextlib.asynccontextmanager
async def opened(path):
    database = Database(path, schema=SCHEMA, busy_timeout_s=0.2)
    try:
        yield database
    finally:
        await database.aclose()


def stored(path):
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]
    finally:
        connection.close()


def insert_then_fail(value, error, connection):
    connection.execute(INSERT, (value,))
    raise error


async def test_what_is_written_at_once_is_one_transaction(path):
    begun = []

    async with opened(path) as database:
        await database.read(lambda connection: connection.set_trace_callback(begun.append))
        await asyncio.gather(*(database.change(INSERT, (n,)) for n in range(20)))
    assert stored(path) == list(range(20))
    assert sum("BEGIN IMMEDIATE" in statement for statement in begun) == 1


async def test_a_work_that_fails_undoes_what_it_did_and_nothing_of_others(path):
    async with opened(path) as database:
        first, own, twice, large, last = await asyncio.gather(
            database.change(INSERT, (1,)),
            database.write(partial(insert_then_fail, 2, KeyError("own"))),
            database.change(INSERT, (1,)),
            database.change(INSERT, (10**30,)),
            database.change(INSERT, (3,)),
            return_exceptions=True,
        )
    assert (first, last, stored(path)) == (1, 1, [1, 3])
    assert isinstance(own, KeyError)
    assert isinstance(twice, RefusedError)
    assert "SQLITE_CONSTRAINT" in str(twice)
    assert isinstance(large, RefusedError)


async def test_of_several_works_in_one_transaction_a_refused_one_undoes_only_what_it_did(path):
    begun = []

    async with opened(path) as database:
        await database.read(lambda connection: connection.set_trace_callback(begun.append))
        works = [partial(insert, n) for n in (1, 2, 2, 3)]
        outcomes = await database.write_each([*works, partial(insert_then_fail, 4, RecursionError("too deep"))])
        assert [one if isinstance(one, int) else type(one) for one in outcomes] == [1, 2, RefusedError, 3, RefusedError]
    assert stored(path) == [1, 2, 3]
    assert sum("BEGIN IMMEDIATE" in statement for statement in begun) == 1


@pytest.mark.parametrize("failure", [sqlite3.OperationalError("disk I/O error"), OSError("full")])
async def test_of_several_works_none_is_done_when_the_engine_fails(path, failure):
    async with opened(path) as database:
        works = [partial(insert, 1), partial(insert_then_fail, 2, failure), partial(insert, 3)]
        with pytest.raises(EngineError):
            await database.write_each(works)
        assert await database.write_each([partial(insert, 4)]) == [4], "the connection is opened again"
        assert await database.write_each([]) == []
    assert stored(path) == [4]


async def test_several_works_need_no_savepoint_each_and_one_alone_needs_none(path):
    begun = []

    async with opened(path) as database:
        await database.read(lambda connection: connection.set_trace_callback(begun.append))
        await database.write(partial(insert, 0))
        await database.write_each([partial(insert, n) for n in range(1, 20)])
    assert stored(path) == list(range(20))
    assert sum("SAVEPOINT" in statement for statement in begun) == 1


def insert(value, connection):
    connection.execute(INSERT, (value,))
    return value


async def test_a_work_that_ends_the_transaction_fails_all_that_shared_it(path):
    async with opened(path) as database:
        outcomes, after = (
            await asyncio.gather(
                database.change(INSERT, (1,)),
                database.change("ROLLBACK"),
                database.change(INSERT, (2,)),
                return_exceptions=True,
            ),
            await database.change(INSERT, (3,)),
        )
    assert all(isinstance(one, EngineError) for one in outcomes), outcomes
    assert (after, stored(path)) == (1, [3])


async def test_a_locked_file_fails_everyone_who_waits_and_nobody_later(path):
    async with opened(path) as database:
        await database.change(INSERT, (0,))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        failed = await asyncio.gather(*(database.change(INSERT, (n,)) for n in (1, 2)), return_exceptions=True)
        other.execute("ROLLBACK")
        other.close()
        after = await database.change(INSERT, (3,))
    assert [isinstance(one, EngineError) and "locked" in str(one) for one in failed] == [True, True]
    assert (after, stored(path)) == (1, [0, 3])


async def test_who_is_cancelled_before_his_turn_writes_nothing(path):
    async with opened(path) as database:
        tasks = [asyncio.ensure_future(database.change(INSERT, (n,))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        _, cancelled, _ = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert stored(path) == [0, 2]


async def test_a_reader_sees_one_state_while_others_write(path):
    async with opened(path) as database:
        reader = Database(path, schema=SCHEMA, busy_timeout_s=0.2)
        await database.change(INSERT, (1,))

        def twice(connection):
            before = connection.execute("SELECT count(*) FROM t").fetchone()
            other = sqlite3.connect(path, isolation_level=None)
            other.execute(INSERT, (2,))
            other.close()
            return before, connection.execute("SELECT count(*) FROM t").fetchone()

        try:
            assert (await reader.read(twice), await reader.fetch("SELECT count(*) FROM t")) == (((1,), (1,)), [(2,)])
        finally:
            await reader.aclose()


async def test_reads_do_not_wait_for_the_event_loop_between_them(path):
    """Many that were begun together are done though the event loop is busy with something else."""
    done = threading.Event()
    async with opened(path) as database:
        await database.change(INSERT, (1,))
        read = [asyncio.ensure_future(database.read(lambda _: None)) for _ in range(20)]
        read.append(asyncio.ensure_future(database.read(lambda _: done.set())))
        await asyncio.sleep(0)
        assert done.wait(30)  # no task runs meanwhile
        await asyncio.gather(*read)


async def test_who_is_cancelled_before_his_turn_reads_nothing(path):
    go, asked = threading.Event(), []
    async with opened(path) as database:
        first = asyncio.ensure_future(database.read(lambda _: go.wait(30)))
        second = asyncio.ensure_future(database.read(lambda _: asked.append(2)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        go.set()
        await first
        await database.read(lambda _: asked.append(3))
    assert asked == [3]


async def test_a_read_that_breaks_the_connection_fails_no_other_read(path):
    async with opened(path) as database:
        await database.change(INSERT, (1,))
        broken, counted = await asyncio.gather(
            database.fetch("SELECT * FROM nothing"), database.fetch("SELECT count(*) FROM t"), return_exceptions=True
        )
        assert isinstance(broken, EngineError)
        assert counted == [(1,)]
        assert await database.fetch("SELECT count(*) FROM t") == [(1,)]
