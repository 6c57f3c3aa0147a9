"""Many processes on one PostgreSQL: whoever dies, engine or leader, nothing is lost and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import pytest

from gaugeway.storage.engines.postgres.queue import PostgresQueue
from tests.gateway.handoff.test_buffer import Bench, one, wait_for
from tests.integration.test_faults import CONFIG, Traffic, scored, sent
from tests.support.postgres import own_server, postgres
from tests.support.product import Product, product
from tests.support.scripted_model import Model, serve

TICK_S = 1.0
ENGINES = """
[queue]
url = "{url}"
lease_s = 5

[store]
url = "{url}"

[monitors]
join_window_s = 0

[alerts]
bucket_s = {bucket_s}
"""


@pytest.fixture
def server():
    own = own_server()
    try:
        yield own
    finally:
        own.destroy()


def test_a_crash_of_the_engine_under_load_loses_nothing_and_doubles_nothing(server, tmp_path):
    url = server.database()
    with serve(Model()) as upstream:
        config = CONFIG.format(upstream=upstream, judge=upstream) + ENGINES.format(url=url, bucket_s=60)
        with product(tmp_path, config) as running:
            with Traffic(running.base_url, per_s=20) as traffic:
                running.until(lambda: scored(running) >= 5, 60, what="the first samples are scored")
                server.stop(signal.SIGQUIT)
                running.until(
                    lambda: running.value(running.admin, "gaugeway_handoff_errors_total") >= 1, 60, what="it is counted"
                )
                time.sleep(1)
                server.start()
                before = scored(running)
                running.until(lambda: scored(running) >= before + 5, 60, what="it goes on")
            assert traffic.unharmed
            assert max(traffic.seconds) < 1.5
            count = len(traffic.statuses)
            running.until(lambda: sent(running, traffic), 60, what="every exchange has its outcome")
            assert running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == count

            def stored(table="evaluations WHERE metric = 'faithfulness'"):
                return server.ask(url, f"SELECT count(*) FROM {table}")[0][0]

            running.until(lambda: stored() == count, 60, what=f"{count} evaluations are stored")
            assert stored("samples") == count
            running.until(lambda: stored("waiting") == 0, 60, what="nothing waits")
            assert stored("dead") == 0
        log = running.log.read_text()
        assert "secret" not in log, "the password of the URL"


def test_a_leader_killed_with_9_is_followed_within_two_ticks(tmp_path):
    url = postgres().database()
    config = ENGINES.format(url=url, bucket_s=4 * TICK_S)

    def holder():
        found = postgres().ask(url, "SELECT holder, term FROM terms")
        return (int(found[0][0].rpartition(":")[2]), found[0][1]) if found else (None, 0)

    directories = [tmp_path / name for name in ("one", "two")]
    for directory in directories:
        directory.mkdir()
    replicas = [Product(directory, config, command="monitors") for directory in directories]
    with contextlib.ExitStack() as stack:
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        replicas[0].until(lambda: holder()[0], 60, what="somebody leads")
        pid, term = holder()
        (other,) = (replica for replica in replicas if replica.pid != pid)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        other.until(lambda: holder()[1] == term + 1, 60, what="the other one leads")
        assert time.monotonic() - killed < 2 * TICK_S
        assert holder()[0] == other.pid


def test_while_the_engine_is_down_the_gateway_holds_what_it_may_and_counts_the_rest(server):
    url = server.database()
    server.stop(signal.SIGQUIT)

    async def scenario():
        queue = PostgresQueue(url, 60.0, 3)
        bench = Bench(queue, max_items=10)
        bench.handoff.start()
        for number in range(10):
            bench.handoff.offer(one(number))
        await wait_for(lambda: len(bench.handoff._samples) == 10)  # noqa: SLF001 - no metric says that all are in memory
        for number in range(10, 15):
            bench.handoff.offer(one(number))
        await wait_for(lambda: bench.outcomes().get("overflow") == 5)
        assert bench.outcomes() == {"overflow": 5}
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):
            while bench.outcomes().get("captured") != 10:  # noqa: ASYNC110 - counters have no event to wait for
                await asyncio.sleep(0.05)
        assert (await queue.depth()).ready == 10
        await bench.handoff.aclose()
        await queue.aclose()

    asyncio.run(scenario())
