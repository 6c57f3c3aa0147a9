"""What `gaugeway serve` costs at a steady rate: CPU of each process, everything captured and scored without a judge.

    python benchmarks/scaling/steady.py [--rate 100] [--seconds 60] [--rounds 3]

Requests carry four passages, 8 KB in all, from a pool of 200, and get an answer of 300 words (answering.py), in turn
plain and streamed in 20 pieces. Printed is the CPU time of each process in per cent of one core, after ten seconds of
warm-up, until everything sent in that time is scored. Client and model are a process of their own and not counted.
Loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "gateway")]

from answering import bodies, model, request  # noqa: E402
from machine import cpu_by_process, free_port, tree  # noqa: E402

from tests.support.traffic import Line, Sent  # noqa: E402

WARM_UP_S, CONNECTIONS = 10.0, 200


@contextlib.contextmanager
def serving(upstream: int, directory: Path) -> Iterator[tuple[int, int, int]]:
    """Run `gaugeway serve`; yield its process id, the gateway's port and that of the monitors."""
    ports = [free_port() for _ in range(3)]
    names = ("--port", "--admin-port", "--monitors-port")
    where = [word for name, port in zip(names, ports, strict=True) for word in (name, str(port))]
    command = [sys.executable, "-m", "gaugeway", "serve", "--upstream", f"http://127.0.0.1:{upstream}/v1", *where]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--data-dir", str(directory)], cwd=ROOT, stdout=log, stderr=log)
    try:
        for url in (f"http://127.0.0.1:{ports[0]}/readyz", f"http://127.0.0.1:{ports[2]}/healthz"):
            while not _answers(url):
                time.sleep(0.1)
        yield process.pid, ports[0], ports[2]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def scored(port: int) -> int:
    """How many answers the monitors have scored."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("gaugeway_evaluations_total{") and "lexical" in line]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in counts))


async def send(port: int, rate: float, seconds: float, requests: list[bytes], sent: Sent) -> None:
    """Send requests evenly. Raises RuntimeError when the answers do not keep up."""
    free = [Line(port) for _ in range(CONNECTIONS)]

    async def one(line: Line, request: bytes) -> None:
        await line.ask(request, sent)
        free.append(line)

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            if not free:
                raise RuntimeError(f"{CONNECTIONS} requests at once are not enough for {rate:g} a second")
            group.create_task(one(free.pop(), requests[number % len(requests)]))
    for line in free:
        line.close()


async def measure(rate: float, seconds: float) -> dict[str, float]:
    """One run: the share of a core that each process took."""
    requests = [request(body) for body in bodies(4000)]
    upstream, sent = free_port(), Sent()
    server = await model(upstream)
    with tempfile.TemporaryDirectory(prefix="gaugeway-steady-") as directory, serving(upstream, Path(directory)) as run:
        pid, port, monitors = run
        await send(port, rate, WARM_UP_S, requests, sent)
        await _all_scored(monitors, sent)
        before, began = cpu_by_process(tree(pid)), time.monotonic()
        await send(port, rate, seconds, requests, sent)
        await _all_scored(monitors, sent)
        taken, elapsed = cpu_by_process(tree(pid)), time.monotonic() - began
        if not sent.unharmed:
            raise RuntimeError("a request failed")
    server.close()
    return {name: (used - before.get(name, 0)) / 1e7 / elapsed for name, used in taken.items()}


async def _all_scored(monitors: int, sent: Sent) -> None:
    async with asyncio.timeout(120):
        while await asyncio.to_thread(scored, monitors) < sent.count:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds = [asyncio.run(measure(arguments.rate, arguments.seconds)) for _ in range(arguments.rounds)]
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; medians of {len(rounds)}\n"
    )
    print("| process | per cent of a core |\n|---|--:|")
    table: dict[str, list[float]] = {}
    for one in rounds:
        for name, share in one.items():
            table.setdefault(name.partition(" ")[2], []).append(share)
    for name, shares in table.items():
        print(f"| {name} | {statistics.median(shares):.1f} |")
    print(f"| all | {statistics.median(sum(one.values()) for one in rounds):.1f} |")


if __name__ == "__main__":
    main()
