import asyncio

from prometheus_client import CollectorRegistry

from gateway.capture import Capture
from gateway.exchange import Explicit
from gateway.handoff import HandOff
from gateway.instruments import Instruments
from monitors.queues.memory import MemoryQueue
from tests.gateway.test_capture import recording


class BrokenQueue(MemoryQueue):
    """A queue whose engine is down until `mend`ed."""

    def __init__(self):
        super().__init__()
        self.broken = True

    async def put(self, samples):
        if self.broken:
            raise OSError("disk full")
        await super().put(samples)


def one(number, **fields):
    made = recording(**fields)
    made.id = f"e{number}"
    made.size = 100
    return made


async def wait_for(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - counters have no event to wait for
            await asyncio.sleep(0.01)


class Bench:
    def __init__(self, queue=None, rate=1.0, **limits):
        self.registry = CollectorRegistry()
        self.queue = queue or MemoryQueue()
        self.handoff = HandOff(
            queue=self.queue,
            reader=Capture([], rate=rate, salt="s", limit=10_000),
            instruments=Instruments(self.registry, version="0"),
            interval_s=0.0,
            **limits,
        )

    def outcomes(self):
        return {
            sample.labels["outcome"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "gaugeway_exchanges_total"
        }


def test_every_exchange_ends_in_exactly_one_outcome():
    async def scenario():
        bench = Bench()
        bench.handoff.start()
        for made in (
            one(1),
            one(2, explicit=Explicit(capture=False)),
            one(3, too_large=True),
            one(4, raw=b"<html>"),
            one(5, status=413, ending="rejected"),
            one(6, route="models", raw=b"[]"),
        ):
            bench.handoff.offer(made)
        await bench.handoff.aclose()
        assert bench.outcomes() == {"captured": 1, "opted_out": 1, "too_large": 2, "error": 1}
        assert (await bench.queue.depth()).ready == 1

    asyncio.run(scenario())


def test_what_is_not_sampled_is_counted_as_sampled_out():
    async def scenario():
        bench = Bench(rate=0.5)
        bench.handoff.start()
        for number in range(200):
            bench.handoff.offer(one(number))
        await bench.handoff.aclose()
        outcomes = bench.outcomes()
        assert outcomes["captured"] + outcomes["sampled_out"] == 200
        assert 70 < outcomes["captured"] < 130

    asyncio.run(scenario())


def test_beyond_the_count_or_the_bytes_the_newest_is_dropped_and_counted():
    async def scenario():
        for limits in ({"max_items": 10}, {"max_bytes": 1000}):
            bench = Bench(BrokenQueue(), **limits)
            bench.handoff.start()
            for number in range(25):
                bench.handoff.offer(one(number))
            await wait_for(lambda bench=bench: bench.outcomes().get("overflow") == 15)
            bench.queue.broken = False
            await bench.handoff.aclose()
            assert bench.outcomes() == {"overflow": 15, "captured": 10}
            leases = await bench.queue.lease(100)
            assert [lease.sample.id for lease in leases] == [f"e{number}" for number in range(10)]

    asyncio.run(scenario())


def test_while_the_queue_fails_samples_wait_and_arrive_afterwards_once():
    async def scenario():
        bench = Bench(BrokenQueue())
        bench.handoff.start()
        for number in range(150):
            bench.handoff.offer(one(number))
        await wait_for(lambda: bench.registry.get_sample_value("gaugeway_handoff_errors_total") >= 2)
        bench.queue.broken = False
        await wait_for(lambda: bench.outcomes().get("captured") == 150)
        assert (await bench.queue.depth()).ready == 150
        await bench.handoff.aclose()

    asyncio.run(scenario())


def test_what_cannot_be_delivered_before_the_end_is_counted_as_error():
    async def scenario():
        bench = Bench(BrokenQueue())
        bench.handoff.start()
        for number in range(3):
            bench.handoff.offer(one(number))
        await bench.handoff.aclose(timeout_s=0.3)
        assert bench.outcomes() == {"error": 3}

    asyncio.run(scenario())
