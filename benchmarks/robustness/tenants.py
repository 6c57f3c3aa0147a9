"""Tenants apart: many clients with keys of their own, many of which hang up at random moments.

    python benchmarks/robustness/tenants.py --requests 100000

Every request carries a nonce of its own in body, key and cookie; the upstream echoes it in whatever way chance
chooses: at once, late, streamed, large, cut off, with a second response that nobody asked for, or not at all. Counted
are responses with anything of another tenant's in them, requests at the upstream whose key or cookie is not their own,
whole responses that lack their nonce, and whether the gateway counted exactly the requests that were sent. Exit status
1 if any of it is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import random
import re
import socket
import struct
import sys
import time

import uvloop
from stand import Stand

NONCE = re.compile(rb"n-[0-9a-f]{16}")
FOREIGN = b"n-ffffffffffffffff"
TIMEOUT_S = 30


# --- the upstream ---


class Leaks:
    """What the upstream saw that it must never see."""

    requests = 0
    key = 0
    cookie = 0
    mixed = 0


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection."""
    dice = random.Random()
    # ValueError: the connection ended in a chunk's size; RuntimeError: uvloop's word for a write to a closed transport.
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ValueError, RuntimeError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await body_of(head.lower(), reader)
            if head.startswith(b"GET /v1/_leaks"):
                writer.write(plain(json.dumps({k: v for k, v in vars(Leaks).items() if k[0] != "_"}).encode()))
                continue
            nonce = check(head, body)
            if not await answer(dice, nonce, writer):
                break
            await writer.drain()
    writer.close()


async def body_of(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if found := re.search(rb"content-length: (\d+)", head):
        return await reader.readexactly(int(found[1]))
    body = b""
    while b"transfer-encoding: chunked" in head:
        data = await reader.readexactly(int(await reader.readline(), 16) + 2)
        if data == b"\r\n":
            break
        body += data[:-2]
    return body


def check(head: bytes, body: bytes) -> bytes:
    nonces = set(NONCE.findall(body))
    nonce = nonces.pop() if nonces else b"none"
    Leaks.requests += 1
    Leaks.mixed += bool(nonces)
    Leaks.key += re.search(rb"\r\nauthorization: ([^\r]*)\r\n", head, re.IGNORECASE)[1] != b"Bearer key-" + nonce
    Leaks.cookie += any(
        cookie != b"tenant=" + nonce for cookie in re.findall(rb"\r\ncookie: ([^\r]*)", head, re.IGNORECASE)
    )
    return nonce


def plain(body: bytes, *extra: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in extra)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    return head % (len(body), lines) + body


def completion(nonce: bytes, times: int = 1) -> bytes:
    message = b'{"role":"assistant","content":"%b"}' % (nonce * times)
    return b'{"id":"%b","choices":[{"message":%b,"finish_reason":"stop"}]}' % (nonce, message)


async def answer(dice: random.Random, nonce: bytes, writer: asyncio.StreamWriter) -> bool:
    """Answer in some way; whether the connection goes on."""
    kind = dice.random()
    cookie = b"Set-Cookie: tenant=" + nonce
    whole = plain(completion(nonce), cookie)
    if kind < 0.6:
        await asyncio.sleep(dice.random() * 0.02 if kind < 0.2 else 0)
        writer.write(whole)
    elif kind < 0.85:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n%b\r\n\r\n" % cookie
        )
        for _ in range(dice.randrange(3, 20)):
            event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % nonce
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(dice.random() * 0.003 if dice.random() < 0.5 else 0)
        writer.write(b"0\r\n\r\n")
    elif kind < 0.9:
        writer.write(plain(completion(nonce, 20_000), cookie))
    elif kind < 0.93:
        writer.write(whole[: dice.randrange(len(whole))])
        return False
    elif kind < 0.95:
        writer.write(plain(completion(nonce), cookie, b"Connection: close"))
        return False
    elif kind < 0.97:
        # The second one is nobody's. It comes with the first: later, when the next request is already on its way, no
        # client can tell that it is not the answer to that one.
        writer.write(whole + plain(completion(FOREIGN)))
    elif kind < 0.99:
        return False
    else:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: 1\r\n\r\n" + whole)
    return True


async def serve(port: int) -> None:
    server = await asyncio.start_server(upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


# --- the clients ---


class Tenant:
    """One client after the other on the same connection, as a browser or a pool would have it."""

    def __init__(self, port: int, seed: int, tally: collections.Counter) -> None:
        self.port = port
        self.dice = random.Random(seed)
        self.tally = tally
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def one(self) -> None:
        nonce = b"n-%016x" % self.dice.getrandbits(63)
        fate = self.dice.random()
        head, body = self.request(nonce)
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self.exchange(nonce, fate, head, body)
        except TimeoutError:
            self.tally["hung"] += 1
            self.leave()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.tally["cut off"] += 1
            self.leave()

    def request(self, nonce: bytes) -> tuple[bytes, bytes]:
        padding = b"x" * self.dice.choice((10, 200, 4000, 100_000 if self.dice.random() < 0.1 else 50))
        common = b"Host: g\r\nAuthorization: Bearer key-%b\r\nCookie: tenant=%b\r\n" % (nonce, nonce)
        if self.dice.random() < 0.15:
            body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(nonce), nonce, len(padding), padding)
            self.tally["uploads"] += 1
            return b"POST /v1/files HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % common, body
        body = b'{"model":"m","messages":[{"role":"user","content":"%b %b"}]}' % (nonce, padding)
        head = b"POST /v1/chat/completions HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % (common, len(body)), body

    async def exchange(self, nonce: bytes, fate: float, head: bytes, body: bytes) -> None:
        if fate < 0.03:  # hangs up in the head: that is no request yet
            self.writer.write(head[: self.dice.randrange(1, len(head) - 4)])
            await self.hang_up("in the head")
            return
        self.tally["sent"] += 1
        self.tally["completions sent"] += b"/chat/" in head
        if fate < 0.08:
            self.writer.write(head + body[: self.dice.randrange(len(body))])
            await self.hang_up("in the body")
            return
        self.writer.write(head + body)
        await self.writer.drain()
        if fate < 0.2:
            await asyncio.sleep(self.dice.random() * self.dice.choice((0.001, 0.02)))
            await self.hang_up("before the answer")
            return
        if fate < 0.4:
            data = await self.reader.read(self.dice.randrange(1, 2000))
            self.look(nonce, data)
            await self.hang_up("in the answer")
            return
        status, data, whole = await self.response()
        self.look(nonce, data)
        self.tally[f"status {status}"] += 1
        if whole and status == 200 and nonce not in data:
            self.tally["without their nonce"] += 1
        if not whole:
            self.leave()

    async def hang_up(self, when: str) -> None:
        self.tally[f"hung up {when}"] += 1
        if self.dice.random() < 0.3:  # with what was sent read by the other side, then a reset instead of a clean end
            await asyncio.sleep(0.002)
            raw = self.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.leave()

    def leave(self) -> None:
        self.writer.close()
        self.reader = self.writer = None

    def look(self, nonce: bytes, data: bytes) -> None:
        if any(found != nonce for found in NONCE.findall(data)):
            self.tally["FOREIGN"] += 1
            print("foreign:", nonce, data[:300], flush=True)

    async def response(self) -> tuple[int, bytes, bool]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head[9:12])
        body = b""
        try:
            body = await body_of(lowered, self.reader)
        except asyncio.IncompleteReadError as error:
            self.tally["cut off in the body"] += 1
            return status, head + error.partial, False
        return status, head + body, b"connection: close" not in lowered


async def clients(port: int, requests: int, concurrency: int, seed: int) -> collections.Counter:
    tally: collections.Counter = collections.Counter()
    left = requests

    async def work(number: int) -> None:
        nonlocal left
        tenant = Tenant(port, seed * 1000 + number, tally)
        while left > 0:
            left -= 1
            await tenant.one()
        if tenant.writer is not None:
            tenant.leave()

    await asyncio.gather(*(work(number) for number in range(concurrency)))
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", choices=("native", "httpx"), default="native", help="the gateway's upstream client")
    options = parser.parse_args()
    settings = f'read_timeout_s = 10\nupstream_client = "{options.client}"'
    with Stand([__file__, "upstream"], settings) as stand:
        began = time.monotonic()
        tally = uvloop.run(clients(stand.port, options.requests, options.concurrency, options.seed))
        took = time.monotonic() - began
        counted = stand.settled("gaugeway_requests_total", tally["sent"])
        endings = stand.by("gaugeway_requests_total", "ending")
        exchanges = stand.settled("gaugeway_exchanges_total", tally["completions sent"])
        outcomes = stand.by("gaugeway_exchanges_total", "outcome")
        leaks = json.loads(stand.get(stand.upstream_port, "/v1/_leaks"))
        complaints = collections.Counter(line[24:120] for line in stand.complaints())
        alive = stand.gateway.poll() is None
        descriptors = stand.descriptors()
    print(f"{options.requests} attempts in {took:.0f} s ({options.requests / took:.0f}/s)")
    for name, value in sorted(tally.items()):
        print(f"  {name}: {value}")
    print(f"counted by the gateway: {counted} of {tally['sent']} sent; endings {endings}")
    print(f"exchanges: {exchanges} of {tally['completions sent']} completions sent; outcomes {outcomes}")
    print(f"seen by the upstream: {leaks}")
    print(f"descriptors at the end: {descriptors}")
    for line, count in complaints.most_common(10):
        print(f"  logged {count}x {line}")
    bad = tally["FOREIGN"] + tally["without their nonce"] + tally["hung"]
    bad += (
        leaks["key"]
        + leaks["cookie"]
        + leaks["mixed"]
        + (counted != tally["sent"])
        + (exchanges != tally["completions sent"])
        + (not alive)
    )
    print("TENANTS APART" if not bad else "WRONG")
    sys.exit(bool(bad))


if __name__ == "__main__":
    if sys.argv[1:2] == ["upstream"]:
        uvloop.run(serve(int(sys.argv[2])))
    else:
        main()
