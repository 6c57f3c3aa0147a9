"""The sum over several workers, over real sockets."""

import asyncio
import contextlib
import io
import socket
import time

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.app import Gateway
from gateway.config import Config, Upstream
from gateway.telemetry.metrics import Instruments
from gaugeway.processes.worker_metrics import WorkerMetrics, WorkersTotal, families_of, framed, next_frame
from gaugeway.runtime.tasks import spawn

pytestmark = pytest.mark.anyio


class Worker:
    """One worker's registry, connected to the supervisor's total."""

    def __init__(self, total):
        ours, theirs = socket.socketpair()
        self.registry = CollectorRegistry()
        self.instruments = Instruments(self.registry, version="1")
        self.metrics = WorkerMetrics(theirs, self.registry, self.instruments.modes)
        self.following = spawn(total.follow(ours), name="following")

    async def value(self, name, **labels):
        """What a scrape of this worker shows."""
        shown = CollectorRegistry()
        shown.register(await self.metrics.total())
        return shown.get_sample_value(name, labels)


@contextlib.asynccontextmanager
async def workers(count):
    total = WorkersTotal()
    started = [Worker(total) for _ in range(count)]
    for one in started:
        await one.metrics.start()
    try:
        yield total, started
    finally:
        for one in started:
            await one.metrics.aclose()
            await one.following


async def test_any_worker_shows_the_sum_of_all():
    async with workers(3) as (_, started):
        for number, one in enumerate(started):
            one.instruments.reloaded("applied")
            one.instruments.capture_seconds(0.001 * (number + 1))
        for one in started:
            assert await one.value("gaugeway_config_reloads_total", result="applied") == 3
            assert await one.value("gaugeway_overhead_seconds_count", stage="capture") == 3
            assert await one.value("gaugeway_overhead_seconds_bucket", stage="capture", le="0.0025") == 2


async def test_gauges_are_summed_or_the_lowest_counts_and_the_version_is_shown_once():
    async with workers(2) as (_, (one, other)):
        one.instruments.waiting.set(3)
        other.instruments.waiting.set(4)
        one.instruments.capture_factor.set(0.5)
        assert await one.value("gaugeway_handoff_waiting") == 7
        assert await other.value("gaugeway_capture_factor") == 0.5
        assert await one.value("gaugeway_build_info", version="1") == 1


async def test_what_a_worker_counted_stays_when_it_ends_and_its_gauges_go():
    async with workers(2) as (total, (one, other)):
        for worker in (one, other):
            worker.instruments.reloaded("applied")
            worker.instruments.waiting.set(5)
        await one.metrics.aclose()
        await one.following
        next_one = Worker(total)
        await next_one.metrics.start()
        next_one.instruments.reloaded("applied")
        assert await other.value("gaugeway_config_reloads_total", result="applied") == 3
        assert await other.value("gaugeway_handoff_waiting") == 5
        await next_one.metrics.aclose()


async def test_a_worker_that_does_not_answer_counts_with_its_last_report(monkeypatch):
    monkeypatch.setattr("gaugeway.processes.worker_metrics.POLL_S", 0.5)
    async with workers(2) as (_, (one, other)):
        other.instruments.reloaded("applied")
        assert await one.value("gaugeway_config_reloads_total", result="applied") == 1

        async def silent(_):
            return 0.0

        monkeypatch.setattr(other.metrics, "_report", silent)
        other.instruments.reloaded("applied")
        assert await one.value("gaugeway_config_reloads_total", result="applied") == 1


async def test_reports_stay_frequent_on_a_machine_that_is_too_busy_to_gather_them_soon(monkeypatch):
    loop, enough, gathered = asyncio.get_running_loop(), asyncio.Event(), []

    def slowly(registry, modes):
        gathered.append(registry)
        if len(gathered) == 3:
            loop.call_soon_threadsafe(enough.set)
        time.sleep(0.5)  # without using the processor
        return families_of(registry, modes)

    monkeypatch.setattr("gaugeway.processes.worker_metrics.REPORT_S", 0.01)
    monkeypatch.setattr("gaugeway.processes.worker_metrics.families_of", slowly)
    async with workers(1), asyncio.timeout(20):
        await enough.wait()


async def test_many_scrapes_at_once_are_all_answered():
    async with workers(2) as (_, started):
        started[0].instruments.reloaded("applied")
        asked = [one.value("gaugeway_config_reloads_total", result="applied") for one in started * 20]
        assert set(await asyncio.gather(*asked)) == {1.0}


async def test_the_text_is_the_same_as_of_one_process():
    async with workers(1) as (_, (one,)):
        one.instruments.outcome("shop", "captured")
        one.instruments.capture_seconds(0.001)
        assert generate_latest(await one.metrics.total()) == generate_latest(one.registry)


async def test_without_the_supervisor_the_admin_port_answers_503():
    end, other = socket.socketpair()
    config = Config(upstreams=(Upstream(base_url="http://127.0.0.1:9/v1"),))
    async with contextlib.aclosing(Gateway(config, queue=MemoryQueue(), metrics_socket=end)) as gateway:
        await gateway.start()
        other.close()
        transport = httpx.ASGITransport(gateway.admin)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/metrics")
        assert answer.status_code == 503


async def test_a_report_beyond_the_bound_ends_the_connection(monkeypatch):
    monkeypatch.setattr("gaugeway.processes.worker_metrics.MAX_REPORT_BYTES", 1000)
    async with workers(1) as (_, (one,)):
        with pytest.raises(ConnectionError):
            await one.metrics.total()


def test_frames_are_read_one_after_the_other():
    read = io.BytesIO(framed({"a": 1}) + framed([])).read
    assert [msgspec.msgpack.decode(next_frame(read)) for _ in range(2)] == [{"a": 1}, []]
    assert next_frame(read) is None


def test_an_input_that_breaks_off_holds_no_frame():
    whole = framed({"a": 1})
    assert {next_frame(io.BytesIO(whole[:cut]).read) for cut in range(len(whole))} == {None}
