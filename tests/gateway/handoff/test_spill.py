"""A queue on another machine goes away for long: samples wait in a file and come back, none lost and none twice."""

import asyncio
import time
from contextlib import suppress

import pytest

from gateway.app import Gateway
from gateway.config import Config, Upstream
from gateway.handoff.spill import ATTEMPTS, LEASE_S, Spill
from monitors.config import Queue as QueueTable
from monitors.records import Sample
from monitors.storage.engines.failures import RefusedError
from monitors.storage.queues import QueueFull
from monitors.storage.queues.memory import MemoryQueue
from monitors.storage.queues.redis import RedisQueue
from monitors.storage.queues.sqlite import SQLiteQueue
from tests.gateway.handoff.test_buffer import Bench, BrokenQueue, FullQueue, one, wait_for
from tests.support.redis import own_redis


def sample(number):
    return Sample(id=f"e{number}", started_at=time.time(), response="x" * 100)


def spill(tmp_path, queue, *, max_bytes=10_000_000, drain_per_s=1000.0, **options):
    file = SQLiteQueue(tmp_path / "spill.db", LEASE_S, ATTEMPTS, max_bytes=max_bytes)
    return Spill(queue, file, drain_per_s=drain_per_s, **{"after_s": 0.0, "draw": lambda: 0.05, **options})


def test_while_redis_is_killed_samples_go_to_the_file_and_return_whole_when_it_is_back(tmp_path):
    server = own_redis(durable=True)
    counted = {"spilled": 0, "returned": 0}

    def count(step, some):
        counted[step] += some

    async def scenario():
        queue = spill(tmp_path, RedisQueue.from_url(server.url(), 60.0, 3), after_s=0.3, count=count)
        bench = Bench(queue, max_items=50)
        bench.handoff.start()
        queue.start()
        try:
            await outage_and_return(queue, bench)
        finally:
            await bench.handoff.aclose()
            await queue.aclose()

    async def outage_and_return(queue, bench):
        bench.handoff.offer(one(0))
        await wait_for(lambda: bench.outcomes().get("captured") == 1)
        server.stop()
        offered = 1
        async with asyncio.timeout(60):
            while bench.outcomes()["captured"] <= 100:  # twice what memory holds
                bench.handoff.offer(one(offered))
                offered += 1
                await asyncio.sleep(0.004)
        await wait_for(lambda: sum(bench.outcomes().values()) == offered)
        # Before the file is used, memory fills: how far depends on how soon it is.
        assert set(bench.outcomes()) <= {"captured", "back_pressure", "overflow"}
        captured = bench.outcomes()["captured"]
        assert counted["spilled"] == captured - 1
        server.start()
        async with asyncio.timeout(60):
            while counted["returned"] < counted["spilled"]:  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0.01)
        leases = await queue.lease(offered)
        assert len(leases) == len({lease.sample.id for lease in leases}) == captured
        assert not (await queue._file.depth()).ready

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


def test_a_restart_of_the_queue_is_waited_for_in_memory(tmp_path):
    async def scenario():
        queue = spill(tmp_path, BrokenQueue(), after_s=60.0)
        with pytest.raises(OSError, match="disk full"):
            await queue.put([sample(1)])
        assert (await queue._file.depth()).ready == 0
        queue.hurry()  # the gateway ends: it cannot wait
        await queue.put([sample(1)])
        assert (await queue._file.depth()).ready == 1
        await queue.aclose()

    asyncio.run(scenario())


def test_a_full_queue_is_no_outage(tmp_path):
    class Refusing(MemoryQueue):
        async def put(self, samples):
            raise QueueFull

    async def scenario():
        queue = spill(tmp_path, Refusing())
        with pytest.raises(QueueFull):
            await queue.put([sample(1)])
        assert (await queue._file.depth()).ready == 0
        await queue.aclose()

    asyncio.run(scenario())


def test_a_full_file_leaves_the_samples_with_the_caller_and_says_how_full_it_is(tmp_path):
    async def scenario():
        queue = spill(tmp_path, BrokenQueue(), max_bytes=150_000)
        with suppress(OSError):
            for number in range(2000):
                await queue.put([sample(number)])
        assert 10 < (await queue._file.depth()).ready < 2000
        assert (await queue.depth()).fill > 0.9
        with pytest.raises(OSError, match="disk full"):
            await queue.put([sample(-1)])
        await queue.aclose()

    asyncio.run(scenario())


def test_the_fuller_of_both_counts(tmp_path):
    async def scenario():
        remote = FullQueue()
        queue = spill(tmp_path, remote)
        remote.fill = 0.8
        assert (await queue.depth()).fill == 0.8
        await queue.aclose()

    asyncio.run(scenario())


def test_nothing_returns_while_the_queue_is_half_full(tmp_path):
    async def scenario():
        queue = spill(tmp_path, BrokenQueue())
        await queue.put([sample(1)])
        remote = queue._queue = FullQueue()
        remote.fill = 0.5
        assert await queue.drain(10) == 0
        remote.fill = 0.4
        assert await queue.drain(10) == 1
        await queue.aclose()

    asyncio.run(scenario())


def test_what_an_earlier_process_left_comes_back_no_faster_than_it_may_and_what_is_new_does_not_wait_for_it(tmp_path):
    async def scenario():
        broken = BrokenQueue()
        earlier = spill(tmp_path, broken)
        await earlier.put([sample(number) for number in range(100)])
        await earlier.aclose()

        remote = MemoryQueue()
        queue = spill(tmp_path, remote, drain_per_s=50.0, draw=lambda: 0.5)
        queue.start()
        began = time.monotonic()
        await asyncio.sleep(0.5)
        await queue.put([sample(1000)])
        early = (await remote.depth()).ready
        assert 2 <= early < 80
        async with asyncio.timeout(60):
            while (await remote.depth()).ready < 101:  # noqa: ASYNC110 - a queue has no event to wait for
                await asyncio.sleep(0.01)
        assert time.monotonic() - began > 1.0
        leases = await remote.lease(200)
        assert [lease.sample.id for lease in leases][-1] != "e1000"
        await queue.aclose()

    asyncio.run(scenario())


def test_a_sample_that_returns_twice_is_there_once(tmp_path):
    class Forgetful(MemoryQueue):
        """Takes the samples, and loses the answer."""

        times = 0

        async def put(self, samples):
            await super().put(samples)
            self.times += 1
            if self.times == 2:
                raise OSError("the connection is gone")

    async def scenario():
        broken = BrokenQueue()
        queue = spill(tmp_path, broken)
        await queue.put([sample(1), sample(2)])
        remote = queue._queue = Forgetful()
        remote.times = 1
        with pytest.raises(OSError, match="gone"):
            await queue.drain(10)
        queue._file._clock = lambda: time.time() + LEASE_S + 1.0
        assert await queue.drain(10) == 2
        assert (await remote.depth()).ready == 2
        assert await queue.drain(10) == 0
        await queue.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "spill_bytes", "left", "wanted"),
    [
        ("redis://127.0.0.1:1/0", 1000, False, True),
        ("redis://127.0.0.1:1/0", 0, False, False),
        ("redis://127.0.0.1:1/0", 0, True, True),  # nothing new goes in, what is there goes back
        (None, 1000, False, False),
    ],
)
def test_a_file_stands_in_for_a_remote_queue_only_and_what_it_holds_is_never_left_there(
    tmp_path, url, spill_bytes, left, wanted
):
    async def scenario():
        path = tmp_path / "spill.db"
        if left:
            path.touch()
        config = Config(
            upstreams=(Upstream(base_url="http://127.0.0.1:1"),), queue=QueueTable(url=url, spill_bytes=spill_bytes)
        )
        remote = BrokenQueue()
        gateway = Gateway(config, queue=remote, spill_file=path)
        assert isinstance(gateway._queue, Spill) is wanted
        if left:
            gateway._spill.hurry()
            with pytest.raises(OSError, match="disk full"):
                await gateway._queue.put([sample(1)])
        await gateway._queue.aclose()

    asyncio.run(scenario())


def test_what_the_queue_refuses_stays_in_the_file_as_a_dead_letter_and_the_rest_returns(tmp_path):
    class Picky(MemoryQueue):
        async def put(self, samples):
            if any(one.id == "e1" for one in samples):
                raise RefusedError("too long")
            await super().put(samples)

    async def scenario():
        queue = spill(tmp_path, Picky())
        await queue._file.put([sample(number) for number in range(3)])
        assert await queue.drain(10) == 2
        assert (await queue._queue.depth()).ready == 2
        kept = await queue._file.depth()
        assert (kept.ready, kept.leased, kept.dead) == (0, 0, 1)
        await queue.aclose()

    asyncio.run(scenario())
