import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.access.accounting import Accounting
from gateway.access.prices import Prices
from gateway.capture.exchange_reader import Capture
from gateway.config import Capture as Settings
from gateway.handoff.backpressure import capture_factor
from gateway.handoff.buffer import MAX_OVERFLOWN, BufferSettings, CaptureBuffer, OverflowCounter
from gateway.handoff.observer import CaptureObserver
from gateway.handoff.sampler_client import SamplerClient
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import Explicit
from gaugeway.records import Context
from gaugeway.settings.shared import Price
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from tests.gateway.capture.test_exchange_reader import recording


class BrokenQueue(MemoryQueue):
    """A queue whose engine is down until `mend`ed."""

    def __init__(self):
        super().__init__()
        self.broken = True

    async def put(self, samples):
        if self.broken:
            raise OSError("disk full")
        await super().put(samples)


def undecided(handoff):
    intake = handoff._intake  # noqa: SLF001 - nothing outside counts these
    return len(intake) + len(intake.batch)


def one(number, **fields):
    made = recording(**fields)
    made.id = f"e{number}"
    made.size = 100
    return made


async def wait_for(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - counters have no event to wait for
            await asyncio.sleep(0.01)


class Bench:
    def __init__(self, queue=None, rate=1.0, reader=None, sampler=None, accounting=None, **limits):
        self.registry = CollectorRegistry()
        self.queue = queue or MemoryQueue()
        self.reader = reader or Capture([], rate=rate, salt="s", limit=10_000)
        self.handoff = CaptureBuffer(
            queue=self.queue,
            reader=self.reader,
            observer=CaptureObserver(Instruments(self.registry, version="0"), accounting),
            sampler=sampler,
            settings=BufferSettings(interval_s=0.0, **limits),
        )

    def requests(self):
        """How many requests were counted, by model."""
        counts = Counter()
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == "gaugeway_requests_total":
                    counts[sample.labels["model"]] += sample.value
        return counts

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
            one(7, status=401, ending="rejected"),
            one(8, status=429, ending="rejected"),
        ):
            bench.handoff.offer(made)
        await bench.handoff.aclose()
        assert bench.outcomes() == {"captured": 1, "opted_out": 1, "too_large": 2, "error": 1, "rejected": 2}
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


def test_apps_of_requests_that_found_no_room_are_bounded():
    class Counts:
        def __init__(self):
            self.by_app = Counter()

        def overflown(self, app, route, status, ending, count):
            self.by_app[app] += count

    overflow, counts = OverflowCounter(), Counts()
    for number in range(MAX_OVERFLOWN + 500):
        overflow.add(one(number, route="models", explicit=Explicit(app=f"a{number}")))
    overflow.flush(counts)
    assert len(counts.by_app) == MAX_OVERFLOWN + 1
    assert counts.by_app.total() == MAX_OVERFLOWN + 500


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


def test_an_upstreams_own_413_is_an_answer_like_any_other():
    async def scenario():
        bench = Bench()
        bench.handoff.start()
        bench.handoff.offer(one(1, status=413, response={"error": {"message": "too long"}}))
        await bench.handoff.aclose()
        assert bench.outcomes() == {"captured": 1}

    asyncio.run(scenario())


def test_a_listener_that_raises_costs_one_exchange_and_counts_its_request_once():
    async def scenario():
        class Broken:
            def account(self, exchange):
                raise RuntimeError

        bench = Bench(accounting=Broken())
        bench.handoff.start()
        bench.handoff.offer(one(1))
        await bench.handoff.aclose()
        assert bench.outcomes() == {"error": 1}
        assert bench.requests().total() == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("model", "cost"), [("m", 5 * 2.0 + 2 * 3.0), ("x", None)])
def test_a_sample_says_what_its_exchange_cost(model, cost):
    async def scenario():
        instruments = Instruments(CollectorRegistry(), version="0")
        prices = Prices({model: Price(input=2.0, output=3.0, cached=2.0, per=1000)})
        bench = Bench(accounting=Accounting(prices, None, instruments))
        bench.handoff.start()
        bench.handoff.offer(one(1))
        await bench.handoff.aclose()
        (lease,) = await bench.queue.lease(1)
        assert lease.sample.cost_usd == (None if cost is None else pytest.approx(cost / 1000))

    asyncio.run(scenario())


def test_a_batch_that_cannot_be_read_is_counted_and_the_next_is_taken(monkeypatch):
    async def scenario():
        bench = Bench()

        async def no_thread(*_):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "to_thread", no_thread)
            bench.handoff.start()
            bench.handoff.offer(one(1))
            await wait_for(lambda: bench.outcomes() == {"error": 1})
        bench.handoff.offer(one(2))
        await bench.handoff.aclose()
        assert bench.outcomes() == {"error": 1, "captured": 1}

    asyncio.run(scenario())


def test_what_was_said_out_of_band_is_not_held_beside_the_limit():
    async def scenario():
        bench = Bench()
        large = Explicit(app="shop", contexts=(Context(text="x" * 1_000_000),))
        made = one(1, too_large=True, explicit=large)
        bench.handoff.offer(made)
        assert made.explicit == Explicit(app="shop")
        bench.handoff.start()
        await bench.handoff.aclose()
        assert bench.outcomes() == {"too_large": 1}

    asyncio.run(scenario())


class FullQueue(MemoryQueue):
    """A queue that says how full it is."""

    fill = 0.0
    reads = 0

    async def depth(self):
        self.reads += 1
        return replace(await super().depth(), fill=self.fill)

    async def fill_is_read(self, fill):
        self.fill, reads = fill, self.reads
        await wait_for(lambda: self.reads > reads)


def test_the_fuller_the_queue_the_less_is_captured_and_the_rate_says_so():
    async def scenario():
        bench = Bench(FullQueue(), rate=0.8, depth_interval_s=0.01)
        bench.handoff.start()
        factor = capture_factor(0.7)
        await bench.queue.fill_is_read(0.7)
        for number in range(1000):
            bench.handoff.offer(one(number))
        await wait_for(lambda: sum(bench.outcomes().values()) == 1000)
        outcomes = bench.outcomes()
        assert 350 < outcomes["captured"] < 490  # of 1000, 0.8 * 0.525
        assert 150 < outcomes["sampled_out"] < 250
        leases = await bench.queue.lease(1000)
        assert {lease.sample.rate for lease in leases} == {0.8 * factor}
        await bench.queue.fill_is_read(0.0)
        alone = Capture([], rate=0.8 * factor, salt="s", limit=10_000)  # other gateways choose the same ones
        chosen = [number for number in range(1000) if alone.decide(one(number)) == "captured"]
        assert [lease.sample.id for lease in leases] == [f"e{number}" for number in chosen]
        bench.handoff.offer(one(2000))
        await bench.handoff.aclose()

    asyncio.run(scenario())


def test_what_piles_up_here_lowers_the_rate_before_anything_overflows():
    async def scenario():
        bench = Bench(BrokenQueue(), max_items=200)
        bench.handoff.start()
        for number in range(600):
            bench.handoff.offer(one(number))
            if number % 10 == 9:
                await wait_for(lambda: not undecided(bench.handoff))
        assert "overflow" not in bench.outcomes()
        bench.queue.broken = False
        await wait_for(lambda: sum(bench.outcomes().values()) == 600)
        samples = [lease.sample for lease in await bench.queue.lease(600)]
        assert 100 < len(samples) < 200
        # Each stands for 1/rate exchanges, so together for all of them, within four standard errors.
        error = sum((1 - sample.rate) / sample.rate**2 for sample in samples) ** 0.5
        assert abs(sum(1 / sample.rate for sample in samples) - 600) < 4 * error
        await bench.handoff.aclose()

    asyncio.run(scenario())


def test_after_a_long_time_what_does_not_fit_is_counted_as_overflow():
    async def scenario():
        bench = Bench(BrokenQueue(), max_items=20)
        bench.handoff.start()
        for number in range(300):
            bench.handoff.offer(one(number))
            await wait_for(lambda: not undecided(bench.handoff))
        bench.queue.broken = False
        await wait_for(lambda: sum(bench.outcomes().values()) == 300)
        assert bench.outcomes()["captured"] == 20
        assert bench.outcomes()["overflow"] > 100
        await bench.handoff.aclose()

    asyncio.run(scenario())


def test_a_queue_that_does_not_say_how_full_it_is_is_no_reason_to_capture_less():
    class Silent(MemoryQueue):
        async def depth(self):
            raise OSError("gone")

    async def scenario():
        bench = Bench(Silent(), depth_interval_s=0.01)
        bench.handoff.start()
        await asyncio.sleep(0.05)
        for number in range(20):
            bench.handoff.offer(one(number))
        await bench.handoff.aclose()
        assert bench.outcomes() == {"captured": 20}

    asyncio.run(scenario())


def test_the_other_process_knows_by_how_much_the_rate_was_lowered():
    async def scenario():
        sampler = SamplerClient(Settings(rate=0.5), "key")
        made = one(1)
        made.pressure = 0.25
        try:
            (result,) = await sampler.capture([made])
        finally:
            await sampler.aclose()
        assert result.sample.rate == 0.125

    asyncio.run(scenario())


def test_a_sample_that_the_queue_refuses_is_counted_and_the_rest_of_its_batch_arrives(tmp_path):
    class Odd(Capture):
        def make(self, exchange):
            made = super().make(exchange)
            return replace(made, question="\ud83d") if made.id in ("e0", "e50", "e99") else made

    async def scenario():
        bench = Bench(queue=SQLiteQueue(tmp_path / "queue.db"))
        bench.handoff.use(Odd([], rate=1.0, salt="s", limit=10_000))
        for number in range(100):
            bench.handoff.offer(one(number))
        bench.handoff.start()
        await bench.handoff.aclose(timeout_s=30)
        assert bench.outcomes() == {"captured": 97, "error": 3}
        assert (await bench.queue.depth()).ready == 97
        await bench.queue.aclose()

    asyncio.run(scenario())


class CountingCapture(Capture):
    """Counts how often each recording is decoded."""

    def __init__(self, rate):
        super().__init__([], rate=rate, salt="s", limit=10_000)
        self.decoded = Counter()

    def read(self, recording):
        self.decoded[recording.id] += 1
        return super().read(recording)


def test_every_body_is_decoded_once():
    async def scenario(rate):
        bench = Bench(reader=CountingCapture(rate))
        bench.handoff.start()
        for number in range(100):
            bench.handoff.offer(one(number))
        bench.handoff.offer(one(100, explicit=Explicit(capture=False)))
        await bench.handoff.aclose()
        assert bench.reader.decoded == {f"e{number}": 1 for number in range(101)}
        assert sum(bench.outcomes().values()) == bench.requests().total() == 101
        assert "unknown" not in bench.requests()

    for rate in (0.0, 0.5, 1.0):
        asyncio.run(scenario(rate))


@pytest.mark.full
def test_what_the_sampler_process_decodes_is_not_decoded_in_the_gateway_process():
    async def scenario():
        sampler = SamplerClient(Settings(rate=0.5, salt="s", extractors=()), "key")
        bench = Bench(reader=CountingCapture(0.5), sampler=sampler)
        bench.handoff.start()
        for number in range(40):
            bench.handoff.offer(one(number))
        for number in (40, 41):
            bench.handoff.offer(one(number, raw=b"<html>"))
        await wait_for(lambda: sum(bench.outcomes().values()) == 42)
        await bench.handoff.aclose(timeout_s=30)
        captured = {f"e{number}" for number in range(42) if bench.reader.decide(one(number)) == "captured"}
        assert bench.reader.decoded == {f"e{number}": 1 for number in range(42) if f"e{number}" not in captured}
        samples = {lease.sample.id for lease in await bench.queue.lease(100)}
        assert samples == captured - {"e40", "e41"}
        assert bench.requests().total() == 42
        assert bench.registry.get_sample_value("gaugeway_unreadable_total", {"reason": "invalid_json"}) == 2

    asyncio.run(scenario())
