"""Both planes over a Redis that is killed and comes back: nothing blocks, what is lost is counted, the rest arrives."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from gaugeway.records import Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.redis.queue import RedisQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation.backpressure import MOST_UNJUDGED
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled
from tests.gateway.handoff.test_buffer import Bench, one, wait_for
from tests.support.redis import own_redis

SAMPLES = 600


def test_while_redis_is_gone_the_gateway_holds_what_it_may_counts_the_rest_and_delivers_when_it_is_back():
    server = own_redis(durable=True)

    async def scenario():
        bench = Bench(RedisQueue.from_url(server.url(), 60.0, 3), max_items=20)
        bench.handoff.start()
        bench.handoff.offer(one(0))
        await wait_for(lambda: bench.outcomes().get("captured") == 1)
        server.stop()
        began = time.monotonic()
        for number in range(1, 51):
            bench.handoff.offer(one(number))
        assert time.monotonic() - began < 0.1
        await wait_for(lambda: bench.outcomes().get("overflow") == 30)
        await wait_for(lambda: bench.registry.get_sample_value("gaugeway_handoff_errors_total") >= 2)
        server.start()
        await wait_for(lambda: sum(bench.outcomes().values()) == 51)
        outcomes = bench.outcomes()
        assert outcomes["overflow"] == 30
        assert outcomes["captured"] + outcomes.get("back_pressure", 0) == 21  # of the last ones fewer were wanted
        leases = await bench.queue.lease(99)
        assert len(leases) == outcomes["captured"] >= 12
        assert [lease.sample.id for lease in leases[:10]] == [f"e{number}" for number in range(10)]
        await bench.handoff.aclose()
        await bench.queue.aclose()

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


class Noting:
    """A metric that takes a moment, and notes what it was given and what is under way beside it."""

    name, version = "noted", "1"

    def __init__(self):
        self.times = Counter()
        self.under_way = Counter()
        self.at_once = set()

    async def score(self, sample):
        self.times[sample.id] += 1
        self.under_way[sample.id] += 1
        if self.under_way[sample.id] > 1:
            self.at_once.add(sample.id)
        await asyncio.sleep(0.01)
        self.under_way[sample.id] -= 1
        return Score(0.5)


def test_two_workers_lose_nothing_when_redis_is_killed_under_load_and_never_evaluate_one_sample_at_the_same_time(
    tmp_path,
):
    server = own_redis(durable=True)
    metric = Noting()

    def worker(queue, store):
        evaluator = Evaluator([Enabled(metric=metric, rate=1.0, threshold=0.5, objective=0.9)], MetricSampler("s"))
        return Worker(queue, store, evaluator, settings=WorkerSettings(concurrency=8, poll_s=0.01))

    async def scenario():
        url = server.url()
        queues = [RedisQueue.from_url(url, 4.0, 5) for _ in range(3)]
        stores = [SQLiteStore(tmp_path / "store.db") for _ in range(2)]
        workers = [worker(queue, store) for queue, store in zip(queues[1:], stores, strict=True)]
        running = [asyncio.ensure_future(one.run()) for one in workers]
        left = [Sample(id=str(number), started_at=time.time()) for number in range(SAMPLES)]
        killed = False
        while left:
            try:
                await queues[0].put(left[:50])
                del left[:50]
            except OSError:
                await asyncio.sleep(0.05)
            if len(left) == SAMPLES // 2 and not killed:
                killed = True
                await wait_for(lambda: len(metric.times) >= SAMPLES // 6)
                server.stop()
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):
            while (depth := await queues[0].depth()).ready or depth.leased:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        assert depth.dead == 0
        for one_of_them in workers:
            one_of_them.stop()
        await asyncio.gather(*running)
        assert len(metric.times) == SAMPLES
        assert not metric.at_once
        # What the two had in work when the kill cut off the answers.
        assert sum(metric.times.values()) - SAMPLES <= 2 * MOST_UNJUDGED
        found = [await stores[0].sample(str(number)) for number in range(SAMPLES)]
        assert all(found)
        for engine in (*queues, *stores):
            await engine.aclose()

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()
