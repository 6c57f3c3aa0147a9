"""`[monitors] workers`: several processes score for one monitors process, and one of them may be killed."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from monitors.analysis.capture_coverage import PREFIX
from monitors.scoring_workers import NICENESS
from tests.support.fleet import CONFIG, Fleet, evaluated, states, wait_until
from tests.support.in_thread import in_thread
from tests.support.processes import arguments, children
from tests.support.product import product
from tests.support.scenario import Script
from tests.support.traffic import Sent, request_of, send

RATES = {"capture": 1.0, "faithfulness": 0.5, "relevancy": 0.3}
COUNT = 400
TITLE = b"gaugeway: scoring worker"


def processes(pid):
    """The scoring processes among the children of a monitors process."""
    return [one for one in children(pid) if TITLE in arguments(one)]


@pytest.fixture
def run(tmp_path):
    """One gateway and monitors with so many workers on SQLite; `run(workers)` returns the fleet and its store's URL."""
    with contextlib.ExitStack() as stack:
        script = Script()
        script.means["shop"] = 0.8

        def start(workers):
            directory = tmp_path / str(workers)
            url = stack.enter_context(in_thread(script))
            store = f"sqlite:///{directory}/store.db"
            values = {"url": url, "queue": f"sqlite:///{directory}/queue.db", "store": store, **RATES}
            config = CONFIG.format(**values) + f"workers = {workers}\n"
            return stack.enter_context(Fleet(directory, config)), store

        yield start


def test_several_processes_score_what_one_scores_and_are_counted_together(run):
    rows = {}
    for workers in (1, 3):
        fleet, store = run(workers)
        monitors = fleet.monitors[0]
        wait_until(lambda monitors=monitors, workers=workers: len(processes(monitors.pid)) == workers - 1, 20)
        sent = Sent()
        asyncio.run(send(fleet.ports, [request_of(number) for number in range(COUNT)], sent))
        assert sent.unharmed
        fleet.settle(COUNT)
        rows[workers] = evaluated(store)
        assert fleet.reach(len(rows[workers]), "evaluations_total") == len(rows[workers])
        assert fleet.reach(0, "queue_depth") == 0
        page = httpx.get(f"{monitors.monitors}/pipeline", timeout=60).text
        assert f"{COUNT}" in page
        scorers = processes(monitors.pid)
        assert monitors.stop() == 0
        assert not any(Path(f"/proc/{one}").exists() for one in scorers)
        replicas = [key for key in states(store) if key.startswith(PREFIX)]
        assert len(replicas) == workers, "each process has stored samples"
    assert rows[1] == rows[3]


def test_a_killed_worker_loses_no_sample_and_is_started_again(run):
    fleet, store = run(2)
    pid = fleet.monitors[0].pid
    wait_until(lambda: processes(pid), 20)
    sent = Sent()
    asyncio.run(send(fleet.ports, [request_of(number) for number in range(COUNT)], sent))
    (first,) = processes(pid)
    os.kill(first, signal.SIGKILL)
    fleet.settle(COUNT)
    rows = evaluated(store)
    assert len({trace for trace, *_ in rows}) == COUNT
    assert len(rows) == len(set(rows))
    wait_until(lambda: processes(pid) and processes(pid) != [first], 20)


def test_beside_a_gateway_all_processes_that_score_have_one_priority(tmp_path):
    text = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n[monitors]\nworkers = 2\n'
    with product(tmp_path, text) as running:
        first, usual = running.pid_of("monitors"), os.nice(0)
        running.until(lambda: bool(processes(first)), 20, what="the second process runs")

        def priorities():
            return {os.getpriority(os.PRIO_PROCESS, one) - usual for one in (first, *processes(first))}

        running.until(lambda: priorities() == {NICENESS}, 20, what="both have given way")
        (second,) = processes(first)
        os.kill(second, signal.SIGKILL)
        running.until(lambda: processes(first) not in ([], [second]), 20, what="it is started again")
        running.until(lambda: priorities() == {NICENESS}, 20, what="the new one has given way as far")


def test_workers_end_with_their_monitors_even_if_these_are_killed(run):
    fleet, _ = run(2)
    pid = fleet.monitors[0].pid
    wait_until(lambda: processes(pid), 20)
    (scorer,) = processes(pid)
    fleet.kill(pid)
    wait_until(lambda: not Path(f"/proc/{scorer}").exists(), 20)
