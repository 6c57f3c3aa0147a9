"""What every upstream adapter promises, on real sockets. Where httpx differs, the test says how and why.

`native-uvloop` is the native adapter on the event loop that the product runs on; its transports differ from asyncio's.
"""

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop

from gateway.upstreams import UpstreamError, UpstreamRequest
from gateway.upstreams.connection import MAX_HEAD_BYTES, Connection
from gateway.upstreams.httpx import HttpxUpstream
from gateway.upstreams.pool import NativeUpstream
from gateway.upstreams.response import StaleError
from tests.support.running import read_request

pytestmark = pytest.mark.full

MIB = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\n"
ANSWER = OK + b"Content-Length: 2\r\n\r\nok"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SOON_S = 5.0  # nothing that happens at once takes that long, however busy the machine is
KERNEL_BYTES = 12 * MIB  # more than the two socket buffers of a loopback connection grow to


# --- the bench ---


@dataclass
class Server:
    """Answers each request with the next step: bytes, or a coroutine function that gets (reader, writer).

    `requests` holds (number of the connection, head, body).
    """

    steps: list
    requests: list = field(default_factory=list)
    connections: int = 0
    ended: list = field(default_factory=list)
    port: int = 0
    tasks: set = field(default_factory=set)
    aborts: bool = False

    async def __call__(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        number, self.connections = self.connections, self.connections + 1
        self.ended.append(asyncio.Event())
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, IndexError, asyncio.CancelledError):
                await self.serve(number, reader, writer)
        finally:
            self.ended[number].set()
            writer.transport.abort() if self.aborts else writer.close()

    async def serve(self, number, reader, writer):
        while not writer.is_closing():
            head, body = await read_request(reader)
            self.requests.append((number, head, body))
            step = self.steps.pop(0)
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            else:
                await step(reader, writer)

    @contextlib.asynccontextmanager
    async def listening(self, tls=None):
        server = await asyncio.start_server(self, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            await asyncio.sleep(0.01)


@dataclass
class Bench:
    """Runs scenarios against one adapter."""

    name: str
    build: Callable
    loop_factory: Callable

    @property
    def native(self):
        return self.build is NativeUpstream

    def run(self, scenario, *steps, tls=None, **options):
        """Call scenario(client, server) with a server that takes these steps."""

        async def main():
            client = self.build(**options)
            try:
                async with asyncio.timeout(60), Server(list(steps)).listening(tls) as server:
                    await scenario(client, server)
            finally:
                await client.aclose()
                await asyncio.sleep(0)

        self.run_alone(main())

    def run_alone(self, main):
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(main)
        gc.collect()  # a transport that nobody closed is a ResourceWarning here, in the test that left it


@pytest.fixture(params=["native", "native-uvloop", "httpx"])
def bench(request):
    build = HttpxUpstream if request.param == "httpx" else NativeUpstream
    return Bench(request.param, build, uvloop.new_event_loop if "uvloop" in request.param else asyncio.new_event_loop)


@pytest.fixture(params=["native", "native-uvloop"])
def native(request):
    """For what only the native adapter promises; each test says what httpx does instead."""
    return Bench(
        request.param, NativeUpstream, uvloop.new_event_loop if "uvloop" in request.param else asyncio.new_event_loop
    )


def request(server, method="GET", target=b"/v1/models", body=b"", *headers, scheme="http", host="127.0.0.1"):
    framing = [(b"content-length", str(len(body)).encode())] if isinstance(body, bytes) and body else []
    origin = (scheme, host, server if isinstance(server, int) else server.port)
    return UpstreamRequest(method, origin, target, [(b"host", b"upstream"), *framing, *headers], body)


async def chunks_of(*chunks):
    for chunk in chunks:
        yield chunk


def upload(server, *chunks, framing=(b"transfer-encoding", b"chunked")):
    body = chunks_of(*chunks)
    return UpstreamRequest("POST", ("http", "127.0.0.1", server.port), b"/v1/files", [(b"host", b"u"), framing], body)


async def rest(response):
    """Read to the end: (bytes that came, the error that ended it or None)."""
    body, more = bytearray(), True
    try:
        while more:
            chunk, more = await response.read()
            body += chunk
    except UpstreamError as error:
        return bytes(body), error
    return bytes(body), None


async def whole(client, outgoing):
    response = await client.send(outgoing)
    body, error = await rest(response)
    assert error is None, error.detail
    await response.aclose()
    return response, body


async def outcome(client, outgoing):
    """(the bytes that came, the UpstreamError or None), whatever stage it ended at."""
    try:
        response = await client.send(outgoing)
    except UpstreamError as error:
        return b"", error
    try:
        return await rest(response)
    finally:
        await response.aclose()


async def refused(client, outgoing, kind):
    with pytest.raises(UpstreamError) as caught:
        await client.send(outgoing)
    assert caught.value.kind == kind
    return caught.value


def descriptors():
    """How many files and connections this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def held():
    """How many connections of the client something still refers to."""
    gc.collect()
    return sum(type(one) is Connection for one in gc.get_objects())


async def until(condition):
    while not condition():  # noqa: ASYNC110 - a list has no event to wait for
        await asyncio.sleep(0.005)


async def hang(reader, _):
    await reader.read()


def slowly(*parts, pause_s=0.02):
    async def step(_, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return step


def then_close(data=b"", *, reset=False):
    async def step(_, writer):
        writer.write(data)
        if data:
            await writer.drain()
        if reset:
            # The bytes go first: a reset may overtake them. Linger 0 makes the close a reset.
            await asyncio.sleep(0.002)
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()

    return step


# --- responses ---


def test_status_and_headers_come_back_in_their_order_with_case_and_duplicates(bench):
    async def scenario(client, server):
        response, body = await whole(client, request(server))
        assert (response.status, body) == (429, b"ok")
        assert response.headers == [
            (b"X-B", b"1"),
            (b"Set-Cookie", b"a=1"),
            (b"x-a", b"  spaced  inside".strip()),
            (b"Set-Cookie", b"b=2"),
            (b"Content-Length", b"2"),
            (b"X-Empty", b""),
            (b"X-Latin", b"\xe9"),
        ]

    lines = b"X-B: 1\r\nSet-Cookie: a=1\r\nx-a:  spaced  inside\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\nX-Empty:\r\n"
    bench.run(scenario, b"HTTP/1.1 429 Odd Words\r\n" + lines + b"X-Latin: \xe9\r\n\r\nok")


def test_the_request_goes_out_as_given(bench):
    async def scenario(client, server):
        await whole(
            client, request(server, "POST", b"/v1/a%2Fb//c?x=%20&y=", b"\x00\xffbody", (b"x-a", b"1"), (b"x-a", b"2"))
        )
        _, head, body = server.requests[0]
        assert head == (
            b"POST /v1/a%2Fb//c?x=%20&y= HTTP/1.1\r\nhost: upstream\r\ncontent-length: 6\r\nx-a: 1\r\nx-a: 2\r\n\r\n"
        )
        assert body == b"\x00\xffbody"

    bench.run(scenario, ANSWER)


def test_a_packed_body_is_left_packed(bench):
    packed = gzip.compress(b"text" * 100)

    async def scenario(client, server):
        assert (await whole(client, request(server)))[1] == packed

    bench.run(scenario, OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"0\r\n\r\n", b""),
        (CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (CHUNKED + b'3;a=b;c="d e"\r\nhel\r\n2;x\r\nlo\r\n0;last\r\n\r\n', b"hello"),
        (CHUNKED + b"5\r\nhello\r\n0\r\nX-Trailer: t\r\nX-Other: u\r\n\r\n", b"hello"),
        (then_close(OK + b"\r\nhello"), b"hello"),
        (then_close(OK + b"\r\n"), b""),
        (then_close(b"HTTP/1.0 200 OK\r\n\r\nhello"), b"hello"),
        (slowly(OK, b"Content-Le", b"ngth: 5\r\n\r", b"\nhe", b"llo"), b"hello"),
        (slowly(CHUNKED + b"5\r", b"\nhel", b"lo\r\n0\r", b"\n\r\n"), b"hello"),
    ],
    ids=[
        "content-length",
        "content-length 0",
        "chunks",
        "no chunk",
        "leading zeros",
        "chunk extensions",
        "trailers",
        "to the end",
        "nothing to the end",
        "HTTP/1.0",
        "content-length in pieces",
        "chunks in pieces",
    ],
)
def test_every_framing_of_a_body_is_read_and_leaves_no_trace(bench, step, expected):
    async def scenario(client, server):
        response, body = await whole(client, request(server))
        assert body == expected
        assert not any(name.lower().startswith(b"x-") for name, _ in response.headers)
        assert await response.read() == (b"", False)

    bench.run(scenario, step)


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Hint: 1\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 3 + b"HTTP/1.1 103 E\r\nX-Hint: 1\r\n\r\n",
    ],
    ids=["100", "103", "several"],
)
@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_interim_responses_are_passed_over(bench, interim, apart):
    async def scenario(client, server):
        for _ in range(2):
            response, body = await whole(client, request(server))
            assert (response.status, response.headers, body) == (200, [(b"Content-Length", b"2")], b"ok")
        assert server.connections == 1

    step = slowly(interim, ANSWER) if apart else interim + ANSWER
    bench.run(scenario, step, step)


@pytest.mark.parametrize(
    ("method", "step", "status"),
    [
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", 304),
        ("HEAD", OK + b"Content-Length: 77\r\n\r\n", 200),
        ("HEAD", CHUNKED, 200),
        ("HEAD", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404),
    ],
    ids=["204", "304", "HEAD", "HEAD of chunks", "HEAD of nothing"],
)
def test_a_response_without_a_body_ends_with_its_head_and_leaves_the_connection_usable(bench, method, step, status):
    async def scenario(client, server):
        for _ in range(3):
            response, body = await whole(client, request(server, method))
            assert (response.status, body) == (status, b"")
        _, body = await whole(client, request(server))
        assert body == b"ok"
        assert server.connections == 1

    bench.run(scenario, step, step, step, ANSWER)


def test_a_body_behind_the_answer_to_a_head_request_reaches_nobody(bench):
    async def scenario(client, server):
        await whole(client, request(server, "HEAD"))
        await asyncio.sleep(0.05)
        body, error = await outcome(client, request(server))
        assert (body, error) == (b"ok", None)

    if not bench.native:
        pytest.skip("httpx keeps the stray bytes and takes them for the start of the next response: an error there")
    bench.run(scenario, OK + b"Content-Length: 4\r\n\r\nevil", ANSWER)


# --- connections ---


def test_a_connection_is_used_again(bench):
    async def scenario(client, server):
        for _ in range(5):
            await whole(client, request(server, "POST", b"/v1/x", b"body"))
            await whole(client, upload(server, b"a", b"b"))
        assert [number for number, _, _ in server.requests] == [0] * 10

    bench.run(scenario, *[ANSWER, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"] * 5)


@pytest.mark.parametrize(
    "step",
    [
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
        OK + b"Connection: x, Close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["close", "close in a list", "HTTP/1.0"],
)
def test_a_connection_that_the_upstream_gives_up_is_closed_and_not_used_again(bench, step):
    async def scenario(client, server):
        await whole(client, request(server))
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)
        await whole(client, request(server))
        assert [number for number, _, _ in server.requests] == [0, 1]

    bench.run(scenario, step, ANSWER)


def test_the_connection_that_was_idle_for_the_shortest_time_is_taken(bench):
    async def scenario(client, server):
        both = asyncio.gather(whole(client, request(server)), whole(client, request(server)))
        await both
        for _ in range(3):
            await whole(client, request(server))
        first, second, *later = [number for number, _, _ in server.requests]
        assert first != second
        # httpx takes the first idle one of its list: the oldest connection, not the one used last.
        assert later == ([second] * 3 if bench.native else [0] * 3)

    bench.run(scenario, slowly(ANSWER, pause_s=0), slowly(b"", ANSWER, pause_s=0.02), *[ANSWER] * 3)


def test_a_connection_closed_while_idle_costs_nothing_even_a_streamed_body(bench):
    async def scenario(client, server):
        await whole(client, request(server))
        await server.ended[0].wait()
        await whole(client, upload(server, b"a"))
        assert [number for number, _, _ in server.requests] == [0, 1]

    async def answer_and_close(reader, writer):
        writer.write(ANSWER)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.close()

    bench.run(scenario, answer_and_close, ANSWER)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_request_that_meets_a_stale_connection_is_sent_once_more(native, reset):
    """httpx does not try again: there it is an UpstreamError, as the next test has it for both."""

    async def scenario(client, server):
        reasons = []
        client.on_resend = reasons.append
        await whole(client, request(server))
        _, body = await whole(client, request(server, "PUT", b"/v1/x", b"body"))
        assert body == b"ok"
        assert [(number, body) for number, _, body in server.requests] == [(0, b""), (0, b"body"), (1, b"body")]
        assert reasons == ["idempotent"]

    native.run(scenario, ANSWER, then_close(reset=reset), ANSWER)


@pytest.mark.parametrize("name", [b"idempotency-key", b"x-idempotency-key"])
def test_a_request_with_an_idempotency_key_is_sent_once_more(native, name):
    async def scenario(client, server):
        await whole(client, request(server))
        await whole(client, request(server, "POST", b"/v1/x", b"body", (name, b"k")))
        assert len(server.requests) == 3

    native.run(scenario, ANSWER, then_close(), ANSWER)


@pytest.mark.parametrize("worked_s", [0.0, 0.3])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("size", [4, MIB], ids=["small", "large"])
def test_a_post_that_was_read_is_never_sent_twice(bench, worked_s, reset, size):
    async def work_and_close(reader, writer):
        await asyncio.sleep(worked_s)
        await then_close(reset=reset)(reader, writer)

    async def scenario(client, server):
        for path in (b"/v1/chat/completions", b"/v1/batches", b"/v1/fine_tuning/jobs"):
            await whole(client, request(server))
            before = len(server.requests)
            await refused(client, request(server, "POST", path, b"x" * size), "protocol")
            assert len(server.requests) == before + 1

    bench.run(scenario, *[ANSWER, work_and_close] * 3, ANSWER)


@pytest.mark.parametrize("ending", ["closed", "reset", "half-closed"])
def test_a_post_whose_connection_ended_before_its_first_byte_is_known_to_be_unread(native, ending):
    """The race that `Connection.quiet` loses: the end arrives after the poll and before the first byte goes out."""

    async def main():
        loop = asyncio.get_running_loop()
        client = native.build()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            origin = ("http", "127.0.0.1", listener.getsockname()[1])
            warming = asyncio.ensure_future(whole(client, request(origin[2])))
            peer, _ = await loop.sock_accept(listener)
            await loop.sock_recv(peer, 65536)
            await loop.sock_sendall(peer, ANSWER)
            await warming
            connection = client.reused(origin, loop.time())
            if ending == "reset":
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.shutdown(socket.SHUT_WR) if ending == "half-closed" else peer.close()
            outgoing = request(origin[2], "POST", b"/v1/x", b"body")
            with pytest.raises(StaleError) as caught:
                await connection.exchange(outgoing, SOON_S, SOON_S)
            if ending == "closed":
                assert caught.value.unread
            elif ending == "reset":  # which proves nothing: in doubt the request was processed
                assert not caught.value.unread
            assert client.may_resend(outgoing, caught.value, 0.0) == caught.value.unread
            peer.close()
        await client.aclose()
        await asyncio.sleep(0)

    native.run_alone(asyncio.wait_for(main(), 60))


def test_it_is_sent_once_more_and_not_twice(bench):
    async def scenario(client, server):
        await whole(client, request(server))
        await refused(client, request(server, "PUT", b"/v1/x", b"body"), "protocol")
        assert len(server.requests) == (3 if bench.native else 2)

    bench.run(scenario, ANSWER, then_close(), then_close(), ANSWER)


def test_a_streamed_body_is_never_sent_twice(bench):
    async def scenario(client, server):
        await whole(client, request(server))
        await refused(client, upload(server, b"a", b"b"), "protocol")
        assert len(server.requests) == 2

    bench.run(scenario, ANSWER, then_close(), ANSWER)


@pytest.mark.parametrize("first", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H", b"\r\n"], ids=["100", "one byte", "a line"])
def test_a_request_that_got_any_byte_back_is_not_sent_again(bench, first):
    async def scenario(client, server):
        await whole(client, request(server))
        await refused(client, request(server), "protocol")
        assert len(server.requests) == 2

    bench.run(scenario, ANSWER, then_close(first), ANSWER)


STRAYS = {
    "a whole response": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "an interim response": b"HTTP/1.1 100 Continue\r\n\r\n",
    "half a response": b"HTTP/1.1 200 OK\r\nContent-Le",
    "one byte": b"H",
    "junk": b"\x00\x16\x03\x01 junk",
    "a request time-out": b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "many responses": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" * 100,
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS.keys())
@pytest.mark.parametrize("when", ["with the answer", "right behind it", "while idle", "unseen by the loop"])
@pytest.mark.parametrize("first", [ANSWER, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"], ids=["length", "chunks"])
def test_bytes_that_nobody_asked_for_never_reach_the_next_request(bench, stray, when, first):
    """Response smuggling: what an upstream sends too much would be the next client's answer."""

    async def step(_, writer):
        if when == "with the answer":
            writer.write(first + stray)
            return
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(0 if when == "right behind it" else 0.02)
        writer.write(stray)

    async def scenario(client, server):
        assert (await whole(client, request(server)))[1] == b"ok"
        if when == "while idle":
            await asyncio.sleep(0.06)
        assert (await whole(client, request(server)))[1] == b"fine"
        assert [number for number, _, _ in server.requests] == [0, 1]

    if not bench.native and when in ("with the answer", "right behind it"):
        pytest.skip(
            "httpcore keeps bytes behind a response for the next request: one more reason for the native client"
        )
    if when == "unseen by the loop":
        _unseen_by_the_loop(bench, first, stray)
        return
    bench.run(scenario, step, OK + b"Content-Length: 4\r\n\r\nfine")


def _unseen_by_the_loop(bench, first, stray):
    """The stray bytes are in the kernel, but the loop has had no turn to read them when the next request comes."""

    async def main():
        loop = asyncio.get_running_loop()
        client = bench.build()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]

            async def serve(answer):
                peer, _ = await loop.sock_accept(listener)
                await loop.sock_recv(peer, 65536)
                await loop.sock_sendall(peer, answer)
                return peer

            serving = asyncio.ensure_future(serve(first))
            await whole(client, request(port))
            peer = await serving
            await asyncio.sleep(0.02)
            serving = asyncio.ensure_future(serve(OK + b"Content-Length: 4\r\n\r\nfine"))
            await asyncio.sleep(0)
            peer.send(stray)
            time.sleep(0.01)  # noqa: ASYNC251 - the point of it
            assert (await whole(client, request(port)))[1] == b"fine"
            (await serving).close()
            peer.close()
        await client.aclose()
        await asyncio.sleep(0)

    bench.run_alone(asyncio.wait_for(main(), 60))


def test_an_answer_that_overtakes_the_request_body_ends_the_connection(native):
    """What is left of the body would stand before the next request. httpx sends all of it before it reads."""

    class Unread(Server):
        async def serve(self, number, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            await asyncio.sleep(5)

    async def main():
        client = native.build()
        async with Unread([], aborts=True).listening() as server:
            before = descriptors()
            for number in (1, 2):
                response, body = await whole(client, request(server, "POST", b"/v1/x", bytes(16 * MIB)))
                assert (response.status, body) == (413, b"no")
                assert server.connections == number
            await until(lambda: descriptors() <= before + 2)  # the server's ends, which it keeps for some seconds
        await client.aclose()

    native.run_alone(asyncio.wait_for(main(), 60))


def test_a_refusal_is_told_while_the_body_is_still_coming(native):
    """httpx sends the whole body before it reads; here the client's upload may take minutes."""

    async def never_ending():
        yield b"first"
        await asyncio.Event().wait()

    class HeadOnly(Server):
        async def serve(self, number, reader, writer):
            await reader.readuntil(b"first\r\n")
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
            await reader.read()

    async def main():
        client = native.build()
        async with HeadOnly([]).listening() as server:
            outgoing = UpstreamRequest(
                "POST",
                ("http", "127.0.0.1", server.port),
                b"/",
                [(b"host", b"u"), (b"transfer-encoding", b"chunked")],
                never_ending(),
            )
            response, body = await asyncio.wait_for(whole(client, outgoing), 60)
            assert (response.status, body) == (401, b"no")
            await asyncio.wait_for(server.ended[0].wait(), SOON_S)
        await client.aclose()

    native.run_alone(main())


def test_an_upstream_that_begins_to_answer_early_still_gets_the_whole_body(bench):
    class Early(Server):
        async def serve(self, number, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(CHUNKED + b"2\r\nok\r\n")
            await writer.drain()
            body = b""
            while not body.endswith(b"0\r\n\r\n"):
                body += await reader.read(65536)
            self.requests.append(body)
            writer.write(b"0\r\n\r\n")

    async def pieces():
        for _ in range(5):
            yield b"piece"
            await asyncio.sleep(0.02)

    async def main():
        client = bench.build()
        async with Early([]).listening() as server:
            outgoing = upload(server)
            outgoing = UpstreamRequest("POST", outgoing.origin, b"/", outgoing.headers, pieces())
            assert (await whole(client, outgoing))[1] == b"ok"
            assert server.requests[0].count(b"piece") == 5
        await client.aclose()

    bench.run_alone(asyncio.wait_for(main(), 60))


# --- the framing of requests ---


def test_empty_pieces_of_a_streamed_body_do_not_end_it(bench):
    async def scenario(client, server):
        await whole(client, upload(server, b"", b"abc", b"", b"def", b""))
        body = server.requests[0][2]
        assert body.endswith(b"0\r\n\r\n")
        assert body.count(b"0\r\n\r\n") == 1
        assert b"abc" in body
        assert b"def" in body

    bench.run(scenario, ANSWER)


def test_whole_bytes_announced_as_chunks_are_sent_as_chunks(bench):
    """Otherwise the client's bytes would be read as chunk sizes: request smuggling."""
    evil = b"0\r\n\r\nGET /v1/evil HTTP/1.1\r\nhost: u\r\n\r\n"

    async def scenario(client, server):
        origin = ("http", "127.0.0.1", server.port)
        headers = [(b"host", b"u"), (b"transfer-encoding", b"chunked")]
        await whole(client, UpstreamRequest("POST", origin, b"/v1/x", headers, evil))
        await asyncio.sleep(0.02)
        assert len(server.requests) == 1
        assert server.requests[0][2] == b"%x\r\n%b\r\n0\r\n\r\n" % (len(evil), evil)
        await whole(client, UpstreamRequest("POST", origin, b"/v1/x", headers, b""))
        assert server.requests[1][2] == b"0\r\n\r\n"

    class Framed(Server):
        async def serve(self, number, reader, writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body, size = b"", 1
                while size:
                    line = await reader.readline()
                    size = int(line, 16)
                    body += line + await reader.readexactly(size + 2)
                self.requests.append((number, head, body))
                writer.write(ANSWER)

    async def main():
        client = bench.build()
        async with Framed([]).listening() as server:
            await scenario(client, server)
        await client.aclose()

    bench.run_alone(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(
    ("framing", "chunks"),
    [
        ((b"content-length", b"5"), [b"abc"]),
        ((b"content-length", b"2"), [b"abc"]),
        ((b"content-length", b"0"), [b"abc"]),
        ((b"content-length", b"-1"), [b"abc"]),
        ((b"x-none", b""), [b"abc"]),
    ],
    ids=["too short", "too long", "not empty", "negative", "no framing"],
)
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_body_that_is_not_as_long_as_announced_is_refused_and_the_connection_closed(
    native, framing, chunks, streamed
):
    """The rest of it, or what is missing, would be taken from the next request. h11 refuses most of these too."""

    async def scenario(client, server):
        await whole(client, request(server))
        body = chunks_of(*chunks) if streamed else b"".join(chunks)
        origin = ("http", "127.0.0.1", server.port)
        _, error = await outcome(client, UpstreamRequest("POST", origin, b"/", [(b"host", b"u"), framing], body))
        # Of a stream the head alone may be a whole request, that was answered before the surplus came.
        assert error.kind == "protocol" if error else (streamed and framing[1] in (b"0", b""))
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)
        await whole(client, request(server))
        assert server.requests[-1][0] == 1
        assert all(b"GET /v1/models" in head or b"POST / " in head for _, head, _ in server.requests)

    native.run(scenario, ANSWER, *[ANSWER] * 2)


# --- failures ---


def test_a_refused_connection_is_told(bench):
    async def scenario(client, server):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            await refused(client, request(unused.getsockname()[1]), "connect")

    bench.run(scenario)


def test_a_name_that_cannot_be_a_name_is_told(bench):
    async def scenario(client, server):
        await refused(client, request(server, host="a" * 70 + ".test"), "connect")

    bench.run(scenario)


@contextlib.contextmanager
def black_hole():
    """A port that takes no connection: its queue is full, so that a SYN is not answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        time.sleep(0.01)
        yield listener.getsockname()[1]


def test_a_connection_that_takes_too_long_is_told(bench):
    async def scenario(client, server):
        with black_hole() as port:
            begin = time.monotonic()
            async with asyncio.timeout(SOON_S):
                await refused(client, request(port), "connect_timeout")
            assert time.monotonic() - begin > 0.15

    bench.run(scenario, connect_timeout_s=0.2)


def test_a_tls_handshake_that_takes_too_long_is_told(bench):
    async def scenario(client, server):
        await refused(client, request(server, scheme="https"), "connect_timeout")

    bench.run(scenario, connect_timeout_s=0.2)


def test_a_head_that_takes_too_long_is_told_and_the_connection_closed(bench):
    async def scenario(client, server):
        await refused(client, request(server), "timeout")
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)

    bench.run(scenario, hang, read_timeout_s=0.2)


def test_a_pause_in_the_body_that_takes_too_long_is_told_after_what_came(bench):
    async def scenario(client, server):
        response = await client.send(request(server))
        body, error = await rest(response)
        assert body == b"hel"
        assert error.kind == "timeout"
        await response.aclose()
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)

    async def pause(reader, writer):
        writer.write(CHUNKED + b"3\r\nhel\r\n")
        await reader.read()

    bench.run(scenario, pause, read_timeout_s=0.2)


def test_a_slow_body_that_never_pauses_for_too_long_passes(bench):
    async def scenario(client, server):
        begin = time.monotonic()
        assert (await whole(client, request(server)))[1] == b"x" * 20
        assert time.monotonic() - begin > 0.3

    bench.run(scenario, slowly(CHUNKED, *[b"1\r\nx\r\n"] * 20, b"0\r\n\r\n", pause_s=0.02), read_timeout_s=0.2)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (OK + b"Content-Length: 9\r\n\r\n", b"hello"),
        (CHUNKED, b"5\r\nhello\r\n"),
        (CHUNKED, b"9\r\nhello"),
        (CHUNKED, b"5\r\nhello\r\n0\r\n"),
    ],
    ids=["length", "between chunks", "in a chunk", "before the last line"],
)
def test_a_body_that_breaks_off_is_an_error_after_what_came(bench, head, body):
    async def scenario(client, server):
        response = await client.send(request(server))
        came, error = await rest(response)
        assert came == b"hello"
        assert error.kind == "protocol"
        if bench.native:  # after an error httpx's iterator is at its end, and the adapter says so
            with pytest.raises(UpstreamError):
                await response.read()
        await response.aclose()

    bench.run(scenario, then_close(head + body))


CUT_AT_EVERY_BYTE = {
    "length": OK + b"X-A: 1\r\nContent-Length: 5\r\n\r\nhello",
    "chunks": b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX-T: 1\r\n\r\n",
    "to the end": OK + b"\r\nhello",
}


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("framing", CUT_AT_EVERY_BYTE)
def test_a_response_cut_at_any_byte_is_never_taken_for_a_whole_one(bench, framing, reset):
    response = CUT_AT_EVERY_BYTE[framing]

    async def scenario(client, server):
        for cut in range(len(response) + 1):
            server.steps.append(then_close(response[:cut], reset=reset))
            body, error = await outcome(client, request(server))
            assert b"hello".startswith(body)
            if framing == "to the end" and not reset and response[:cut].count(b"\r\n\r\n"):
                assert error is None
            elif cut < len(response) or (framing == "to the end" and reset):
                assert error is not None, cut
                assert error.kind == "protocol"
            else:
                assert (body, error) == (b"hello", None)
        assert len(server.requests) == len(response) + 1  # a fresh connection each time: nothing is sent twice

    bench.run(scenario)


def endless(start, piece, pieces=100):
    async def step(reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(start)
            for _ in range(pieces):
                writer.write(piece)
                await writer.drain()
            await reader.read()

    return step


LINE = b"x-filler: " + b"y" * 1000 + b"\r\n"


@pytest.mark.parametrize(
    "step",
    [
        endless(OK, LINE, 400),
        endless(OK + b"x-one: ", b"y" * 10_000),
        endless(b"HTTP/1.1 200 ", b"y" * 10_000),
        endless(OK + b"x", b"y" * 10_000),
        endless(CHUNKED + b"5\r\nhello\r\n0\r\n", LINE, 400),
        endless(CHUNKED + b"5\r\nhello\r\n0\r\nx-one: ", b"y" * 10_000),
        endless(CHUNKED + b"5\r\nhello\r\n5;", b"y" * 10_000),
        endless(b"", b"HTTP/1.1 103 E\r\nx-filler: " + b"y" * 1000 + b"\r\n\r\n", 400),
        endless(b"", b"\r\n" * 1000, 400),
    ],
    ids=["headers", "value", "reason", "name", "trailers", "trailer", "chunk extension", "interim", "empty lines"],
)
def test_headers_without_end_are_an_error_and_not_kept(native, step):
    """h11 has a limit of 100 KB for most of these, but goes on passing over interim responses."""

    async def scenario(client, server):
        _, error = await outcome(client, request(server))
        assert error.kind == "protocol"
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)

    native.run(scenario, step, read_timeout_s=5)


@pytest.mark.parametrize("one_value", [False, True])
def test_headers_up_to_the_limit_pass(native, one_value):
    """h11's limit is 100 KB."""
    size = MAX_HEAD_BYTES - 10_000
    lines = b"x-one: " + b"y" * size + b"\r\n" if one_value else LINE * (size // len(LINE))

    async def scenario(client, server):
        assert (await whole(client, request(server)))[1] == b"ok"

    native.run(scenario, OK + lines + b"Content-Length: 2\r\n\r\nok")


AMBIGUOUS = {
    "length and chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\noks",
    "a list of lengths": OK + b"Content-Length: 2, 3\r\n\r\noks",
    "negative length": OK + b"Content-Length: -2\r\n\r\nok",
    "hexadecimal length": OK + b"Content-Length: 0x2\r\n\r\nok",
    "overflowing length": OK + b"Content-Length: 99999999999999999999999\r\n\r\nok",
    "unknown coding": OK + b"Transfer-Encoding: gzip\r\n\r\nok",
    "coding within chunks": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks not last": OK + b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "folded header": OK + b"X-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "NUL in a header": OK + b"X-A: 1\x002\r\nContent-Length: 2\r\n\r\nok",
    "bare CR in a header": OK + b"X-A: 1\rX-B: 2\r\nContent-Length: 2\r\n\r\nok",
    "space before the colon": OK + b"Content-Length : 2\r\n\r\nok",
    "chunk size with sign": CHUNKED + b"+2\r\nok\r\n0\r\n\r\n",
    "chunk size overflow": CHUNKED + b"fffffffffffffffff\r\nok\r\n0\r\n\r\n",
    "chunk longer than said": CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok",
    "status 1000": b"HTTP/1.1 1000 Odd\r\nContent-Length: 2\r\n\r\nok",
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok",
    "no HTTP at all": b"220 mail.example ESMTP\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
}
H11_READS = {
    "chunks twice",
    "folded header",
    "bare line feeds",
    "length and chunks",
    "two lengths",
    "space before the colon",
}
H11_READS |= {"a list of lengths", "switching protocols", "status 099", "NUL in a header", "bare CR in a header"}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_response_that_could_be_read_in_two_ways_is_an_error(bench, case):
    async def scenario(client, server):
        body, error = await outcome(client, request(server))
        assert error is not None or (not bench.native and case in H11_READS)  # h11 reads some of them, its own way
        if error is not None:
            assert error.kind in ("protocol", "timeout")
            assert body in (b"", b"ok") or not bench.native
            await asyncio.wait_for(server.ended[0].wait(), SOON_S)

    bench.run(scenario, AMBIGUOUS[case], read_timeout_s=0.3)


def test_a_status_that_no_server_could_pass_on_is_an_error(native):
    """h11 takes any up to 999; uvicorn knows those up to 599."""

    async def scenario(client, server):
        await refused(client, request(server), "protocol")

    native.run(scenario, b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n")


# --- flow control ---


def test_a_slow_reader_stops_the_sender(bench):
    size = 64 * MIB
    accepted = 0

    async def flood(_, writer):
        nonlocal accepted
        writer.transport.set_write_buffer_limits(high=MIB)
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % size)
        block = bytes(range(256)) * 256
        while accepted < size:
            writer.write(block)
            await writer.drain()
            accepted += len(block)

    async def scenario(client, server):
        response = await client.send(request(server))
        await asyncio.sleep(0.4)
        held = accepted
        await asyncio.sleep(0.2)
        assert accepted == held
        assert held < KERNEL_BYTES
        received, more = 0, True
        while more:
            chunk, more = await response.read()
            assert len(chunk) < 4 * MIB
            received += len(chunk)
        assert received == size
        await response.aclose()
        assert (await whole(client, request(server)))[1] == b"ok"
        assert server.connections == 1

    bench.run(scenario, flood, ANSWER)


def test_a_slow_upstream_stops_a_streamed_body(bench):
    size = 64 * MIB
    taken = 0
    go = asyncio.Event()

    async def body():
        nonlocal taken
        while taken < size:
            taken += 65536
            yield bytes(65536)

    class Slow(Server):
        async def serve(self, number, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await go.wait()
            await reader.readexactly(size)
            writer.write(ANSWER)
            await reader.read()

    async def main():
        client = bench.build()
        async with Slow([]).listening() as server:
            headers = [(b"host", b"u"), (b"content-length", str(size).encode())]
            outgoing = UpstreamRequest("POST", ("http", "127.0.0.1", server.port), b"/", headers, body())
            sending = asyncio.ensure_future(whole(client, outgoing))
            await asyncio.sleep(0.4)
            held = taken
            await asyncio.sleep(0.2)
            assert taken == held
            assert held < KERNEL_BYTES
            go.set()
            assert (await sending)[1] == b"ok"
            assert taken == size
            await client.aclose()
            await asyncio.sleep(0.01)

    bench.run_alone(asyncio.wait_for(main(), 60))


def test_an_upstream_that_stops_taking_a_streamed_body_is_told(bench):
    async def body():
        while True:
            yield bytes(65536)

    class Stuck(Server):
        async def serve(self, number, reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()
            await asyncio.sleep(5)

    async def main():
        client = bench.build(read_timeout_s=0.3)
        async with Stuck([], aborts=True).listening() as server:
            headers = [(b"host", b"u"), (b"transfer-encoding", b"chunked")]
            origin = ("http", "127.0.0.1", server.port)
            await refused(client, UpstreamRequest("POST", origin, b"/", headers, body()), "timeout")
        await client.aclose()
        await asyncio.sleep(0.01)

    bench.run_alone(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
def test_sixteen_mebibytes_pass_both_ways(bench, streamed, chunked):
    block = bytes(range(256)) * 256
    data = block * 256

    async def echo(_, writer):
        body = server_of[0].requests[-1][2]
        if chunked:
            writer.write(CHUNKED)
            for start in range(0, len(data), 100_000):
                piece = body[start : start + 100_000] if not streamed else data[start : start + 100_000]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        await writer.drain()

    server_of = []

    async def scenario(client, server):
        server_of.append(server)
        outgoing = (
            upload(server, *[block] * 256, framing=(b"content-length", str(len(data)).encode()))
            if streamed
            else request(server, "POST", b"/v1/x", data)
        )
        _, body = await whole(client, outgoing)
        assert server.requests[0][2] == data
        assert body == data
        await whole(client, request(server))
        assert server.connections == 1

    bench.run(scenario, echo, ANSWER)


# --- ends ---


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def connect_timeout_s(bench):
    """Longer than a test waits; but httpcore holds a cancellation back until it is connected or this is over."""
    return 2 * SOON_S if bench.native else 1.0


def test_cancelling_while_connecting_closes_the_socket(bench):
    async def scenario(client, server):
        sending = asyncio.ensure_future(client.send(request(server, scheme="https")))
        await until(lambda: server.connections == 1)  # the server never says a word of TLS
        async with asyncio.timeout(SOON_S):
            await cancelled(sending)
            await server.ended[0].wait()

    bench.run(scenario, connect_timeout_s=connect_timeout_s(bench))


def test_cancelling_before_the_connection_is_there_ends_at_once(bench):
    async def scenario(client, server):
        with black_hole() as port:
            sending = asyncio.ensure_future(client.send(request(port)))
            await asyncio.sleep(0.05)
            async with asyncio.timeout(SOON_S):
                await cancelled(sending)

    bench.run(scenario, connect_timeout_s=connect_timeout_s(bench))


def test_cancelling_while_waiting_for_the_head_closes_the_connection(bench):
    async def scenario(client, server):
        sending = asyncio.ensure_future(client.send(request(server)))
        await until(lambda: server.requests)
        async with asyncio.timeout(SOON_S):
            await cancelled(sending)
            await server.ended[0].wait()
        await whole(client, request(server))
        assert server.connections == 2

    bench.run(scenario, hang, ANSWER)


def test_cancelling_in_the_middle_of_an_upload_closes_the_connection(bench):
    async def body():
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    class Counting(Server):
        async def serve(self, number, reader, writer):
            while await reader.read(65536):
                pass

    async def main():
        client = bench.build()
        async with Counting([]).listening() as server:
            headers = [(b"host", b"u"), (b"transfer-encoding", b"chunked")]
            origin = ("http", "127.0.0.1", server.port)
            sending = asyncio.ensure_future(client.send(UpstreamRequest("POST", origin, b"/", headers, body())))
            await asyncio.sleep(0.1)
            async with asyncio.timeout(SOON_S):
                await cancelled(sending)
                await server.ended[0].wait()
        await client.aclose()
        await asyncio.sleep(0.01)

    bench.run_alone(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("framing", ["chunks", "to the end"])
@pytest.mark.parametrize("reading", [True, False], ids=["reading", "between reads"])
def test_letting_go_in_the_middle_of_the_body_closes_the_connection(bench, framing, reading):
    async def trickle(_, writer):
        writer.write(CHUNKED if framing == "chunks" else OK + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():  # uvloop raises RuntimeError for a write after connection_lost
                writer.write(b"1\r\nx\r\n" if framing == "chunks" else b"x")
                await writer.drain()
                await asyncio.sleep(0.005)

    async def scenario(client, server):
        response = await client.send(request(server))
        await response.read()
        if reading:
            waiting = asyncio.ensure_future(rest(response))
            await asyncio.sleep(0.02)
            await cancelled(waiting)
        async with asyncio.timeout(SOON_S):
            await response.aclose()
            await server.ended[0].wait()
        assert (await whole(client, request(server)))[1] == b"ok"
        assert server.connections == 2

    bench.run(scenario, trickle, ANSWER)


@pytest.mark.parametrize("step", [CHUNKED + b"1\r\nx\r\n", OK + b"\r\nx", OK + b"Content-Length: 9\r\n\r\nx"])
def test_closing_the_client_never_makes_half_a_body_look_whole(bench, step):
    async def partly(reader, writer):
        writer.write(step)
        await reader.read()

    async def scenario(client, server):
        response = await client.send(request(server))
        assert await response.read() == (b"x", True)
        reading = asyncio.ensure_future(rest(response))
        await asyncio.sleep(0.02)
        if bench.native:
            await client.aclose()
            body, error = await asyncio.wait_for(reading, SOON_S)
            assert body == b""
            assert error.kind == "protocol"
        else:  # httpcore will not close its pool under a reader; the reader lets go first
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await response.aclose()
            await client.aclose()
        await asyncio.wait_for(server.ended[0].wait(), SOON_S)

    bench.run(scenario, partly)


def test_closing_the_client_ends_a_request_that_waits_for_its_head(native):
    async def scenario(client, server):
        await whole(client, request(server))  # on a reused connection: it must not be taken for a stale one
        sending = asyncio.ensure_future(outcome(client, request(server)))
        await until(lambda: len(server.requests) == 2)
        await client.aclose()
        body, error = await asyncio.wait_for(sending, SOON_S)
        assert body == b""
        assert error is not None
        await asyncio.sleep(0.02)
        assert server.connections == 1 or len(server.requests) == 2
        await until(lambda: all(one.is_set() for one in server.ended))

    native.run(scenario, ANSWER, hang)


def test_an_upstream_that_resets_at_once_never_hangs_and_leaves_nothing_behind(native):
    async def main():
        client = native.build(read_timeout_s=3)

        async def slam(_, writer):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        server = await asyncio.start_server(slam, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        before, earlier = descriptors(), held()
        for _ in range(50):
            _, error = await outcome(client, request(port))
            assert error.kind in ("protocol", "connect")
        await until(lambda: descriptors() <= before)
        assert held() <= earlier + 1  # the last may still be in a frame
        await client.aclose()
        server.close()

    native.run_alone(asyncio.wait_for(main(), 60))


def test_many_at_once_get_their_own_answers(bench):
    class Echo(Server):
        async def serve(self, number, reader, writer):
            while True:
                _, body = await read_request(reader)
                await asyncio.sleep(len(body) % 7 / 1000)
                writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def main():
        client = bench.build()
        async with Echo([]).listening() as server:

            async def one(number):
                body = b"%d" % number * (number % 50 + 1)
                if number % 5 == 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(number % 7 / 1000):
                            await whole(client, request(server, "POST", b"/", body))
                else:
                    assert (await whole(client, request(server, "POST", b"/", body)))[1] == body

            for start in range(0, 600, 60):
                await asyncio.gather(*(one(number) for number in range(start, start + 60)))
        await client.aclose()
        await asyncio.sleep(0.01)

    bench.run_alone(asyncio.wait_for(main(), 60))


# --- TLS ---


@dataclass
class Authority:
    trustme: object
    ca: object
    file: object

    def server(self, *names, ca=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (ca or self.ca).issue_cert(*names).configure_cert(context)
        context.asked = []
        context.sni_callback = lambda _, name, __: context.asked.append(name)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    import trustme

    ca = trustme.CA()
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return Authority(trustme, ca, file)


def test_tls_is_verified_against_the_given_authority_and_the_connection_kept(bench, authority):
    async def scenario(client, server):
        for _ in range(3):
            outgoing = request(server, "POST", b"/v1/x", b"b" * 100_000, scheme="https", host="localhost")
            assert (await whole(client, outgoing))[1] == b"ok"
        assert server.connections == 1
        assert tls.asked == ["localhost"]

    tls = authority.server("localhost")
    bench.run(scenario, *[ANSWER] * 3, tls=tls, ca_file=authority.file)


def test_an_address_is_verified_too(bench, authority):
    async def scenario(client, server):
        assert (await whole(client, request(server, scheme="https")))[1] == b"ok"
        assert tls.asked == [None]  # an address is no server name

    tls = authority.server("127.0.0.1")
    bench.run(scenario, ANSWER, tls=tls, ca_file=authority.file)


@pytest.mark.parametrize("case", ["another host", "another authority", "the system's authorities"])
def test_a_certificate_that_proves_nothing_is_refused_before_a_byte_of_the_request(bench, authority, case):
    async def scenario(client, server):
        await refused(client, request(server, scheme="https", host="localhost"), "connect")
        await asyncio.sleep(0.02)
        assert server.requests == []

    names = {"another host": "other.test"}
    tls = authority.server(
        names.get(case, "localhost"), ca=authority.trustme.CA() if case == "another authority" else None
    )
    options = {} if case == "the system's authorities" else {"ca_file": authority.file}
    bench.run(scenario, tls=tls, **options)


def test_a_response_over_tls_ends_as_it_does_without(bench, authority):
    big = bytes(range(256)) * 4096

    async def scenario(client, server):
        def outgoing():
            return request(server, scheme="https", host="localhost")

        assert (await whole(client, outgoing()))[1] == big
        body, error = await outcome(client, outgoing())
        assert body == b"hel"
        assert error.kind == "protocol"
        # Last, because httpcore keeps a connection whose response went up to its end, over TLS, and fails on the next.
        assert (await whole(client, outgoing()))[1] == b"until the end"

    bench.run(
        scenario,
        OK + b"Content-Length: %d\r\n\r\n" % len(big) + big,
        then_close(CHUNKED + b"3\r\nhel\r\n"),
        then_close(OK + b"\r\nuntil the end"),
        tls=authority.server("localhost"),
        ca_file=authority.file,
    )


def test_plain_text_where_tls_is_expected_is_refused(bench):
    async def main():
        client = bench.build()

        async def plain(reader, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        await refused(client, request(server.sockets[0].getsockname()[1], scheme="https"), "connect")
        await client.aclose()
        server.close()
        await asyncio.sleep(0.01)

    bench.run_alone(asyncio.wait_for(main(), 60))
