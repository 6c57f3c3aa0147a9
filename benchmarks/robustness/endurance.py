"""A million requests in a closed loop: what the gateway keeps of them in memory, descriptors and counters.

    python benchmarks/robustness/endurance.py --requests 1000000

One request in five asks for a stream. RSS after the warm-up (a tenth of the requests, at least 20,000) and at the end
may differ by 5 %; descriptors may not differ by more than the clients' connections; the gateway must have counted
exactly the requests that were sent. Exit status 1 otherwise. Everything is captured; a consumer empties the queue.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request

import uvloop
from stand import ROOT, Stand

UPSTREAM = ROOT / "benchmarks" / "gateway" / "upstream.py"
CHUNKS = 20
WORDS = "the refund is paid within fourteen days of the goods being received " * 20


def request_of(number: int) -> bytes:
    """A chat completion with a prompt of its own, so that nothing is shared between requests."""
    body = json.dumps(
        {
            "model": f"model-{number % 7}",
            "stream": number % 5 == 0,
            "messages": [{"role": "system", "content": WORDS}, {"role": "user", "content": f"question {number}"}],
        }
    ).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer key-%d\r\nContent-Length: %d\r\n\r\n%b" % (number % 1000, len(body), body)
    )


class Client(asyncio.Protocol):
    """One keep-alive connection in a closed loop."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held = b""
        self.done = run.loop.create_future()

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        number = self._run.next()
        if number is None:
            self._transport.close()
            return
        self._held = b""
        self._transport.write(request_of(number))

    def data_received(self, data: bytes) -> None:
        held = self._held = self._held + data
        end = held.find(b"\r\n\r\n")
        if end < 0:
            return
        where = held.find(b"\r\ncontent-length: ", 0, end + 2)
        if where >= 0:
            if len(held) < end + 4 + int(held[where + 18 : held.find(b"\r\n", where + 2)]):
                return
        elif not held.endswith(b"\r\n0\r\n\r\n"):
            return
        self._run.answered(held.startswith(b"HTTP/1.1 200"))
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(error)


class Run:
    """All connections together, and what is looked at on the way."""

    def __init__(self, stand: Stand, requests: int, warm: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._stand = stand
        self.requests = requests
        self.sent = self.ok = self.failed = 0
        self.samples: list[tuple[int, float, int]] = []
        self._due = warm

    def next(self) -> int | None:
        if self.sent >= self.requests:
            return None
        self.sent += 1
        return self.sent

    def answered(self, fine: bool) -> None:  # noqa: FBT001 - a callback
        self.ok += fine
        self.failed += not fine
        if self.ok + self.failed == self._due:
            self.look()
            self._due += max(1, (self.requests - self.samples[0][0]) // 10)

    def look(self) -> None:
        self.samples.append((self.ok + self.failed, self._stand.rss_mib(), self._stand.descriptors()))
        requests, rss, descriptors = self.samples[-1]
        print(f"{requests:9} requests: RSS {rss:6.1f} MiB, {descriptors} descriptors", flush=True)


async def go(stand: Stand, requests: int, warm: int, concurrency: int) -> Run:
    run = Run(stand, requests, warm)
    clients = [Client(run) for _ in range(concurrency)]
    for client in clients:
        await run.loop.create_connection(lambda client=client: client, "127.0.0.1", stand.port)
    await asyncio.gather(*(client.done for client in clients))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--concurrency", type=int, default=32)
    options = parser.parse_args()
    warm = min(options.requests // 2, max(20_000, options.requests // 10))
    with Stand([str(UPSTREAM)]) as stand:
        setting = urllib.request.Request(
            f"http://127.0.0.1:{stand.upstream_port}/_set", json.dumps({"chunks": CHUNKS}).encode(), method="POST"
        )
        urllib.request.urlopen(setting, timeout=5).close()
        began = time.monotonic()
        run = uvloop.run(go(stand, options.requests, warm, options.concurrency))
        took = time.monotonic() - began
        counted = stand.settled("gaugeway_requests_total", run.sent)
        exchanges = stand.settled("gaugeway_exchanges_total", run.sent)
        outcomes = stand.by("gaugeway_exchanges_total", "outcome")
        run.look()
        complaints = stand.complaints()
    (_, first, first_fds), *_, (_, last, last_fds) = run.samples
    print(f"{run.sent} requests in {took:.0f} s ({run.sent / took:.0f}/s), {run.ok} answered 200, {run.failed} not")
    print(f"RSS {first:.1f} -> {last:.1f} MiB ({last / first - 1:+.1%}); descriptors {first_fds} -> {last_fds}")
    print(f"counted: {counted} requests, {exchanges} exchanges {outcomes}")
    for line in complaints[:5]:
        print("  logged:", line[:160])
    fine = abs(last / first - 1) <= 0.05 and last_fds <= first_fds and run.failed == 0
    fine = fine and counted == exchanges == run.sent
    print("FLAT" if fine else "WRONG")
    sys.exit(not fine)


if __name__ == "__main__":
    main()
