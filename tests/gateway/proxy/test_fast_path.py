"""The fast path and the ASGI path, side by side: the same scenario on real sockets, and every difference is a failure.

A run is one gateway, a scripted upstream with one idle connection to it, and a client of raw bytes. `Outcome` is all
that a run shows on both wires and in what is recorded; that the fast path was taken shows in the ASGI app's calls.
"""

import asyncio
import contextlib
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from uvicorn.server import ServerState

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.app import Gateway
from gateway.config import Capture, Config
from gateway.config import Gateway as GatewayTable
from gateway.config import Upstream as UpstreamTable
from gateway.proxy import loops
from gaugeway.exchange import GENERATION_ROUTES
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.serving import Listener, _config
from tests.support.running import read_request

pytestmark = pytest.mark.full

# The product runs on uvloop; what depends on who ends a connection, and when, is shown on both.
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
MODES = ("asgi", "fast")
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Q"}]}'
OK = b"HTTP/1.1 200 OK\r\n"
JSON = b'{"id": "c", "choices": [{"message": {"role": "assistant", "content": "A."}, "finish_reason": "stop"}]}'
ANSWER = OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(JSON) + JSON
EVENTS = [b'data: {"choices": [{"index": 0, "delta": {"content": "%d "}}]}\n\n' % number for number in range(5)]
STREAM = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = [b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS]
LAST = b"0\r\n\r\n"
SOON_S = 0.2
COUNTED = {
    f"gaugeway_{name}"
    for name in ["requests", "exchanges", "upstream_errors", "upstream_resends", "upstream_state", "tokens", "cost_usd"]
} | {"gaugeway_charges_estimated", "gaugeway_captured"}
TRACEPARENT = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# --- the other side ---


@dataclass
class Upstream:
    """Answers each request with the next script, after those with `ANSWER`.

    A script's steps: bytes, seconds to wait, "close", "reset", "hang" (until the gateway closes), or a coroutine
    function that gets (upstream, writer). `raw` is what arrived on each connection.
    """

    scripts: list = field(default_factory=list)
    raw: list[bytearray] = field(default_factory=list)
    ended: list[asyncio.Event] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None
    tasks: set = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def listening(self):
        self.server = await asyncio.start_server(self, "127.0.0.1", 0)
        try:
            yield self.server.sockets[0].getsockname()[1]
        finally:
            self.server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def __call__(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        mine, ended = bytearray(), asyncio.Event()
        self.raw.append(mine)
        self.ended.append(ended)
        try:
            while not writer.is_closing():
                head, body = await read_request(reader)
                mine += head + body
                self.asked.set()
                await self.answer(body, reader, writer)
        except asyncio.IncompleteReadError as error:
            mine += error.partial
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            ended.set()
            if not writer.is_closing():
                writer.close()

    async def answer(self, body, reader, writer):
        for step in self.scripts.pop(0) if self.scripts else [ANSWER]:
            await self._take(step, reader, writer)

    async def _take(self, step, reader, writer):
        if isinstance(step, bytes):
            writer.write(step)
            await writer.drain()
            await asyncio.sleep(0.003)  # so that the next step's bytes arrive apart
        elif isinstance(step, float):
            await asyncio.sleep(step)
        elif step == "close":
            writer.close()
        elif step == "reset":
            reset(writer)
        elif step == "hang":
            await reader.read()
        else:
            await step(self, writer)


def reset(writer):
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Answer(NamedTuple):
    """A response as a client reads it. `ended` says how its end was told; None when it was not."""

    status: bytes
    headers: tuple[bytes, ...]
    body: bytes
    ended: str | None


def read_answers(raw: bytes) -> list[Answer]:
    """Take bytes apart into responses."""
    found = []
    while raw:
        head, end, raw = raw.partition(b"\r\n\r\n")
        status, *headers = head.split(b"\r\n")
        if not end:
            return [*found, Answer(head, (), b"", None)]
        lowered = b"\r\n".join(headers).lower()
        bodiless = status[9:12] in (b"204", b"304") or status[9:10] == b"1"
        body, ended = b"", "at once"
        if b"transfer-encoding: chunked" in lowered and not bodiless:
            body, ended, raw = _dechunk(raw)
        elif not bodiless and (length := re.search(rb"content-length: (\d+)", lowered)):
            size = int(length[1])
            body, ended, raw = raw[:size], "length" if len(raw) >= size else None, raw[size:]
        elif not bodiless:
            body, ended, raw = raw, None, b""
        found.append(Answer(status, tuple(headers), body, ended))
    return found


def _is_final(answer):
    return answer.ended is not None and answer.status[9:10] != b"1"


def _dechunk(raw):
    body = b""
    while True:
        size, end, rest = raw.partition(b"\r\n")
        if not end or not re.fullmatch(rb"[0-9a-f]+", size):
            return body, None, raw  # not a chunk: whatever was put in between shows
        length = int(size, 16)
        if len(rest) < length + 2:
            return body + rest[:length], None, b""
        assert rest[length : length + 2] == b"\r\n"
        body, raw = body + rest[:length], rest[length + 2 :]
        if not length:
            return body, "chunks", raw


class Wire:
    """A client with nothing between its bytes and the gateway."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.raw = b""
        self.closed = False

    async def send(self, *pieces):
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            if piece is not pieces[-1]:
                await asyncio.sleep(0.003)

    async def receive(self, until: Callable[[bytes], Any], within_s=60.0):
        """Read until that holds for all bytes so far, or the end."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(within_s):
                while not until(self.raw):
                    data = await self.reader.read(65536)
                    self.raw += data
                    if not data:
                        self.closed = True
                        return
            return
        self.closed = True

    async def answers(self, count=1):
        """Read so many whole responses (interim ones apart), or to the end."""
        await self.receive(lambda raw: sum(_is_final(answer) for answer in read_answers(raw)) >= count)

    async def is_closed(self):
        """Whether the gateway ends the connection now: a little patience, or much where it said that it will."""
        announced = b"connection: close" in self.raw.lower()
        with contextlib.suppress(TimeoutError):
            await self.receive(lambda raw: False, 60.0 if announced else 0.04)
        return self.closed

    def hang_up(self):
        self.writer.close()

    def reset(self):
        reset(self.writer)


def post(body=BODY, *headers, path="/v1/chat/completions"):
    lines = [f"POST {path} HTTP/1.1", "Host: gw", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


# --- one run ---


class Access(NamedTuple):
    """Tables of the configuration, the keys there are, the upstreams' settings, and the headers of a warm-up."""

    tables: dict = {}  # noqa: RUF012 - never changed
    keys_file: Path | None = None
    headers: tuple[str, ...] = ()
    upstreams: tuple[dict, ...] = ({},)


NO_ACCESS = Access()


@dataclass
class Bench:
    """A gateway on its socket, as the server sets it up, and what it recorded."""

    gateway: Gateway
    config: Config
    upstream: Upstream
    upstream_port: int
    state: ServerState = field(default_factory=ServerState)
    recordings: list = field(default_factory=list)
    asgi_calls: int = 0
    port: int = 0
    headers: tuple[str, ...] = ()

    @property
    def pool(self):
        return next(iter(self.gateway._clients.values()))

    @property
    def idle(self):
        return sum(map(len, self.pool._idle.values()))

    async def app(self, scope, receive, send):
        self.asgi_calls += 1
        await self.gateway(scope, receive, send)

    async def connect(self, **options):
        return Wire(*await asyncio.open_connection("127.0.0.1", self.port, **options))

    async def warm(self, connections=1):
        """Leave so many idle connections to the upstream."""
        before = len(self.recordings)
        self.upstream.scripts[:] = [[0.02, ANSWER]] * (connections - 1)  # so that they need one each
        wires = [await self.connect() for _ in range(connections)]
        for wire in wires:
            await wire.send(post(BODY, *self.headers))
        for wire in wires:
            await wire.answers()
            wire.hang_up()
        await self.until(lambda: self.idle == connections and len(self.recordings) == before + connections)

    async def until(self, condition, within_s=60.0):
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - counters have no event to wait for
                await asyncio.sleep(0.002)

    def counters(self):
        """What was counted of requests, exchanges, upstreams, usage, cost and charges."""
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in self.gateway.registry.collect()
            if family.name in COUNTED
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    def counted(self):
        return sum(value for (name, *_), value in self.counters().items() if name == "gaugeway_requests_total")

    def all_have_an_outcome(self):
        outcomes = sum(value for (name, *_), value in self.counters().items() if name == "gaugeway_exchanges_total")
        return outcomes == sum(recording["what"][2] in GENERATION_ROUTES for recording in self.recordings)


@contextlib.asynccontextmanager
async def benched(
    mode, scripts=(), *, upstream=None, warm=1, spans=False, content_bytes=None, access=NO_ACCESS, **settings
):
    """Run a gateway with `warm` idle upstream connections."""
    upstream = upstream or Upstream()
    async with upstream.listening() as port, _copy(access.keys_file) as keys_file:
        config = Config(
            gateway=GatewayTable(**settings),
            upstreams=tuple(UpstreamTable(base_url=f"http://127.0.0.1:{port}/v1", **one) for one in access.upstreams),
            **{"capture": Capture(**({} if content_bytes is None else {"max_content_bytes": content_bytes}))}
            | access.tables,
        )
        gateway = Gateway(config, queue=MemoryQueue(), keys_file=keys_file, fast_path=mode == "fast")
        bench = Bench(gateway, config, upstream, port, headers=access.headers)
        if spans:
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

            processor = SimpleSpanProcessor(InMemorySpanExporter())
            gateway._span_processor = processor
        _listen_in(gateway, bench)
        gateway.apply(config)
        await gateway.start()
        serving = _config(Listener(bench.app, "127.0.0.1", 0, protocol=gateway.protocol), drain_s=1)
        serving.load()
        protocol = serving.http_protocol_class
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol(serving, bench.state, {}), "127.0.0.1", 0)
        bench.port = server.sockets[0].getsockname()[1]
        try:
            await bench.warm(warm)
            bench.upstream.scripts[:] = [list(script) for script in scripts]
            bench.upstream.asked.clear()
            yield bench
        finally:
            server.close()
            for connection in list(bench.state.connections):
                connection.transport.abort()
            await gateway.aclose()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _copy(file):
    """A copy of the keys for one run: what is spent is kept beside them."""
    with tempfile.TemporaryDirectory() as folder:
        yield file and Path(shutil.copy(file, folder))


def _listen_in(gateway, bench):
    offer = gateway.handoff.offer

    def listen(recording):
        bench.recordings.append(_shown(recording))
        offer(recording)

    gateway.handoff.offer = listen


def _shown(recording):
    """All of a recording but its times and ids."""
    trace = recording.trace
    return {
        "what": (recording.method, recording.path, recording.route, recording.request_headers),
        "request_body": recording.request_body,
        "explicit": recording.explicit,
        "trace": trace and (trace.parent_id and trace.trace_id, trace.parent_id, trace.sampled),
        "upstream": (recording.upstream, recording.tags, recording.asked_for_usage, recording.cached, recording.key_id),
        "status": recording.status,
        "response_headers": list(recording.response_headers),
        "body": b"".join(recording.chunks),
        "size": recording.too_large or recording.size,
        "end": (recording.ending, recording.error_kind),
        "times": (recording.first_chunk_s is not None, recording.request_overhead_s is not None),
    }


@dataclass
class Outcome:
    """All that a run shows."""

    upstream: list
    client: list
    closed: bool | None
    recordings: list
    counters: dict
    left: dict


Client = Callable[[Wire, Bench], Awaitable[None]]


class Case(NamedTuple):
    """A scenario: what the upstream does and the client does, and how many of the requests are the app's to serve."""

    scripts: list
    client: Client | None = None
    requests: int = 1
    others: int = 0
    settings: dict = {}  # noqa: RUF012 - never changed


async def one(wire, bench):
    await wire.send(post())
    await wire.answers()


def sending(*pieces, answers=1):
    async def client(wire, bench):
        await wire.send(*pieces)
        await wire.answers(answers)

    return client


async def play(mode, case) -> Outcome:
    async with benched(mode, case.scripts, **case.settings) as bench:
        wire = await bench.connect()
        calls, before = bench.asgi_calls, len(bench.recordings)
        await (case.client or one)(wire, bench)
        closed = None if wire.writer.is_closing() else await wire.is_closed()
        wire.hang_up()
        await bench.until(lambda: len(bench.recordings) >= before + case.requests)
        await bench.until(lambda: bench.counted() >= before + case.requests and bench.all_have_an_outcome())
        with contextlib.suppress(TimeoutError):  # then it shows in what is left
            await bench.until(lambda: not bench.state.connections and len(bench.pool._open) == bench.idle, 10)
        await asyncio.sleep(0.01)
        by_asgi = bench.asgi_calls - calls
        assert by_asgi == (case.requests if mode == "asgi" else case.others)
        return Outcome(
            upstream=[_neutral(bytes(raw), bench.upstream_port) for raw in bench.upstream.raw],
            client=[_without_id(answer) for answer in read_answers(wire.raw)],
            closed=closed,
            recordings=bench.recordings[before:],
            counters=bench.counters(),
            left={
                "upstream connections": len(bench.pool._open),
                "idle": bench.idle,
                "waited for": len(bench.state.tasks),
                "clients": len(bench.state.connections),
            },
        )


def _neutral(raw, port):
    raw = raw.replace(b":%d\r\n" % port, b":PORT\r\n")
    raw = re.sub(rb"(gaugeway-via: )[0-9a-f]{16}", rb"\1ID", raw)  # which depends on the upstream's port
    return re.sub(rb"(traceparent: 00-)[0-9a-f]{32}-[0-9a-f]{16}", rb"\1TRACE-SPAN", raw)


def _without_id(answer):
    headers = [re.sub(rb"(x-gaugeway-exchange-id: )[0-9a-f]{32}$", rb"\1ID", header) for header in answer.headers]
    headers = [re.sub(rb"(retry-after(?:-ms)?: )\d+$", rb"\1SOON", header) for header in headers]
    body = re.sub(rb"(Retry in )\d+( s\.)", rb"\1SOON\2", answer.body)
    if body != answer.body:  # the time left may have a digit more or less
        headers = [re.sub(rb"(content-length: )\d+$", rb"\1SOME", header) for header in headers]
    return answer._replace(headers=tuple(headers), body=body)


def run(loop, scenario):
    async def main():
        async with asyncio.timeout(60):
            return await scenario()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


def compare(loop, case):
    """Run the case both ways; what they show must be the same. Returns it."""
    by_asgi, short = (run(loop, lambda mode=mode: play(mode, case)) for mode in MODES)
    assert short == by_asgi
    return short


# --- the scenarios ---


def headed(*headers, status=b"200 OK", body=JSON):
    lines = [b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def close_the_door(upstream, writer):
    """Close without a word, and take no more connections."""
    upstream.server.close()
    writer.close()
    await asyncio.sleep(0)


RESPONSES = {
    "JSON": [ANSWER],
    "JSON in pieces": [ANSWER[:9], ANSWER[9:30], ANSWER[30:90], ANSWER[90:]],
    "an empty body": [OK + b"Content-Length: 0\r\n\r\n"],
    "a stream": [STREAM, *CHUNKS, LAST],
    "a stream at once": [STREAM + b"".join(CHUNKS) + LAST],
    "a stream with its head cut": [STREAM[:20], STREAM[20:] + CHUNKS[0][:7], CHUNKS[0][7:] + CHUNKS[1], LAST],
    "a stream without a chunk": [STREAM, LAST],
    "chunk extensions and trailers": [STREAM, b"3;a=b\r\nabc\r\n", b"0;x\r\nX-Trailer: 1\r\nContent-Length: 7\r\n\r\n"],
    "until the end": [OK + b"Content-Type: text/plain\r\n\r\nabc", b"def", "close"],
    "until the end, nothing": [OK + b"\r\n", "close"],
    "HTTP/1.0": [b"HTTP/1.0 200 OK\r\n\r\nabc", "close"],
    "HTTP/1.0 with a length": [b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "close"],
    "204": [b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"],
    "205": [headed(status=b"205 Reset Content", body=b"")],
    "304": [b"HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n"],
    "304 with a length": [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"],
    "204 in chunks": [b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"],
    "103 first": [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", ANSWER],
    "100 first, at once": [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + ANSWER],
    "101": [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello"],
    "400": [headed(b"X-A: 1", status=b"400 Bad Request", body=b'{"error": {"message": "no"}}')],
    "401": [headed(b"WWW-Authenticate: Bearer", status=b"401 Unauthorized", body=b"")],
    "429": [headed(b"Retry-After-Ms: 5", status=b"429 Slow Down")],
    "500": [headed(status=b"500 ")],
    "503 in chunks": [STREAM.replace(b"200 OK", b"503 Overloaded"), CHUNKS[0], LAST],
    "a status without a name": [headed(status=b"599 Odd")],
    "a status that is none": [headed(status=b"600 Odd")],
    "cookies": [headed(b"Set-Cookie: a=1", b"set-cookie: b=2", b"SET-COOKIE: a=1")],
    "hop by hop": [
        headed(b"Connection: X-Foo, keep-alive", b"X-Foo: 1", b"x-bar: 2", b"Keep-Alive: timeout=5", b"TE: a")
    ],
    "close": [headed(b"Connection: close"), "close"],
    "close, and stays": [headed(b"Connection: close"), 0.05],
    "server, date and odd names": [headed(b"Server: u", b"Date: now", b"x_y: 1", b"X!#$%&'*+-.^`|~9: 2", b"X-Empty:")],
    "odd values": [headed(b"X-A: \xe9\xff\x80", b"X-B: a\tb", b"X-C:   padded  ", b"X-D: " + b"v" * 9000)],
    "our own header": [headed(b"X-Gaugeway-Exchange-Id: theirs", b"x-gaugeway-x: 1")],
    "two lengths": [OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"],
    "length and chunks": [OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    "another coding": [OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    "a folded header": [OK + b"X-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok"],
    "a control character": [OK + b"X-A: 1\x012\r\nContent-Length: 2\r\n\r\nok"],
    "NUL": [OK + b"X-A: 1\x002\r\nContent-Length: 2\r\n\r\nok"],
    "no HTTP": [b"SSH-2.0-x\r\n"],
    "a head without an end": [OK + b"X-A: " + b"v" * 300_000],
    "cut in the head": [OK + b"Content-Le", "close"],
    "cut after an interim head": [b"HTTP/1.1 100 Continue\r\n\r\n", "close"],
    "cut before the body": [OK + b"Content-Length: 9\r\n\r\n", "close"],
    "cut in the body": [OK + b"Content-Length: 9\r\n\r\nabc", "close"],
    "cut in the chunks": [STREAM, CHUNKS[0], b"5\r\nab", "close"],
    "cut between the chunks": [STREAM, CHUNKS[0], "close"],
    "a bad chunk": [STREAM + CHUNKS[0], b"zz\r\nabc"],
    "a bad chunk at once": [STREAM + CHUNKS[0] + b"zz\r\nabc"],
    "reset in the head": [OK, "reset"],
    "reset in the body": [OK + b"Content-Length: 9\r\n\r\nabc", 0.02, "reset"],
    "reset in the chunks": [STREAM, CHUNKS[0], 0.02, "reset"],
    "junk behind": [ANSWER + b"junk"],
    "junk a little later": [ANSWER, b"junk"],
    "junk behind the chunks": [STREAM + CHUNKS[0] + LAST + b"junk"],
    "another response behind": [ANSWER + ANSWER],
    "a body behind 304": [b"HTTP/1.1 304 Not Modified\r\n\r\nabc"],
}
OFTEN = {"read_timeout_s": 0.15}
FIRST = {"first_byte_timeout_s": 0.15}
TOTAL = {"total_timeout_s": 0.15}
EASY = {"read_timeout_s": 0.5, "first_byte_timeout_s": 0.4}  # shorter than the whole, longer than each wait by far
SLOWLY = [STREAM, *[step for event in CHUNKS * 3 for step in (0.04, event)], LAST]
LATE = {
    "no answer": Case([["hang"]], settings=OFTEN),
    "no first byte": Case([["hang"]], settings=FIRST),
    "no first byte, the read limit first": Case([["hang"]], settings={"first_byte_timeout_s": 5.0, **OFTEN}),
    "no first byte, limits the same": Case([["hang"]], settings={"first_byte_timeout_s": 0.15, **OFTEN}),
    "all limits the same": Case([["hang"]], settings={"first_byte_timeout_s": 0.15, **OFTEN, **TOTAL}),
    "no answer in all": Case([["hang"]], settings=TOTAL),
    "half a head": Case([[OK, "hang"]], settings=OFTEN),
    "only an interim head": Case([[b"HTTP/1.1 100 Continue\r\n\r\n", "hang"]], settings=OFTEN),
    "only a head": Case([[STREAM, "hang"]], settings=OFTEN),
    "a pause in the stream": Case([[STREAM, CHUNKS[0], "hang"]], settings=OFTEN),
    "a pause with chunk heads": Case([[STREAM, CHUNKS[0], *[0.05, b"5;", 0.05, b"a", "hang"]]], settings=OFTEN),
    "a pause in a known length": Case([[OK + b"Content-Length: 9\r\n\r\nabc", "hang"]], settings=OFTEN),
    "slow, but never too slow": Case([SLOWLY], settings=EASY),
    "a late head in time": Case([[0.2, STREAM, 0.2, CHUNKS[0], 0.2, LAST]], settings=EASY),
    "too slow in all": Case([[STREAM, *CHUNKS, "hang"]], settings={"total_timeout_s": 0.4}),
    "in time for the first byte": Case([[STREAM, 0.3, CHUNKS[0], LAST]], settings=FIRST),
}
REPEATABLE = sending(post(BODY, "Idempotency-Key: k"))
STALE = {
    "closed after reading": Case([["close"]]),
    "reset after reading": Case([["reset"]]),
    "closed after working": Case([[0.3, "close"]]),
    "closed after working, with another one idle": Case([[0.3, "close"]], settings={"warm": 2}),
    "stale": Case([["close"]], REPEATABLE),
    "stale by a reset": Case([["reset"]], REPEATABLE),
    "stale, and the new one too": Case([["close"], ["close"]], REPEATABLE),
    "stale, and the new one is cut": Case([["close"], [OK, "close"]], REPEATABLE),
    "stale, then a stream": Case([["close"], [STREAM, *CHUNKS, LAST]], REPEATABLE),
    "stale, then nothing listens": Case([[close_the_door]], REPEATABLE),
    "stale, then no answer": Case([["close"], ["hang"]], REPEATABLE, settings=OFTEN),
    "stale, then no first byte": Case([["close"], ["hang"]], REPEATABLE, settings=FIRST),
    "stale, then slow in all": Case([["close"], ["hang"]], REPEATABLE, settings=TOTAL),
    "stale, with another one idle": Case([["close"]], REPEATABLE, settings={"warm": 2}),
    "stale, and the new one too, with another one idle": Case([["close"], ["close"]], REPEATABLE, settings={"warm": 2}),
    "stale after a second": Case([[1.05, "close"]], REPEATABLE),
}


@pytest.mark.parametrize("case", RESPONSES)
def test_every_response_comes_back_the_same(case):
    compare("uvloop", Case([RESPONSES[case]]))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", LATE)
def test_every_limit_strikes_the_same(case, loop):
    compare(loop, LATE[case])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", STALE)
def test_a_stale_connection_is_met_the_same(case, loop):
    compare(loop, STALE[case])


@pytest.mark.parametrize("script", [["close"], ["reset"], [0.3, "close"]], ids=["closed", "reset", "worked, closed"])
@pytest.mark.parametrize("mode", MODES)
def test_a_post_that_the_upstream_may_have_processed_is_not_sent_again(mode, script):
    async def main():
        async with benched(mode, [script]) as bench:
            wire = await bench.connect()
            await wire.send(post())
            await wire.answers()
            assert read_answers(wire.raw)[0].status == b"HTTP/1.1 502 Bad Gateway"
            assert [bytes(raw).count(b"POST") for raw in bench.upstream.raw] == [2]  # the first is the warm-up's
            assert resends(bench) == {}
            wire.hang_up()

    run("uvloop", main)


@pytest.mark.parametrize("mode", MODES)
def test_a_repeatable_request_is_sent_again_and_counted(mode):
    async def main():
        async with benched(mode, [["close"]]) as bench:
            wire = await bench.connect()
            await wire.send(post(BODY, "Idempotency-Key: k"))
            await wire.answers()
            assert read_answers(wire.raw)[0].status == b"HTTP/1.1 200 OK"
            assert [bytes(raw).count(b"POST") for raw in bench.upstream.raw] == [2, 1]
            assert resends(bench) == {"idempotency_key": 1}
            wire.hang_up()

    run("uvloop", main)


@pytest.mark.parametrize("script", [[ANSWER], ["close"]], ids=["before it is sent", "when it is sent again"])
def test_a_defect_of_the_gateway_is_answered_with_500_and_counted(monkeypatch, caplog, script):
    async def scenario(mode):
        async with benched(mode, [script]) as bench:
            defect = RuntimeError("a defect")
            target = (loops, "chain") if script == [ANSWER] else (type(bench.pool), "connect")
            with monkeypatch.context() as patched:
                patched.setattr(*target, lambda *_: raise_(defect))
                wire = await bench.connect()
                await wire.send(post(BODY, "Idempotency-Key: k"))
                await wire.answers()
                await bench.until(lambda: bench.counted() == 2)
            wire.hang_up()
            return [_without_id(answer) for answer in read_answers(wire.raw)], bench.recordings[1:], bench.counters()

    by_asgi, short = (run("uvloop", lambda mode=mode: scenario(mode)) for mode in MODES)
    assert short == by_asgi
    assert short[0][0].status == b"HTTP/1.1 500 Internal Server Error"
    assert short[1][0]["end"] == ("upstream_error", "internal")
    assert len([one for one in caplog.messages if one.endswith("failed in the gateway")]) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_closes_its_sending_side_has_hung_up(mode):
    async def main():
        async with benched(mode, [["hang"]]) as bench:
            wire = await bench.connect()
            await half_close(wire, bench)
            assert (wire.raw, wire.closed) == (b"", True)
            async with asyncio.timeout(60):
                await bench.upstream.ended[0].wait()
            await bench.until(lambda: len(bench.recordings) == 2)
            assert bench.recordings[1]["end"] == ("client_cancelled", None)
            wire.hang_up()

    run("uvloop", main)


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_whose_requests_come_in_one_piece_outlives_the_limit_for_heads(monkeypatch, mode):
    monkeypatch.setattr(ServerProtocol, "head_s", 0.1)

    async def scenario():
        async with benched(mode) as bench:
            wire = await bench.connect()
            for count in range(1, 8):
                await wire.send(post())
                await wire.answers(count)
                await asyncio.sleep(0.08)
            assert len(read_answers(wire.raw)) == 7
            assert not wire.closed
            wire.hang_up()

    run("uvloop", scenario)


def raise_(error):
    raise error


def resends(bench):
    return {
        sample.labels["reason"]: sample.value
        for family in bench.gateway.registry.collect()
        for sample in family.samples
        if sample.name == "gaugeway_upstream_resends_total"
    }


def hanging_up(*pieces, until=None, how=Wire.hang_up):
    """A client that leaves: after these bytes, or (`until`) when it has seen those."""

    async def client(wire, bench):
        upstream = bench.upstream
        await wire.send(*pieces)
        if until is not None:
            await wire.receive(lambda raw: until in raw)
        elif pieces[-1].endswith(BODY):
            await upstream.asked.wait()
            await asyncio.sleep(0.03)  # longer than the ASGI path takes to begin to watch
        how(wire)
        if upstream.asked.is_set():
            async with asyncio.timeout(SOON_S):
                await upstream.ended[0].wait()

    return client


async def half_close(wire, bench):
    await wire.send(post())
    await bench.upstream.asked.wait()
    await asyncio.sleep(0.03)
    wire.writer.write_eof()
    await wire.answers()


async def fifty(wire, bench):
    for number in range(1, 51):
        await wire.send(post(b'{"n": %d}' % number))
        await wire.answers(number)


async def an_event_at_a_time(wire, bench):
    await wire.send(post())
    for event in EVENTS:
        await wire.receive(lambda raw, event=event: event in raw)
    await wire.answers()


async def junk_after_an_event(wire, bench):
    await wire.send(post())
    await wire.receive(lambda raw: EVENTS[0] in raw)
    await wire.send(b"junk\r\n\r\n")
    await wire.answers(2)


def interrupted(act, at=None, answers=1):
    """A client that goes on as usual, while `act` happens to the gateway (when it has seen `at`)."""

    async def client(wire, bench):
        await wire.send(post())
        if at is None:
            await bench.upstream.asked.wait()
            await asyncio.sleep(0.03)
        else:
            await wire.receive(lambda raw: at in raw)
        act(bench)
        await wire.answers(answers)

    return client


def drain(bench):
    for connection in list(bench.state.connections):
        connection.shutdown()


def give_up(bench):
    """What the server does when the time to drain is over."""
    drain(bench)
    for task in bench.state.tasks:
        task.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
    for connection in list(bench.state.connections):
        connection.cut_off()


def reload(bench):
    name = UpstreamTable(base_url=f"http://127.0.0.1:{bench.upstream_port}/v1", name="renamed")
    bench.gateway.apply(Config(gateway=bench.config.gateway, upstreams=(name,), capture=Capture(max_content_bytes=9)))


async def reload_and_ask_again(wire, bench):
    await interrupted(reload, CHUNKS[0])(wire, bench)
    await wire.send(post())
    await wire.answers(2)


async def body_given_up(wire, bench):
    await wire.send(post()[:-9])
    await bench.until(lambda: not all(connection.is_idle() for connection in bench.state.connections))
    give_up(bench)
    await wire.answers()


KEYED = BODY[:-1] + b', "gaugeway": {"question": "Real?", "contexts": ["p1"], "app": "shop", "tags": {"v": "7"}}}'
SAID = ("x-gaugeway-app: shop", "X-Gaugeway-Session: s1", "x-gaugeway-tags: a=b")
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\n"
IN_CHUNKS = CHAT + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
PAUSED = [STREAM, CHUNKS[0], 0.2, CHUNKS[1], LAST]
GET = b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n"
LARGE = b'{"a": "%b"}' % (b"x" * 200_000)
LARGER = b'{"a": "%b"}' % (b"x" * 256 * 1024)

REQUESTS = {
    "messages": Case([[ANSWER]], sending(post(path="/v1/messages?beta=true"))),
    "responses": Case([[ANSWER]], sending(post(path="/v1/responses"))),
    "completions": Case([[ANSWER]], sending(post(path="/v1/completions?a=%2Fb&c=d%20e&x?y&empty="))),
    "another route": Case([[ANSWER]], sending(post(path="/v1/embeddings")), others=1),
    "a slash too many": Case([[ANSWER]], sending(post(path="/v1/chat/completions/")), others=1),
    "an encoded path": Case([[ANSWER]], sending(post(path="/v1/chat%2Fcompletions")), others=1),
    "a fragment": Case([[ANSWER]], sending(post(path="/v1/chat/completions?a#b")), others=1),
    "an absolute target": Case([[ANSWER]], sending(post(path="http://evil/v1/chat/completions")), others=1),
    "in pieces": Case([[ANSWER]], sending(post()[:20], post()[20:60], post()[60:-9], post()[-9:])),
    "byte by byte": Case([[ANSWER]], sending(*[post()[at : at + 1] for at in range(len(post()))])),
    "no body": Case([], sending(post(b""))),
    "no JSON": Case([[ANSWER]], sending(post(b"\xff\x00 no JSON"))),
    "a large body": Case([[ANSWER]], sending(post(LARGE))),
    "a large body in pieces": Case([[ANSWER]], sending(post(LARGE)[:99_000], post(LARGE)[99_000:])),
    "a larger body": Case([[ANSWER]], sending(post(LARGER))),
    "a body over the limit": Case([], sending(post(KEYED)), settings={"max_body_bytes": len(BODY)}),
    "a body at the limit": Case([[ANSWER]], sending(post()), settings={"max_body_bytes": len(BODY)}),
    "headers": Case([[ANSWER]], sending(post(BODY, "Authorization: Bearer k", "X-A: 1", "x-a: 2", "Cookie: c"))),
    "hop by hop headers": Case(
        [[ANSWER]], sending(post(BODY, "Connection: keep-alive, X-A", "X-A: 1", "TE: trailers"))
    ),
    "a length with zeros": Case([[ANSWER]], sending(CHAT + b"Content-Length: 0002\r\n\r\n{}")),
    "a length with a blank": Case([[ANSWER]], sending(CHAT + b"Content-Length: 2 \r\n\r\n{}")),
    "an underscore": Case([], sending(post(BODY, "Content_Length: 3"))),
    "the length named by Connection": Case([[ANSWER]], sending(post(BODY, "Connection: content-length"))),
    "two lengths": Case([], sending(post(BODY, "Content-Length: 3")), requests=0),
    "length and chunks": Case([], sending(post(BODY, "Transfer-Encoding: chunked")), requests=0),
    "a bad header": Case([], sending(post(BODY, "X A: 1")), requests=0),
    "an upgrade": Case([[ANSWER]], sending(post(BODY, "Connection: Upgrade", "Upgrade: h2c"))),
    "an upgrade in pieces": Case(
        [[ANSWER]], sending(post(BODY, "Connection: Upgrade", "Upgrade: h2c")[:-5], BODY[-5:])
    ),
    "an upgrade that is not meant": Case([[ANSWER]], sending(post(BODY, "Upgrade: h2c"))),
    "in chunks": Case([[ANSWER]], sending(IN_CHUNKS)),
    "Connection: close": Case([[ANSWER]], sending(post(BODY, "Connection: close"))),
    "HTTP/1.0": Case([[ANSWER]], sending(post().replace(b"HTTP/1.1", b"HTTP/1.0"))),
    "HTTP/1.0 that stays": Case(
        [[ANSWER]], sending(post(BODY, "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"))
    ),
    "Expect": Case([[ANSWER]], sending(post(BODY, "Expect: 100-continue"))),
    "another expectation": Case([[ANSWER]], sending(post(BODY, "Expect: wonders"))),
    "our key": Case([[ANSWER]], sending(post(KEYED))),
    "our key, wrong": Case([], sending(post(KEYED.replace(b'["p1"]', b"1")))),
    "our headers": Case([[ANSWER]], sending(post(BODY, *SAID))),
    "our key and headers": Case([[ANSWER]], sending(post(KEYED, *SAID))),
    "our headers, wrong": Case([], sending(post(BODY, "x-gaugeway-contexts: {"))),
    "an upstream's name": Case([[ANSWER]], sending(post(BODY, "x-gaugeway-upstream: nobody"))),
    "no capture": Case([[ANSWER]], sending(post(BODY, "x-gaugeway-capture: off"))),
    "pipelined": Case([[ANSWER], [STREAM, *CHUNKS, LAST]], sending(post() + post(), answers=2), requests=2),
    "pipelined a little later": Case([PAUSED, [ANSWER]], sending(post(), post(), answers=2), requests=2),
    "pipelined, a large one": Case([PAUSED], sending(post() + post(LARGE), answers=2), requests=2),
    "pipelined, three": Case([PAUSED], sending(post() + GET + post(b"{}"), answers=3), requests=3, others=1),
    "pipelined behind the other way": Case(
        [[0.05, headed(body=b"1")], [headed(body=b"2")]],
        sending(GET + post(), answers=2),
        requests=2,
        others=1,
        settings={"warm": 2},
    ),
    "pipelined, stale": Case([["close"]], sending(post() + post(), answers=2), requests=2),
    "pipelined, cut": Case([[STREAM, "close"]], sending(post() + post(), answers=2)),
    "junk before the head": Case([[0.05, ANSWER]], sending(post(), b"junk\r\n\r\n")),
    "junk in the stream": Case([PAUSED], junk_after_an_event),
    "empty lines behind": Case([[ANSWER], [ANSWER]], sending(post() + b"\r\n\r\n" + post(), answers=2), requests=2),
    "fifty on one connection": Case([], fifty, requests=50),
    "an event at a time": Case([[STREAM, *CHUNKS, LAST]], an_event_at_a_time),
    "a response too large to keep": Case([[STREAM, *CHUNKS, LAST]], settings={"content_bytes": 200}),
    "a request too large to keep": Case([[ANSWER]], sending(post(LARGE)), settings={"content_bytes": 200}),
    "too large to keep, with our key": Case([[ANSWER]], sending(post(KEYED)), settings={"content_bytes": 20}),
    "a trace": Case([[ANSWER]], sending(post(BODY, TRACEPARENT))),
    "a trace with spans": Case([[ANSWER]], sending(post(BODY, TRACEPARENT)), settings={"spans": True}),
    "spans without a trace": Case([[ANSWER]], settings={"spans": True}),
    "spans and a bad trace": Case([[ANSWER]], sending(post(BODY, "traceparent: 1")), settings={"spans": True}),
}
ENDINGS = {
    "leaves in the head": Case([], hanging_up(CHAT), requests=0),
    "leaves in the body": Case([], hanging_up(post()[:-5])),
    "resets in the body": Case([], hanging_up(post()[:-5], how=Wire.reset)),
    "leaves before the answer": Case([["hang"]], hanging_up(post())),
    "resets before the answer": Case([["hang"]], hanging_up(post(), how=Wire.reset)),
    "leaves after the head": Case([[STREAM, "hang"]], hanging_up(post(), until=b"\r\n\r\n")),
    "leaves in the stream": Case([[STREAM, *CHUNKS, "hang"]], hanging_up(post(), until=CHUNKS[-1])),
    "resets in the stream": Case([[STREAM, *CHUNKS, "hang"]], hanging_up(post(), until=CHUNKS[-1], how=Wire.reset)),
    "leaves while it is sent again": Case([["close"], ["hang"]], hanging_up(post(BODY, "Idempotency-Key: k"))),
    "half-closes": Case([["hang"]], half_close),
    "drained before the head": Case([[0.2, ANSWER]], interrupted(drain)),
    "drained before a stream": Case([[0.2, STREAM, CHUNKS[0], LAST]], interrupted(drain)),
    "drained in the stream": Case([PAUSED], interrupted(drain, CHUNKS[0])),
    "drained, then late": Case([["hang"]], interrupted(drain), settings={"read_timeout_s": 0.3}),
    "drained, then stale": Case([[0.2, "close"]], interrupted(drain)),
    "drained, then cut": Case([[0.2, OK, "close"]], interrupted(drain)),
    "given up before the head": Case([["hang"]], interrupted(give_up)),
    "given up in the stream": Case([[STREAM, CHUNKS[0], "hang"]], interrupted(give_up, CHUNKS[0])),
    "given up in the body": Case([], body_given_up),
    "reloaded in the stream": Case([PAUSED, [ANSWER]], reload_and_ask_again, requests=2),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_every_request_goes_out_the_same(case):
    compare("uvloop", REQUESTS[case])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", ENDINGS)
def test_whoever_ends_it_it_ends_the_same(case, loop):
    compare(loop, ENDINGS[case])
