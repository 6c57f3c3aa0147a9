"""A queue on another machine goes away for long: samples wait in a file and come back, none lost and none twice."""

import asyncio
import time
from contextlib import suppress

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.app import Gateway
from gateway.config import Config, Upstream
from gateway.handoff.spill import ATTEMPTS, LEASE_S, Spill
from gaugeway.records import Sample
from gaugeway.settings.shared import Queue as QueueTable
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.engines.redis.queue import RedisQueue
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.queues import QueueFull
from tests.gateway.handoff.test_buffer import Bench, BrokenQueue, FullQueue, one, wait_for
from tests.support.redis import own_redis


def sample(number):
    return Sample(id=f"e{number}", started_at=time.time(), response="x" * 100)


def file_of(tmp_path, max_bytes=10_000_000):
    return SQLiteQueue(tmp_path / "spill.db", LEASE_S, ATTEMPTS, max_bytes=max_bytes)


def spill(file, queue, *, drain_per_s=1000.0, **options):
    return Spill(queue, file, drain_per_s=drain_per_s, **{"after_s": 0.0, "draw": lambda: 0.05, **options})


class Changing:
    """A queue that is `now` whatever it was set to."""

    def __init__(self, now):
        self.now = now

    def __getattr__(self, name):
        return getattr(self.now, name)


def test_while_redis_is_killed_samples_go_to_the_file_and_return_whole_when_it_is_back(tmp_path):
    server = own_redis(durable=True)
    counted = {"spilled": 0, "returned": 0}

    def count(step, some):
        counted[step] += some

    async def scenario():
        file = file_of(tmp_path)
        queue = spill(file, RedisQueue.from_url(server.url(), 60.0, 3), after_s=0.3, count=count)
        bench = Bench(queue, max_items=50)
        bench.handoff.start()
        queue.start()
        try:
            await outage_and_return(queue, file, bench)
        finally:
            await bench.handoff.aclose()
            await queue.aclose()

    async def outage_and_return(queue, file, bench):
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
        assert not (await file.depth()).ready

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


def test_a_restart_of_the_queue_is_waited_for_in_memory(tmp_path):
    async def scenario():
        file = file_of(tmp_path)
        queue = spill(file, BrokenQueue(), after_s=60.0)
        with pytest.raises(OSError, match="disk full"):
            await queue.put([sample(1)])
        assert (await file.depth()).ready == 0
        queue.hurry()  # the gateway ends: it cannot wait
        await queue.put([sample(1)])
        assert (await file.depth()).ready == 1
        await queue.aclose()

    asyncio.run(scenario())


def test_a_full_queue_is_no_outage(tmp_path):
    class Refusing(MemoryQueue):
        async def put(self, samples):
            raise QueueFull

    async def scenario():
        file = file_of(tmp_path)
        queue = spill(file, Refusing())
        with pytest.raises(QueueFull):
            await queue.put([sample(1)])
        assert (await file.depth()).ready == 0
        await queue.aclose()

    asyncio.run(scenario())


def test_a_full_file_leaves_the_samples_with_the_caller_and_says_how_full_it_is(tmp_path):
    async def scenario():
        file = file_of(tmp_path, 150_000)
        queue = spill(file, BrokenQueue())
        with suppress(OSError):
            for number in range(2000):
                await queue.put([sample(number)])
        assert 10 < (await file.depth()).ready < 2000
        assert (await queue.depth()).fill > 0.9
        with pytest.raises(OSError, match="disk full"):
            await queue.put([sample(-1)])
        await queue.aclose()

    asyncio.run(scenario())


def test_the_fuller_of_both_counts(tmp_path):
    async def scenario():
        remote = FullQueue()
        queue = spill(file_of(tmp_path), remote)
        remote.fill = 0.8
        assert (await queue.depth()).fill == 0.8
        await queue.aclose()

    asyncio.run(scenario())


def test_nothing_returns_while_the_queue_is_half_full(tmp_path):
    async def scenario():
        remote = FullQueue()
        changing = Changing(BrokenQueue())
        queue = spill(file_of(tmp_path), changing)
        await queue.put([sample(1)])
        changing.now = remote
        remote.fill = 0.5
        assert await queue.drain(10) == 0
        remote.fill = 0.4
        assert await queue.drain(10) == 1
        await queue.aclose()

    asyncio.run(scenario())


def test_what_an_earlier_process_left_comes_back_no_faster_than_it_may_and_what_is_new_does_not_wait_for_it(tmp_path):
    async def scenario():
        broken = BrokenQueue()
        earlier = spill(file_of(tmp_path), broken)
        await earlier.put([sample(number) for number in range(100)])
        await earlier.aclose()

        remote = MemoryQueue()
        queue = spill(file_of(tmp_path), remote, drain_per_s=50.0, draw=lambda: 0.5)
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
        later = 0.0
        file = SQLiteQueue(tmp_path / "spill.db", LEASE_S, ATTEMPTS, clock=lambda: time.time() + later)
        changing, remote = Changing(BrokenQueue()), Forgetful()
        queue = spill(file, changing)
        await queue.put([sample(1), sample(2)])
        changing.now, remote.times = remote, 1
        with pytest.raises(OSError, match="gone"):
            await queue.drain(10)
        later = LEASE_S + 1.0
        assert await queue.drain(10) == 2
        assert (await remote.depth()).ready == 2
        assert await queue.drain(10) == 0
        await queue.aclose()

    asyncio.run(scenario())


def gateway_of(path, queue, url="redis://127.0.0.1:1/0", spill_bytes=10_000_000):
    config = Config(
        upstreams=(Upstream(base_url="http://127.0.0.1:1"),), queue=QueueTable(url=url, spill_bytes=spill_bytes)
    )
    return Gateway(config, queue=queue, spill_file=path)


@pytest.mark.parametrize(
    ("options", "spilled"), [({}, 1), ({"spill_bytes": 0}, 0), ({"url": None}, 0)], ids=["remote", "no bytes", "local"]
)
def test_a_file_stands_in_for_a_remote_queue_only(tmp_path, options, spilled):
    async def scenario():
        path = tmp_path / "spill.db"
        gateway = gateway_of(path, BrokenQueue(), **options)
        await gateway.start()
        gateway.handoff.offer(one(1))
        await gateway.aclose()  # it cannot wait for the queue to be mended
        assert path.exists() is bool(spilled)
        file = file_of(tmp_path)
        assert (await file.depth()).ready == spilled
        await file.aclose()

    asyncio.run(scenario())


def test_what_a_file_holds_goes_back_although_nothing_new_may_go_in(tmp_path):
    async def scenario():
        file = file_of(tmp_path)
        await file.put([sample(7)])
        await file.aclose()
        remote = MemoryQueue()
        gateway = gateway_of(tmp_path / "spill.db", remote, spill_bytes=0)
        await gateway.start()
        async with asyncio.timeout(60):
            while not (await remote.depth()).ready:  # noqa: ASYNC110 - a queue has no event to wait for
                await asyncio.sleep(0.01)
        assert [lease.sample.id for lease in await remote.lease(9)] == ["e7"]
        await gateway.aclose()

    asyncio.run(scenario())


def test_what_the_queue_refuses_stays_in_the_file_as_a_dead_letter_and_the_rest_returns(tmp_path):
    class Picky(MemoryQueue):
        async def put(self, samples):
            if any(one.id == "e1" for one in samples):
                raise RefusedError("too long")
            await super().put(samples)

    async def scenario():
        file, remote = file_of(tmp_path), Picky()
        queue = spill(file, remote)
        await file.put([sample(number) for number in range(3)])
        assert await queue.drain(10) == 2
        assert (await remote.depth()).ready == 2
        kept = await file.depth()
        assert (kept.ready, kept.leased, kept.dead) == (0, 0, 1)
        await queue.aclose()

    asyncio.run(scenario())
