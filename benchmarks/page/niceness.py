"""What the monitors' niceness costs the traffic, and gives the page, on a machine whose cores are all busy.

sudo python benchmarks/page/niceness.py [--rounds 5] [--seconds 10] [--busy 4] [--in-flight 8] [--write]

`gaugeway serve` with everything captured and scored without a judge, loopback only. The niceness of its running
processes is changed between the measurements, which take turns within a round, so the machine's other load meets all
alike; lowering it needs root. With `workers = 2` the first process, which serves the page, has one niceness and the
second, which only scores, another. With `--write` the table goes to results/niceness.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.under_load import Traffic, busy_loops
from tests.support.in_thread import in_thread
from tests.support.processes import arguments, children
from tests.support.product import Product
from tests.support.scenario import Script

RESULTS = Path(__file__).parent / "results" / "niceness.md"
CONFIG = '[[upstreams]]\nbase_url = "{script}/app/v1"\n[monitors]\nworkers = {workers}\n'
ARMS = {1: ((10,), (5,), (0,)), 2: ((10, 10), (0, 10))}
SETTLE_S = 2.0


def renice(pid: int, niceness: int) -> None:
    """Give a process and its session this niceness, as `lower_priority` does."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness), "ascii")


class Probes:
    """Asks for `/healthz` of the monitors again and again: milliseconds of each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.took: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(120)

    def _run(self) -> None:
        with httpx.Client(timeout=120) as client:
            while not self._stopping.is_set():
                begin = time.perf_counter()
                client.get(self._url)
                self.took.append(1000 * (time.perf_counter() - begin))
                self._stopping.wait(0.2)


def measured(running: Product, asked: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Milliseconds of the requests through the gateway, and of the probes meanwhile."""
    traffic = [Traffic(running.base_url, 1000.0) for _ in range(asked.in_flight)]
    with Probes(f"{running.monitors}/healthz") as probes, contextlib.ExitStack() as stack:
        for client in traffic:
            stack.enter_context(client)
        time.sleep(asked.seconds)
    return [1000 * seconds for client in traffic for seconds in client.took], probes.took


def scorers(pid: int) -> list[int]:
    """The processes that only score, of a monitors process."""
    return [one for one in children(pid) if b"gaugeway: scoring worker" in arguments(one)]


def one_round(
    workers: int, number: int, asked: argparse.Namespace, found: dict[str, list[tuple[list[float], list[float]]]]
) -> None:
    """Measure every arm once, each round in another order."""
    arms = ARMS[workers]
    with tempfile.TemporaryDirectory() as directory, in_thread(Script()) as script:
        running = Product(Path(directory), CONFIG.format(script=script, workers=workers))
        try:
            running.start()
            first = running.pid_of("monitors")
            running.until(lambda: len(scorers(first)) == workers - 1, 60, what="all workers run")
            with busy_loops(asked.busy):
                for arm in (*arms[number % len(arms) :], *arms[: number % len(arms)]):
                    for pid, niceness in zip((first, *scorers(first)), arm, strict=True):
                        renice(pid, niceness)
                    time.sleep(SETTLE_S)
                    name = f"{arm[0]}" if workers == 1 else f"page {arm[0]}, second scoring process {arm[1]}"
                    found.setdefault(name, []).append(measured(running, asked))
                    print(number + 1, name, [round(statistics.median(one)) for one in found[name][-1]], file=sys.stderr)
        finally:
            running.stop()


def percentile(values: list[float], share: float) -> float:
    """The value that so many lie below."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spread(values: list[float]) -> str:
    """Median, lowest and highest of the rounds."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--rounds", type=int, default=5)
    asking.add_argument("--seconds", type=float, default=10.0)
    asking.add_argument("--busy", type=int, default=4)
    asking.add_argument("--in-flight", type=int, default=8)
    asking.add_argument("--write", action="store_true")
    asked = asking.parse_args()
    found: dict[str, list[tuple[list[float], list[float]]]] = {}
    for number in range(asked.rounds):
        for workers in ARMS:
            one_round(workers, number, asked, found)
    lines = [
        (
            "| niceness of the monitors | requests/s | gateway p50 ms | gateway p99 ms "
            "| `/healthz` p50 ms | `/healthz` max ms |"
        )
    ]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name, rounds in found.items():
        cells = [
            [len(sent) / asked.seconds for sent, _ in rounds],
            [statistics.median(sent) for sent, _ in rounds],
            [percentile(sent, 0.99) for sent, _ in rounds],
            [statistics.median(probes) for _, probes in rounds],
            [max(probes) for _, probes in rounds],
        ]
        lines.append(f"| {name} | " + " | ".join(map(spread, cells)) + " |")
    about = (
        f"{asked.in_flight} requests in flight, {asked.busy} busy loops each in a session of its own, {os.cpu_count()} "
        f"cores, load {os.getloadavg()[0]:.0f} at the end, {asked.rounds} rounds of {asked.seconds:g} s each in turn: "
        "median and range."
    )
    text = "\n".join(
        ["# Niceness of the monitors", "", f"`{' '.join(['python', *sys.argv])}`", "", about, "", *lines, ""]
    )
    print(text)
    if asked.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
