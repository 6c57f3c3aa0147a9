"""Raw HTTP/1.1 at both ends of a proxy: an upstream that records and obeys a script, a client that hides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

import peers
from upstream import REPLY, framed

Headers = list[tuple[str, bytes]]
MODELS = json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in peers.MODELS]}).encode()
TIMEOUT_S = 15.0
MARK = re.compile(rb"\[request (\d+)\]")


@dataclass
class Message:
    """A request or a response. `complete`: its end was there; bodies are without the transfer coding."""

    start: bytes
    headers: Headers
    body: bytes
    complete: bool
    size: int

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> bytes | None:
        found = self.all(name)
        return found[0] if found else None


@dataclass
class Received(Message):
    """A request at the upstream, and what became of the connection it came on."""

    transport: asyncio.Transport | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def method(self) -> str:
        return self.start.split(b" ")[0].decode()

    @property
    def target(self) -> bytes:
        return self.start.split(b" ")[1]

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


@dataclass
class Response(Message):
    """A response at the client; `reads` are (monotonic ns, bytes) as they came."""

    reads: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def status(self) -> int:
        words = self.start.split(b" ")
        return int(words[1]) if len(words) > 1 else 0


Script = Callable[[Received], Awaitable[None]]


def parse(data: bytes, *, response_to: str | None = None) -> Message | None:
    """The message at the start of `data`; None while its head is not there. `response_to` is the request's method."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    start, *lines = data[:end].split(b"\r\n")
    headers = [(line.partition(b":")[0].decode().lower(), line.partition(b":")[2].strip()) for line in lines]
    message = Message(start, headers, b"", complete=True, size=end + 4)
    rest = data[end + 4 :]
    if response_to == "HEAD" or (response_to is not None and start.split(b" ")[1] in {b"204", b"304"}):
        return message
    if message.header("transfer-encoding") == b"chunked":
        message.body, used, message.complete = _dechunk(rest)
    elif (length := message.header("content-length")) is not None:
        used = min(len(rest), int(length))
        message.body, message.complete = rest[:used], used == int(length)
    elif response_to is not None:
        message.body, used, message.complete = rest, len(rest), False  # ends with the connection
    else:
        used = 0
    message.size += used
    return message


def _dechunk(data: bytes) -> tuple[bytes, int, bool]:
    """(body so far, bytes used, whether the last chunk was there)."""
    body, position = b"", 0
    while (end := data.find(b"\r\n", position)) >= 0:
        size = int(data[position:end].split(b";")[0], 16)
        if size == 0:
            last = data.find(b"\r\n\r\n", end - 2)
            return body, last + 4 if last >= 0 else len(data), last >= 0
        body += data[end + 2 : end + 2 + size]
        position = end + 2 + size + 2
    return body, len(data), False


def respond(status: int = 200, headers: Headers | None = None, body: bytes = REPLY) -> Script:
    """A script: one response with a length."""
    given = [("content-type", b"application/json")] if headers is None else headers

    async def script(received: Received) -> None:
        lines = b"".join(b"%b: %b\r\n" % (name.encode(), value) for name, value in given)
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        shown = b"" if received.method == "HEAD" or status == 204 else body
        received.write(b"HTTP/1.1 %d Scripted\r\n%b%b\r\n%b" % (status, lines, length, shown))

    return script


def stream(
    events: list[bytes], *, gap: float = 0.0, die: bool = False, stamp: Callable[[], None] | None = None
) -> Script:
    """A script: these bytes as SSE, one chunk each; `die`: then reset the connection instead of ending the body."""

    async def script(received: Received) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        received.write(head)
        for event in events:
            if stamp is not None:
                stamp()
            received.write(framed(event))
            await asyncio.sleep(gap)
        assert received.transport is not None
        if die:
            await asyncio.sleep(0.2)
            received.transport.abort()
        else:
            received.write(b"0\r\n\r\n")

    return script


async def silence(_received: Received) -> None:
    """A script: never answer."""


async def ordinary(received: Received) -> None:
    """The script between rows: models on GET, a chat completion otherwise."""
    await respond(body=MODELS if received.method == "GET" else REPLY)(received)


class Recorder:
    """The upstream: keeps every request and answers by the script of the moment."""

    def __init__(self) -> None:
        self.script: Script = ordinary
        self.received: list[Received] = []
        self.mark = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()

    def reset(self, script: Script = ordinary, *, keep_mark: bool = False) -> None:
        """Forget what came, drop what is unanswered, follow another script."""
        if not keep_mark:
            self.mark += 1
        for task in self.tasks:
            task.cancel()
        for received in self.received:
            if self.script is not ordinary and received.transport is not None:
                received.transport.abort()
        self.received.clear()
        self.script = script

    async def first(self, method: str, timeout_s: float = 5.0) -> Received | None:
        """The first request with this method, waited for."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for received in self.received:
                if received.method == method:
                    return received
            await asyncio.sleep(0.005)
        return None


class _Connection(asyncio.Protocol):
    """One connection to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._data = b""
        self._current: Received | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\r\nexpect: 100-continue" in self._data[:4096].lower():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        message = parse(self._data)
        if message is None or not message.complete:
            return
        self._data = self._data[message.size :]
        self._current = Received(**vars(message), transport=self._transport)
        # What is no part of a row (health checks, lists of models, late retries) gets the ordinary answer.
        mark = MARK.search(self._current.body)
        stray = self._current.method == "GET" or (mark is not None and int(mark[1]) != self._recorder.mark)
        if not stray:
            self._recorder.received.append(self._current)
        script = ordinary if stray else self._recorder.script
        self._task = asyncio.ensure_future(script(self._current))
        self._recorder.tasks.add(self._task)
        self._task.add_done_callback(self._recorder.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        if self._task is not None:
            self._task.cancel()
        if self._current is not None:
            self._current.closed.set()


async def exchange(port: int, request: bytes, *, method: str, timeout_s: float = TIMEOUT_S) -> Response:
    """Send these bytes on a connection of its own, read until the response or the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b""
    reads: list[tuple[int, bytes]] = []
    message: Message | None = None
    closed = False
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(request)
            while not (message and message.complete):
                more = await reader.read(65_536)
                if not more:
                    closed = True
                    break
                reads.append((time.monotonic_ns(), more))
                data += more
                while data.startswith(b"HTTP/1.1 1") and b"\r\n\r\n" in data:
                    data = data.partition(b"\r\n\r\n")[2]
                message = parse(data, response_to=method)
    except (TimeoutError, ConnectionResetError):
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if message is None:
        return Response(b"", [], b"", complete=False, size=0, reads=reads)
    no_framing = message.header("transfer-encoding") is None and message.header("content-length") is None
    message.complete = message.complete or (closed and no_framing)
    return Response(**vars(message), reads=reads)
