"""What a listener takes of a request's head, in bytes and in seconds, on every port and every path."""

import asyncio
import contextlib
import socket

import pytest

from gateway.proxy.server import TrafficProtocol
from gaugeway.runtime.http_bounds import MAX_HEAD_BYTES
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.serving import Listener, _bind
from tests.support.running import serving

pytestmark = pytest.mark.full

LINE = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
SLOW_S = 0.2


class Hello:
    """An app that counts its requests."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.requests = 0

    async def __call__(self, scope, receive, send):
        self.requests += 1
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def quick(base):
    return type("Quick", (base,), {"head_s": SLOW_S})


def impatient(base):
    return type("Impatient", (base,), {"body_s": SLOW_S})


PROTOCOLS = {"plain": ServerProtocol, "traffic": TrafficProtocol}


@contextlib.asynccontextmanager
async def connection(protocol=ServerProtocol):
    app = Hello(protocol)
    async with serving(app) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer, app
        writer.close()


def run(scenario, protocol=ServerProtocol):
    """Run a scenario where each example needs a connection of its own."""

    async def main():
        async with connection(protocol) as parts:
            await scenario(*parts)

    asyncio.run(main())


async def pour(reader, writer, piece, most):
    """Write `piece` until the server hangs up; what it said, and how much it took."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most and not reader.at_eof():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError):
        return await reader.read(), sent
    return b"", sent


ENDLESS = {
    "many headers": (LINE, b"x-a: " + b"1" * 200 + b"\r\n"),
    "one header": (LINE + b"x-a: ", b"1" * 8192),
    "a header's name": (LINE, b"x" * 8192),
    "the target": (b"GET /", b"a" * 8192),
    "small headers": (LINE, b"a:b\r\n" * 200),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_head_without_an_end_is_refused_before_it_fills_the_memory(kind, protocol):
    start, piece = ENDLESS[kind]

    async with connection(PROTOCOLS[protocol]) as (reader, writer, app):
        writer.write(start)
        said, sent = await pour(reader, writer, piece, 64 * MAX_HEAD_BYTES)
        assert not said or b" 431 " in said.split(b"\r\n")[0]
        assert sent < 16 * MAX_HEAD_BYTES, "the rest is in the buffers of both sockets"
        assert app.requests == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("before", [b"", LINE + b"\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("start", [b"", b"G", LINE, LINE + b"x-a: 1"])
def test_a_head_that_comes_a_byte_at_a_time_is_given_up(start, before, protocol):
    async def scenario(reader, writer, app):
        if before:
            writer.write(before)
            await reader.readuntil(b"ok")
        if before and not start:
            return  # an idle connection is the keep-alive limit's business
        writer.write(start)

        async def dribble():
            with contextlib.suppress(ConnectionError):
                while start:
                    await asyncio.sleep(SLOW_S / 10)
                    writer.write(b"x")

        dribbling = asyncio.ensure_future(dribble())
        said = b""
        with contextlib.suppress(ConnectionError):
            said = await reader.read()
        dribbling.cancel()
        assert not said or b" 408 " in said.split(b"\r\n")[0] or b" 400 " in said[:20]
        assert app.requests == bool(before)

    run(scenario, quick(PROTOCOLS[protocol]))


async def test_a_large_head_within_the_limit_in_pieces_is_served():
    async with connection() as (reader, writer, app):
        writer.write(LINE)
        for _ in range(40):
            writer.write(b"x-a: " + b"1" * 8000 + b"\r\n")
            await asyncio.sleep(0)
        writer.write(b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert app.requests == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_body_may_be_large_and_slow_and_the_next_head_has_its_own_time(protocol):
    async with connection(quick(PROTOCOLS[protocol])) as (reader, writer, app):
        size = 2 * MAX_HEAD_BYTES
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(4):
                writer.write(b"x" * (size // 4))
                await writer.drain()
                await asyncio.sleep(SLOW_S / 2)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(2 * SLOW_S)
        writer.write(LINE + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert app.requests == 3


BODIES = {
    "nothing of it": (b"Content-Length: 10", b""),
    "a byte at a time": (b"Content-Length: 100000", b"x"),
    "chunks of a byte": (b"Transfer-Encoding: chunked", b"1\r\nx\r\n"),
    "a chunk's length without end": (b"Transfer-Encoding: chunked", b"0"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("before", [b"", LINE + b"\r\n"], ids=["first", "second"])
async def test_a_body_that_hardly_comes_is_given_up(kind, before, protocol):
    head, piece = BODIES[kind]

    async with connection(impatient(PROTOCOLS[protocol])) as (reader, writer, _):
        if before:
            writer.write(before)
            await reader.readuntil(b"ok")
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % head)
        began = asyncio.get_running_loop().time()

        async def dribble():
            with contextlib.suppress(ConnectionError):
                while piece:
                    await asyncio.sleep(SLOW_S / 10)
                    writer.write(piece)

        dribbling = asyncio.ensure_future(dribble())
        said = b""
        with contextlib.suppress(ConnectionError):
            said = await reader.read()
        dribbling.cancel()
        assert not said or said.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))
        assert asyncio.get_running_loop().time() - began > 0.9 * SLOW_S


class Early(Hello):
    """Answers without looking at the body."""

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})


class Busy(Hello):
    """Begins to read late."""

    async def __call__(self, scope, receive, send):
        await asyncio.sleep(5 * SLOW_S)
        await super().__call__(scope, receive, send)


async def test_a_refused_body_that_does_not_end_is_given_up_too():
    async with serving(Early(impatient(ServerProtocol))) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx")
        assert (await reader.read()).startswith(b"HTTP/1.1 401")
        assert reader.at_eof()
        writer.close()


@pytest.mark.parametrize("expects", [b"", b"Expect: 100-continue\r\n"])
async def test_who_is_not_read_from_is_not_blamed(expects):
    async with serving(Busy(impatient(ServerProtocol))) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        size = 1_000_000
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (expects, size))
        if expects:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"x" * size)
        assert b"HTTP/1.1 200" in await reader.readuntil(b"ok")
        writer.close()


async def test_a_large_body_at_a_fair_pace_has_its_time():
    async with connection(impatient(ServerProtocol)) as (reader, writer, app):
        pieces, piece = 20, b"x" * 2000
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (pieces * len(piece)))
        for _ in range(pieces):
            writer.write(piece)
            await asyncio.sleep(SLOW_S / 5)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(2 * SLOW_S)
        writer.write(LINE + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert app.requests == 2


async def test_an_address_that_a_process_is_about_to_release_is_waited_for():
    """That of a gateway whose supervisor was killed, and which has not noticed yet."""

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        binding = asyncio.ensure_future(_bind(Listener(None, *address)))
        await asyncio.sleep(0)
        assert not binding.done()
    async with asyncio.timeout(60):
        with await binding as bound:
            assert bound.getsockname() == address
