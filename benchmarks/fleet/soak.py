"""An hour or more of steady traffic through gateways and monitors: what grows, what does not, and whether it adds up.

    python benchmarks/fleet/soak.py --minutes 60 --find-maximum            # at half of the maximum it finds
    python benchmarks/fleet/soak.py --minutes 60 --rate 40 --engine postgres --gateways 2 --monitors 2
    python benchmarks/fleet/soak.py --minutes 60 --rate 330 --unjudged

Everything is captured, and judged by a judge that takes no time; with `--unjudged`, scored without one. Every 10 s:
memory, descriptors and threads of each process, depth and age of the queue, sizes of the write-ahead log and of the
store, how late a process's event loop answers, and the latency of requests. At the end a line is fitted to each after
the warm-up, everything sent must have been counted, captured, evaluated and stored once, and a minute after the traffic
each process must have as many descriptors as before it. What was seen is written every minute, and however the run
ends, to results/soak-ENGINE[-unjudged].{md,csv}. Exit status 1 when something is not flat or does not add up. Loopback
only.

The store grows with what it keeps: it is shown per exchange, and is not asked to be flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loads import load
from looking import Looks, descriptors
from report import Totals, written
from stands import engines

from benchmarks.faults.table import busy
from gaugeway.signals import SIGNALS
from tests.support.fleet import Fleet
from tests.support.traffic import Line, Sent

RESULTS = Path(__file__).parent / "results"
LOOK_S, SAVE_S, WARM_UP_S = 10.0, 60.0, 300.0
REST_S = 60.0
"""Longer than a gateway keeps an idle connection to the upstream."""
BACKLOG = 100
"""So many samples wait when the monitors do not keep up any more."""


class Traffic:
    """Sends so many requests a second, evenly, whatever the answers do; a late one is sent at once."""

    def __init__(self, ports: list[int], rate: float, first: int, request: Callable[[int], bytes]) -> None:
        self.sent = Sent()
        self.next = first
        self.behind_s = 0.0
        self._ports, self._rate, self._request = ports, rate, request
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the answers."""
        self._stop.set()
        self._thread.join()

    def latencies(self) -> list[float]:
        """Seconds of the requests answered since the last time."""
        taken, self.sent.seconds = self.sent.seconds, []
        return taken

    async def _run(self) -> None:
        free = [Line(port) for _ in range(32) for port in self._ports]
        places = asyncio.Semaphore(len(free))
        began, count = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                await asyncio.sleep(max(0.0, began + count / self._rate - time.monotonic()))
                await places.acquire()
                self.behind_s = time.monotonic() - began - count / self._rate
                group.create_task(self._one(free, places, self._request(self.next)))
                self.next += 1
                count += 1
        for line in free:
            line.close()

    async def _one(self, free: list[Line], places: asyncio.Semaphore, request: bytes) -> None:
        line = free.pop(0)
        try:
            await line.ask(request, self.sent)
        finally:
            free.append(line)
            places.release()


def maximum(
    fleet: Fleet, step_s: float, stopping: threading.Event, request: Callable[[int], bytes]
) -> tuple[float, list[Traffic]]:
    """Raise the rate by a quarter until what waits grows, less is judged or the client falls behind.

    Returns the last rate that held, and all that was sent.
    """
    rate, held, sent = 8.0, 0.0, []
    while not stopping.is_set():
        traffic = Traffic(fleet.ports, rate, sum(one.sent.count for one in sent), request)
        sent.append(traffic)
        traffic.start()
        stopping.wait(step_s)
        traffic.stop()
        backlog, judged = fleet.waiting(), fleet.counted("judge_pace_factor") / len(fleet.monitors)
        print(f"{rate:.1f}/s: {backlog} wait, {judged:.0%} judged, {traffic.behind_s:.2f} s behind", flush=True)
        fleet.settle(sum(one.sent.count for one in sent), within_s=600)
        if backlog > max(BACKLOG, rate * step_s / 10) or judged < 1.0 or traffic.behind_s > 1.0:
            break
        held, rate = rate, rate * 1.25
    return held, sent


def watch(
    looks: Looks, traffic: Traffic, minutes: float, stopping: threading.Event, save: Callable[[], object]
) -> None:
    """Look every 10 s (60 times at least), and save every minute, until the time is over."""
    saved = time.monotonic()
    until, look_s = saved + minutes * 60, min(LOOK_S, minutes)
    while not stopping.is_set() and (left := until - time.monotonic()) > 0:
        stopping.wait(min(look_s, left))
        looks.look(traffic.sent.count, traffic.latencies())
        if time.monotonic() - saved >= SAVE_S:
            saved = time.monotonic()
            save()


def rest(
    fleet: Fleet, sent: list[Traffic], stopping: threading.Event, request: Callable[[int], bytes]
) -> list[Traffic]:
    """Wait until all is done and idle connections are too old, then send a few requests, which close them."""
    count = sum(one.sent.count for one in sent)
    with contextlib.suppress(TimeoutError):
        fleet.settle(count, within_s=300)
    if stopping.wait(REST_S):
        return []
    last = Traffic(fleet.ports, 2.0 * len(fleet.ports), count, request)
    last.start()
    stopping.wait(1.0)
    last.stop()
    with contextlib.suppress(TimeoutError):
        fleet.settle(count + last.sent.count, within_s=60)
    return [last]


def soak(options: argparse.Namespace, stopping: threading.Event) -> bool:
    others = busy()
    with (
        tempfile.TemporaryDirectory(prefix="gaugeway-soak-", dir=options.scratch) as scratch,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(scratch)
        sending = stack.enter_context(load(judged=not options.unjudged))
        place = stack.enter_context(engines(options.engine, directory))
        config = sending.config.format(url=sending.url, queue=place.queue, store=place.store)
        fleet = stack.enter_context(Fleet(directory, config, gateways=options.gateways, monitors=options.monitors))
        before: list[Traffic] = []
        found, open_before = None, descriptors(fleet)
        if options.find_maximum:
            found, before = maximum(fleet, options.step, stopping, sending.request)
            options.rate = max(1.0, found / 2)
        traffic = Traffic(fleet.ports, options.rate, sum(one.sent.count for one in before), sending.request)
        looks = Looks(fleet, place)
        totals = Totals()

        def save() -> bool:
            warm_up_s = min(WARM_UP_S, options.minutes * 60 / 4)
            text, fine = written(
                options, looks.rows, totals, found, warm_up_s=warm_up_s, others=others, done=sending.said
            )
            options.out.mkdir(exist_ok=True)
            page(options).write_text(text, "utf-8")
            looks.write(page(options).with_suffix(".csv"))
            return fine

        try:
            traffic.start()
            watch(looks, traffic, options.minutes, stopping, save)
        finally:
            traffic.stop()
            every = [*before, traffic]
            every += rest(fleet, every, stopping, sending.request)
            sent = sum(one.sent.count for one in every)
            open_after = descriptors(fleet)
            totals = Totals(
                sent=sent,
                answered=sum(one.sent.statuses.get(200, 0) for one in every),
                requests=fleet.reach(sent, "requests_total"),
                exchanges=fleet.reach(sent, "exchanges_total"),
                outcomes={name: fleet.counted("exchanges_total", outcome=name) for name in OUTCOMES},
                samples=place.rows("samples"),
                evaluations=place.rows(f"evaluations WHERE metric NOT IN {tuple(SIGNALS)}"),  # some engines keep both
                counted=fleet.counted("evaluations_total"),
                waiting=fleet.waiting(),
                at_rest={} if stopping.is_set() else {name: (n, open_after[name]) for name, n in open_before.items()},
            )
            fine = save()
    return fine


def page(options: argparse.Namespace) -> Path:
    """Where the run is written to."""
    name = f"soak-{options.engine}{'-unjudged' if options.unjudged else ''}.md"
    return Path(options.out) / name


OUTCOMES = ("captured", "sampled_out", "back_pressure", "opted_out", "overflow", "too_large", "error")


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--minutes", type=float, default=60.0)
    asking.add_argument("--rate", type=float, default=20.0, help="requests a second")
    asking.add_argument("--find-maximum", action="store_true", help="take half of the highest rate that holds")
    asking.add_argument("--step", type=float, default=30.0, help="seconds for each rate that is tried")
    asking.add_argument("--engine", choices=("sqlite", "postgres", "redis"), default="sqlite")
    asking.add_argument("--unjudged", action="store_true", help="large exchanges, scored without a judge")
    asking.add_argument("--gateways", type=int, default=1)
    asking.add_argument("--monitors", type=int, default=1)
    asking.add_argument("--scratch", type=Path, default=None, help="where the engines' files go")
    asking.add_argument("--out", type=Path, default=RESULTS)
    options = asking.parse_args()
    if options.engine == "sqlite" and options.monitors > 1:
        asking.error("SQLite is for one monitors process")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    fine = soak(options, stopping)
    print(page(options).read_text("utf-8"))
    sys.exit(not fine)


if __name__ == "__main__":
    main()
