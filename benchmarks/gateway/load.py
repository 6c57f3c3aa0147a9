"""The load client: what one contender does under sequential, closed-loop and streaming load.

Blocking sockets where one request is timed at a time, raw `asyncio.Protocol`s on uvloop elsewhere. The client parses no
more than it needs: status, end of the message, and the stamps that the upstream put into its chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

STAMP = re.compile(rb"@(\d{16})@")
PASSAGE = (
    "Refund policy, section {n}. Goods may be returned within thirty days of delivery in their original packaging. "
    "The refund is paid within fourteen days of the goods being received, to the means of payment that was used for "
    "the order. Opened software, perishable goods and items made to measure are excluded. For bulky items a collection "
    "can be arranged; its cost is carried by the buyer unless the item was faulty. A restocking fee of ten percent "
    "applies to special orders. Warranty claims are handled apart from returns and do not need the original packaging."
)
BODY_BYTES = 8192
GRACE_S = 1.5  # after the time is up, for requests under way: no part of the rate, but of the CPU per request
LAST_CHUNK = b"\r\n0\r\n\r\n"


def prompt() -> str:
    """LangChain's default question-answering prompt with retrieved passages, 8 KB as a request body."""
    head = "Use the following pieces of context to answer the question at the end. If you don't know, say so.\n\n"
    passages = "\n\n".join(PASSAGE.format(n=n) for n in range(1, 40))
    tail = "\n\nQuestion: When is a refund paid, and to which account?\nHelpful Answer:"
    return head + passages[: BODY_BYTES - len(head) - len(tail) - 120] + tail


@dataclass(frozen=True)
class Target:
    """Where requests go, in which form."""

    port: int
    path: str
    model: str
    key: str
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, *, stream: bool) -> bytes:
        """The bytes of one request, with the headers an OpenAI client of 2026 sends."""
        body: dict[str, object] = {"messages": [{"role": "user", "content": prompt()}], "model": self.model}
        body |= {"stream": True} if stream else {"temperature": 0.2}
        encoded = json.dumps(body, separators=(",", ":")).encode()
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "Accept-Encoding": "gzip, deflate",
            "Connection": "keep-alive",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "AsyncOpenAI/Python 3.52.0",
            "X-Stainless-Lang": "python",
            "X-Stainless-Package-Version": "3.52.0",
            "X-Stainless-OS": "Linux",
            "X-Stainless-Arch": "x64",
            "X-Stainless-Runtime": "CPython",
            "X-Stainless-Runtime-Version": "3.11.7",
            "X-Stainless-Async": "async:asyncio",
            "x-stainless-retry-count": "0",
            "x-stainless-read-timeout": "600",
            "Authorization": f"Bearer {self.key}",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            **self.headers,
            "Content-Length": str(len(encoded)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + encoded


def is_complete(data: bytes) -> bool:
    """Whether these bytes, read from the start of a response, hold all of it."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = data[:end].lower()
    where = head.find(b"\r\ncontent-length:")
    if where < 0:
        return data.endswith(LAST_CHUNK)
    return len(data) >= end + 4 + int(head[where + 17 :].split(b"\r", 1)[0])


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


def control(port: int, **settings: float) -> None:
    """Tell the upstream how to answer from here on."""
    body = json.dumps(settings).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"POST /_set HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        connection.recv(4096)


def sequential(target: Target, count: int, limit_s: float, warm_up: int) -> dict[str, float]:
    """One request at a time on one connection: microseconds from the first byte sent to the last one read."""
    request = target.request(stream=False)
    times: list[float] = []
    with _connect(target.port) as connection:
        deadline = time.perf_counter() + limit_s
        for index in range(count + warm_up):
            begun = time.perf_counter_ns()
            connection.sendall(request)
            data = connection.recv(262_144)
            while not is_complete(data):
                more = connection.recv(262_144)
                if not more:
                    raise ConnectionError(f"closed in the middle of a response: {data[:200]!r}")
                data += more
            if index >= warm_up:
                times.append((time.perf_counter_ns() - begun) / 1000)
            if data[9:12] != b"200":
                raise ConnectionError(f"unexpected answer: {data[:300]!r}")
            if time.perf_counter() > deadline and len(times) >= 20:
                break
    return {"p50_us": quantile(times, 0.5), "p99_us": quantile(times, 0.99), "units": len(times)}


def single_streams(target: Target, count: int, limit_s: float) -> dict[str, float]:
    """One stream at a time: time to the first chunk, how late each chunk is, how far gaps differ from those sent."""
    request = target.request(stream=True)
    first: list[float] = []
    lags: list[float] = []
    errors: list[float] = []
    deadline = time.perf_counter() + limit_s
    with _connect(target.port) as connection:
        for index in range(count + 1):
            begun = time.monotonic_ns()
            connection.sendall(request)
            seen = _stamps(connection)
            if not seen:
                raise ConnectionError("no chunk carried a stamp")
            if index:  # the first stream warms up
                first.append((seen[0][0] - begun) / 1000)
                lags += [(arrived - sent) / 1000 for arrived, sent in seen]
                errors += [abs((b[0] - a[0]) - (b[1] - a[1])) / 1000 for a, b in itertools.pairwise(seen)]
            if time.perf_counter() > deadline and first:
                break
    return {
        "first_p50_us": quantile(first, 0.5),
        "lag_p50_us": quantile(lags, 0.5),
        "lag_p99_us": quantile(lags, 0.99),
        "gap_error_p99_us": quantile(errors, 0.99),
        "units": len(lags),
    }


def _stamps(connection: socket.socket) -> list[tuple[int, int]]:
    """Read one streamed response; (arrived, sent) of every chunk in ns."""
    data, position = b"", 0
    seen: list[tuple[int, int]] = []
    while not is_complete(data):
        more = connection.recv(262_144)
        now = time.monotonic_ns()
        if not more:
            break
        data += more
        for match in STAMP.finditer(data, position):
            seen.append((now, _unwrap(int(match[1]), now)))
            position = match.end()
    return seen


def _unwrap(stamp: int, now: int) -> int:
    return now - now % 10**16 + stamp


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Tally:
    """What all connections of one run saw."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.first: list[float] = []
        self.lags: list[float] = []
        self.chunks = 0
        self.bad: list[str] = []
        self.open = True
        self.budget: int | None = None
        self.in_time = (0, 0)


class Client(asyncio.Protocol):
    """A connection that sends its next request when the last one is answered, until the tally closes."""

    def __init__(self, request: bytes, tally: Tally, ended: Callable[[], None], *, stream: bool) -> None:
        self._request, self._tally, self._ended, self._stream = request, tally, ended, stream
        self._data = b""
        self._tail = b""

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        tally = self._tally
        if not tally.open or tally.budget == 0:
            self._transport.close()
            return
        if tally.budget is not None:
            tally.budget -= 1
        self._data = self._tail = b""
        self._head_seen = False
        self._begun = time.monotonic_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._stream:
            self._chunks(data)
            return
        if self._data:
            data = self._data + data
        if not is_complete(data):
            self._data = data
            return
        self._tally.times.append((time.monotonic_ns() - self._begun) / 1000)
        if data[9:12] != b"200":
            self._tally.bad.append(repr(data[:200]))
        self._send()

    def _chunks(self, data: bytes) -> None:
        """Count stamps; look at the last one of each read, which is enough for the lag and much cheaper."""
        now = time.monotonic_ns()
        tally = self._tally
        if not self._head_seen:
            if b"HTTP/1.1 200" not in data[:16]:
                tally.bad.append(repr(data[:200]))
            self._head_seen = True
        data = self._tail + data
        found = list(STAMP.finditer(data))
        if found:
            if not self._data:
                self._data = b"seen"
                tally.first.append((now - self._begun) / 1000)
            tally.chunks += len(found)
            tally.lags.append((now - _unwrap(int(found[-1][1]), now)) / 1000)
            data = data[found[-1].end() :]
        if data.endswith(LAST_CHUNK):
            tally.times.append((now - self._begun) / 1000)
            self._send()
            return
        self._tail = data[-400:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tally.open and self._tally.budget != 0:
            self._tally.bad.append(f"connection closed: {exc!r}")
        self._ended()


async def _run(
    target: Target, connections: int, seconds: float, *, stream: bool, streams_each: int | None = None
) -> tuple[Tally, float]:
    loop = asyncio.get_running_loop()
    tally = Tally()
    tally.budget = connections * streams_each if streams_each else None
    done = asyncio.Event()
    left = connections

    def ended() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()

    request = target.request(stream=stream)
    begun = time.perf_counter()
    transports = []
    for _ in range(connections):
        transport, _protocol = await loop.create_connection(
            lambda: Client(request, tally, ended, stream=stream), "127.0.0.1", target.port
        )
        transports.append(transport)
    await _within(seconds, done)
    elapsed = time.perf_counter() - begun
    tally.open = False
    tally.in_time = len(tally.times), tally.chunks
    await _within(GRACE_S, done)
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0.05)
    return tally, elapsed


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def closed_loop(target: Target, connections: int, seconds: float) -> dict[str, float]:
    """`connections` requests in flight all the time."""
    tally, elapsed = await _run(target, connections, seconds, stream=False)
    return _checked(tally) | {
        "rps": tally.in_time[0] / elapsed,
        "p50_us": quantile(tally.times, 0.5),
        "p99_us": quantile(tally.times, 0.99),
        "units": len(tally.times),
    }


async def streams(target: Target, connections: int, seconds: float, each: int | None) -> dict[str, float]:
    """`connections` streams in flight: for `seconds`, or `each` per connection and `seconds` at most."""
    tally, elapsed = await _run(target, connections, seconds, stream=True, streams_each=each)
    return _checked(tally) | {
        "chunks_per_s": tally.in_time[1] / elapsed,
        "units": tally.chunks,
        "first_p50_us": quantile(tally.first, 0.5),
        "first_p99_us": quantile(tally.first, 0.99),
        "lag_p50_us": quantile(tally.lags, 0.5),
        "lag_p99_us": quantile(tally.lags, 0.99),
        "streams_done": len(tally.times),
    }


def _checked(tally: Tally) -> dict[str, float]:
    if tally.bad and len(tally.bad) > 0.01 * (len(tally.times) + 1):
        raise ConnectionError(f"{len(tally.bad)} bad answers of {len(tally.times)}, e.g. {tally.bad[0]}")
    return {"bad": len(tally.bad)}
