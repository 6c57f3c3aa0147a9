"""What traffic notices when something beside it is down or stalls: latencies with each fault, beside those without.

    python benchmarks/robustness/stalls.py [--seconds 8] [--rounds 3]

`gaugeway serve` with judge, queue, store and OpenTelemetry export, in front of an upstream that takes 20 ms; 16
connections in a closed loop. The faults take turns with a healthy run in every round; medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvloop

ROOT = Path(__file__).parents[2]
CONNECTIONS = 16
UPSTREAM_S = 0.02
BODY = (
    b'{"model":"m","messages":[{"role":"user","content":"How many moons has Mars?"}],'
    b'"gaugeway":{"contexts":["Mars has two moons, Phobos and Deimos."]}}'
)
ANSWER = b'{"id":"c","choices":[{"index":0,"finish_reason":"stop","message":{"content":"Mars has two moons."}}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
CONFIG = """
[gateway]
port = {port}
admin_port = {admin}
[monitors]
port = {monitors}
[[upstreams]]
base_url = "http://127.0.0.1:{upstream}/v1"
[judge]
base_url = "http://127.0.0.1:{stalled}/v1"
model = "judge"
timeout_s = 5
max_retries = 0
[telemetry]
otlp_endpoint = "http://127.0.0.1:{collector}"
"""
FAULTS = ("healthy", "queue locked", "monitors stopped", "collector stalls", "collector gone")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The upstream: any request, after a while."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            await asyncio.sleep(UPSTREAM_S)
            writer.write(REPLY)
    writer.close()


async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that takes everything and never answers."""
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
        while await reader.read(65536):
            pass
    writer.close()


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A collector that takes everything at once."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    writer.close()


async def client(port: int, until: float, seconds: list[float]) -> None:
    """One connection in a closed loop; notes how long each answer took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        begin = time.perf_counter()
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readexactly(len(ANSWER))
        seconds.append(time.perf_counter() - begin)
    writer.close()


@contextlib.contextmanager
def queue_locked(data: Path) -> Iterator[None]:
    """Hold the queue's file."""
    with contextlib.closing(sqlite3.connect(data / "queue.db", isolation_level=None, timeout=30)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield
        lock.execute("ROLLBACK")


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@contextlib.contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the monitors where they are."""
    (monitors,) = [pid for pid in _children(process) if b"monitors" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(monitors, signal.SIGSTOP)
    yield
    os.kill(monitors, signal.SIGCONT)


@contextlib.asynccontextmanager
async def product(ports: dict[str, int], folder: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run `gaugeway serve`."""
    config = Path(folder) / "gaugeway.toml"
    config.write_text(CONFIG.format(**ports))
    command = [sys.executable, "-m", "gaugeway", "serve", "--config", str(config), "--data-dir", folder]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - starts in no time
    try:
        for port in (ports["port"], ports["monitors"]):
            for _ in range(200):
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        yield process
    finally:
        children = _children(process)
        process.kill()  # an orderly end would wait for what was made to stall
        process.wait()
        for child in children:
            os.kill(child, signal.SIGKILL)


async def measure(fault: str, upstream: int, seconds_each: float) -> list[float]:
    """Run the product with one fault; the latencies in ms, sorted."""
    collector = await asyncio.start_server(stall if fault == "collector stalls" else accept, "127.0.0.1", 0)
    stalled = await asyncio.start_server(stall, "127.0.0.1", 0)
    first = random.randrange(21_000, 31_000)
    ports = {
        "port": first,
        "admin": first + 1,
        "monitors": first + 2,
        "upstream": upstream,
        "stalled": stalled.sockets[0].getsockname()[1],
        "collector": 9 if fault == "collector gone" else collector.sockets[0].getsockname()[1],
    }
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with product(ports, folder) as process:
            await asyncio.gather(*(client(first, time.perf_counter() + 2, []) for _ in range(CONNECTIONS)))
            with contextlib.ExitStack() as stack:
                if fault == "queue locked":
                    stack.enter_context(queue_locked(Path(folder)))
                elif fault == "monitors stopped":
                    stack.enter_context(stopped(process))
                until = time.perf_counter() + seconds_each
                await asyncio.gather(*(client(first, until, taken) for _ in range(CONNECTIONS)))
    collector.close()
    stalled.close()
    return sorted(second * 1e3 for second in taken)


async def main() -> None:
    """Take turns, print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=8.0)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    upstream = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    found: dict[str, list[tuple[int, float, float]]] = {fault: [] for fault in FAULTS}
    for turn in range(chosen.rounds):
        for fault in FAULTS if turn % 2 == 0 else FAULTS[::-1]:
            taken = await measure(fault, port, chosen.seconds)
            found[fault].append((len(taken), taken[len(taken) // 2], taken[int(len(taken) * 0.99)]))
    upstream.close()
    print("| | requests | p50 ms | p99 ms | p99 x healthy |\n|---|---:|---:|---:|---:|")
    healthy = statistics.median(p99 for _, _, p99 in found["healthy"])
    for fault, rows in found.items():
        p50, p99 = (statistics.median(row[index] for row in rows) for index in (1, 2))
        print(f"| {fault} | {sum(row[0] for row in rows)} | {p50:.2f} | {p99:.2f} | {p99 / healthy:.2f} |")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
