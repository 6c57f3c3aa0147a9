"""The embedded queue on a real file: several processes, and everything that can happen to a file."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.connection import QUEUE, Database, Schema
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.queues import Depth

PRELUDE = """
import asyncio, resource, sqlite3, sys, time
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.records import Sample

def sample(sample_id, response=""):
    return Sample(id=sample_id, started_at=1.0, response=response)

queue = SQLiteQueue(sys.argv[1], lease_s=60.0)
"""


def start(script, path):
    """Run `script` in a process of its own, with `queue` on `path`."""
    return subprocess.Popen([sys.executable, "-c", PRELUDE + script, str(path)], stdout=subprocess.PIPE, text=True)


def finish(process):
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    return output.split()


def kill_after(process, line):
    """Kill the process the hard way once it has printed `line`."""
    try:
        while (printed := process.stdout.readline()) != f"{line}\n":
            assert printed
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def sample(sample_id, response=""):
    return Sample(id=sample_id, started_at=1.0, response=response)


def ids(leases):
    return [lease.sample.id for lease in leases]


def run(queue, scenario):
    async def main():
        try:
            return await scenario()
        finally:
            await queue.aclose()

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "queue.db"


@pytest.fixture
def queue(path):
    return SQLiteQueue(path, busy_timeout_s=0.2)


def execute(path, statement, *parameters):
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def test_one_process_puts_and_another_leases_and_nothing_is_lost_or_doubled(path):
    gateway = """
async def main():
    for batch in range(50):
        await queue.put([sample(f"{batch}-{number}", "x" * 1000) for number in range(10)])
    await queue.aclose()
asyncio.run(main())
"""
    putting = start(gateway, path)
    seen = []

    async def work():
        deadline = time.monotonic() + 60
        while len(seen) < 500 and time.monotonic() < deadline:
            leases = await queue.lease(7)
            await queue.ack(ids(leases))
            seen.extend(ids(leases))
            if not leases:
                await asyncio.sleep(0.005)
        return await queue.depth()

    queue = SQLiteQueue(path)
    depth = run(queue, work)
    finish(putting)
    assert sorted(seen) == sorted(f"{batch}-{number}" for batch in range(50) for number in range(10))
    assert depth == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)


def test_two_workers_in_two_processes_never_hold_the_same_sample(path):
    worker = """
async def main():
    while leases := await queue.lease(3):
        print(*[lease.sample.id for lease in leases])
    await queue.aclose()
asyncio.run(main())
"""
    queue = SQLiteQueue(path)
    run(queue, lambda: queue.put([sample(str(number)) for number in range(300)]))
    workers = [start(worker, path) for _ in range(2)]
    taken = [sample_id for process in workers for sample_id in finish(process)]
    assert sorted(taken) == sorted(map(str, range(300)))


@pytest.mark.full
def test_processes_that_create_the_file_at_the_same_moment_all_succeed(path):
    script = """
print("up", flush=True)
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
async def main():
    await queue.put([sample(sys.argv[3])])
    await queue.aclose()
asyncio.run(main())
"""
    at = str(time.time() + 1.0)
    command = [sys.executable, "-c", PRELUDE + script, str(path), at]
    processes = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    for process in processes:
        finish(process)
    assert execute(path, "SELECT count(*) FROM samples") == [(4,)]


def test_what_a_killed_process_held_is_handed_out_again_after_its_lease(path):
    holder = """
async def main():
    await queue.put([sample("a"), sample("b")])
    print(len(await queue.lease(1)), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    kill_after(start(holder, path), "1")
    before, after = SQLiteQueue(path), SQLiteQueue(path, clock=lambda: time.time() + 61.0)
    assert ids(run(before, lambda: before.lease(10))) == ["b"]
    assert [(lease.sample.id, lease.attempt) for lease in run(after, lambda: after.lease(10))] == [("a", 2)]


def test_a_process_killed_while_it_puts_leaves_whole_batches(path):
    endless = """
async def main():
    batch = 0
    while True:
        await queue.put([sample(f"{batch}-{number}", "x" * 2000) for number in range(20)])
        batch += 1
        print(batch, flush=True)
asyncio.run(main())
"""
    kill_after(start(endless, path), "5")
    queue = SQLiteQueue(path)
    depth = run(queue, queue.depth)
    assert depth.ready >= 100
    assert depth.ready % 20 == 0
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_locked_file_fails_a_put_in_time_and_the_next_one_succeeds(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            started = time.monotonic()
            with pytest.raises(EngineError, match="locked"):
                await queue.put([sample("b")])
            assert 0.1 < time.monotonic() - started < 30.0
            other.execute("ROLLBACK")
        await queue.put([sample("c")])
        assert ids(await queue.lease(10)) == ["a", "c"]


def test_a_file_locked_at_first_use_is_opened_later(queue, path):
    run(queue, lambda: queue.put([sample("a")]))

    async def scenario():
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            other.execute("DELETE FROM dead")
            started = time.monotonic()
            with pytest.raises(EngineError, match="locked"):
                await queue.put([sample("b")])
            assert time.monotonic() - started < 30.0
            other.execute("ROLLBACK")
        await queue.put([sample("c")])
        return await queue.lease(10)

    assert ids(run(queue, scenario)) == ["a", "c"]


async def test_waiting_for_a_lock_does_not_hold_up_the_event_loop(path):
    queue = SQLiteQueue(path, busy_timeout_s=5.0)

    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            putting = asyncio.ensure_future(queue.put([sample("b")]))
            for _ in range(10):
                await asyncio.sleep(0.01)
            assert not putting.done()
            other.execute("ROLLBACK")
        await putting
        assert ids(await queue.lease(10)) == ["a", "b"]


async def test_a_full_disk_fails_the_whole_put_and_the_next_one_succeeds(queue):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        connection = queue._database._connection  # noqa: SLF001 - a disk that is full, of this connection alone
        await connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(EngineError, match="full"):
            await queue.put([sample(f"big-{number}", "x" * 10_000) for number in range(50)])
        await queue.put([sample("b", "x" * 500_000)])
        assert ids(await queue.lease(100)) == ["a", "b"]


def test_writes_the_system_refuses_fail_the_put_and_the_queue_recovers(path):
    script = """
async def main():
    await queue.put([sample("a")])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
    for attempt in ("b", "c"):
        try:
            await queue.put([sample(f"{attempt}-{number}", "x" * 10_000) for number in range(50)])
        except EngineError:
            print("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await queue.put([sample("d", "x" * 500_000)])
    print(*[lease.sample.id for lease in await queue.lease(100)])
    await queue.aclose()
asyncio.run(main())
"""
    assert finish(start(script, path)) == ["refused", "refused", "a", "d"]
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("with_its_log", [True, False])
async def test_after_the_file_was_removed_the_queue_begins_a_new_one(queue, path, with_its_log):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        path.unlink()
        if with_its_log:
            path.with_name("queue.db-wal").unlink()
            path.with_name("queue.db-shm").unlink()
        await queue.put([sample("b")])
        assert ids(await queue.lease(10)) == ["b"]
    assert execute(path, "SELECT id FROM samples") == [("b",)]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b'{"started_at":1.0}',
        b'{"id":"bad","started_at":"soon"}',
        b'{"id":"other","started_at":1.0}',
        "{",
        7,
        b'{"id":"bad\xff","started_at":1.0}',
    ],
)
async def test_a_payload_that_cannot_be_read_is_set_aside_and_the_rest_goes_on(queue, path, payload, caplog):
    async with contextlib.aclosing(queue):
        await queue.put([sample("before"), sample("bad"), sample("after")])
        execute(path, "UPDATE samples SET payload = ? WHERE id = 'bad'", payload)
        leases, depth = await queue.lease(10), await queue.depth()
    assert ids(leases) == ["before", "after"]
    assert depth == Depth(ready=0, leased=2, dead=1, oldest_started_at=1.0)
    assert "moved 1 unreadable samples to dead letters" in caplog.text


async def test_many_unreadable_payloads_in_front_do_not_look_like_an_empty_queue(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample(f"bad-{number}") for number in range(25)])
        execute(path, "UPDATE samples SET payload = x'00'")
        await queue.put([sample("good")])
        assert ids(await queue.lease(4)) == ["good"]


async def test_an_unreadable_sample_can_be_acknowledged(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample("bad")])
        execute(path, "UPDATE samples SET payload = x'00'")
        await queue.lease(1)
        await queue.ack(["bad"])
        assert (await queue.depth()) == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)


async def test_a_payload_with_fields_of_a_newer_release_is_read(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        execute(path, "UPDATE samples SET payload = ?", b'{"id":"a","started_at":1.0,"invented_later":[1]}')
        assert ids(await queue.lease(1)) == ["a"]


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("operation", ["put", "lease", "ack", "depth"])
async def test_cancelling_an_operation_at_any_point_leaves_no_transaction_open(queue, path, operation, steps):
    batch = [sample(f"new-{number}", "x" * 1000) for number in range(50)]
    operations = {
        "put": lambda: queue.put(batch),
        "lease": lambda: queue.lease(3),
        "ack": lambda: queue.ack(["a"]),
        "depth": queue.depth,
    }

    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        task = asyncio.ensure_future(operations[operation]())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        await queue.put([sample("after")])
        assert execute(path, "SELECT count(*) FROM samples WHERE id LIKE 'new-%'")[0][0] in (0, 50)


@pytest.mark.parametrize("steps", range(6))
async def test_cancelling_the_first_operation_leaves_a_queue_that_works(queue, steps):
    async with contextlib.aclosing(queue):
        task = asyncio.ensure_future(queue.put([sample("a")]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await queue.put([sample("b")])
        assert ids(await queue.lease(10))[-1] == "b"


async def test_cancelling_a_put_that_waits_for_a_lock_adds_nothing(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            task = asyncio.ensure_future(queue.put([sample("b")]))
            await asyncio.sleep(0.05)
            task.cancel()
            other.execute("ROLLBACK")
            await asyncio.wait([task])
        cancelled, leases = task.cancelled(), await queue.lease(10)
    assert cancelled
    assert ids(leases) == ["a"]


async def test_operations_at_the_same_time_on_one_queue_all_succeed(queue):
    async with contextlib.aclosing(queue):
        await asyncio.gather(*(queue.put([sample(f"{number}")]) for number in range(30)), queue.depth(), queue.lease(0))
        assert (await queue.depth()).ready == 30


def said(supplement_id, received_at=1.0):
    return Supplement(id=supplement_id, received_at=received_at, source="contexts", key="k")


def test_one_process_supplies_and_another_takes(path):
    gateway = """
from gaugeway.records import Supplement

async def main():
    await queue.supply([Supplement(id=str(n), received_at=1.0, source="contexts", key="k") for n in range(50)])
    await queue.aclose()
asyncio.run(main())
"""
    finish(start(gateway, path))
    queue = SQLiteQueue(path)
    assert [one.id for one in run(queue, lambda: queue.take(100))] == [str(n) for n in range(50)]


async def test_a_supplement_that_cannot_be_read_is_removed_and_the_others_are_taken(queue, path, caplog):
    async with contextlib.aclosing(queue):
        await queue.supply([said("a"), said("b"), said("c"), said("d")])
        execute(path, "UPDATE supplies SET payload = '{' WHERE id = 'a'")
        execute(path, "UPDATE supplies SET payload = X'FF' WHERE id = 'b'")
        execute(path, "UPDATE supplies SET id = 'x' WHERE id = 'c'")
        first, second = await queue.take(2), await queue.take(2)
    assert [one.id for one in (*first, *second)] == ["d"]
    assert execute(path, "SELECT id FROM supplies") == [("d",)]
    assert "unreadable supplements" in caplog.text


async def test_looking_for_supplements_where_there_are_none_locks_nobody_out(queue, path):
    async with contextlib.aclosing(queue):
        await queue.put([sample("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await queue.take(10)) == []


async def test_old_supplements_are_pruned_but_not_those_that_somebody_holds_and_only_samples_are_counted(path):
    now = [1_000.0]
    queue = SQLiteQueue(path, clock=lambda: now[0])

    async with contextlib.aclosing(queue):
        await queue.supply([said("held", 1.0)])
        await queue.take(1)
        await queue.supply([*(said(str(n), 1.0) for n in range(600)), said("young", 900.0)])
        await queue.put([sample("a")])
        assert (await queue.prune(500.0)) == 1
    assert execute(path, "SELECT id FROM supplies") == [("held",), ("young",)]


async def test_a_queue_of_the_first_release_is_led_forward_and_keeps_its_samples(queue, path):
    first = Schema(kind=QUEUE.kind, application_id=QUEUE.application_id, migrations=QUEUE.migrations[:1])
    database = Database(path, schema=first, busy_timeout_s=0.2)

    async with contextlib.aclosing(database):
        payload = b'{"id":"a","started_at":1.0}'
        await database.change("INSERT INTO samples (id, started_at, payload) VALUES ('a', 1.0, ?)", (payload,))

    async with contextlib.aclosing(queue):
        await queue.supply([said("1")])
        leases, taken = await queue.lease(10), await queue.take(10)
    assert ids(leases) == ["a"]
    assert list(taken) == [said("1")]
