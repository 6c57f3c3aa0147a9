"""Realtime WebSockets through a running gateway, against a real WebSocket server."""

import asyncio
import contextlib
import os
import socket

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from gateway.config import Config, Gateway, Limits, Upstream
from gaugeway.runtime.tasks import spawn
from tests.support.running import running_gateway


def run(scenario, handler, **server):
    async def main():
        async with serve(handler, "127.0.0.1", 0, **server) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            async with running_gateway(f"http://127.0.0.1:{port}/v1") as gateway:
                async with asyncio.timeout(60):
                    await scenario(gateway, f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=m%20x")

    asyncio.run(main())


def test_messages_of_both_kinds_pass_both_ways_with_path_headers_and_subprotocol():
    seen = {}

    async def upstream(socket):
        seen["path"] = socket.request.path
        seen["headers"] = socket.request.headers
        async for message in socket:
            await socket.send(message * 2)

    async def scenario(gateway, url):
        headers = {"authorization": "Bearer k", "openai-beta": "realtime=v1", "x-gaugeway-app": "shop"}
        async with connect(url, additional_headers=headers, subprotocols=["realtime"], max_size=None) as client:
            assert client.subprotocol == "realtime"
            assert client.response.headers["x-gaugeway-exchange-id"]
            await client.send("text é")
            assert await client.recv() == "text étext é"
            await client.send(b"\x00\xff")
            assert await client.recv() == b"\x00\xff\x00\xff"
            large = "x" * 2_000_000
            await client.send(large)
            assert await client.recv() == large * 2
        assert seen["path"] == "/v1/realtime?model=m%20x"
        assert seen["headers"]["authorization"] == "Bearer k"
        assert seen["headers"]["openai-beta"] == "realtime=v1"
        assert "x-gaugeway-app" not in seen["headers"]
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="realtime", ending="complete") == 1)

    run(scenario, upstream, subprotocols=["other", "realtime"], max_size=None)


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize(
    "head", ["POST {} HTTP/1.1\r\nContent-Length: 2\r\n", "GET {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"]
)
def test_a_handshake_with_a_body_is_refused_at_once(fast_path, head):
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1", fast_path=fast_path) as gateway, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            upgrade = "Host: l\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            writer.write((head.format("/v1/chat/completions") + upgrade + key).encode() + b"{}")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")  # and the connection is closed
            writer.close()

    asyncio.run(main())


def test_the_upstreams_close_reaches_the_client_with_code_and_reason():
    async def upstream(socket):
        await socket.recv()
        await socket.close(4001, "session expired")

    async def scenario(gateway, url):
        async with connect(url) as client:
            await client.send("go")
            with pytest.raises(ConnectionClosed) as caught:
                await client.recv()
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4001, "session expired")

    run(scenario, upstream)


def test_a_client_that_vanishes_closes_the_upstream():
    gone = asyncio.Event()

    async def upstream(socket):
        try:
            async for _ in socket:
                pass
        finally:
            gone.set()

    async def scenario(gateway, url):
        client = await connect(url)
        await client.send("hello")
        client.transport.abort()
        await gone.wait()
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="realtime") == 1)

    run(scenario, upstream)


def test_what_the_upstream_refuses_the_client_sees_refused():
    async def scenario(gateway, url):
        with pytest.raises(InvalidStatus) as caught:
            await connect(url)
        assert caught.value.response.status_code == 401
        assert caught.value.response.body == b"no key"

    def refuse(connection, request):
        return connection.respond(401, "no key")

    async def never(socket):
        raise AssertionError

    run(scenario, never, process_request=refuse)


def test_an_unreachable_upstream_is_a_502():
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1") as gateway:
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime")
            assert caught.value.response.status_code == 502

    asyncio.run(main())


def limited(scenario, upstream, **gateway):
    """Run with one place of `max_concurrency`, against an upstream that completes the handshake."""

    async def main():
        ended = asyncio.Event()

        async def handler(connection):
            serving, ending = spawn(upstream(connection), name="upstream"), spawn(ended.wait(), name="end")
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            serving.cancel()
            connection.transport.abort()

        async with serve(handler, "127.0.0.1", 0, max_size=None, max_queue=1, compression=None) as server:
            port = server.sockets[0].getsockname()[1]
            config = Config(
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),),
                limits=Limits(max_concurrency=1, queue_s=50),
                gateway=Gateway(**gateway),
            )
            try:
                async with running_gateway("", config=config) as running, asyncio.timeout(100):
                    await scenario(running, f"ws://127.0.0.1:{running.port}/v1/realtime?model=m")
            finally:
                ended.set()

    asyncio.run(main())


async def hung(_):
    """Read nothing, for ever: the library reads one message ahead."""
    await asyncio.Event().wait()


async def flooding(connection):
    while True:
        await connection.send("y" * 1_000_000)


@pytest.mark.full
@pytest.mark.parametrize("upstream", [hung, flooding])
@pytest.mark.parametrize("megabytes", [0, 20])
@pytest.mark.parametrize("abort", [True, False])
def test_a_client_that_leaves_frees_its_place_at_once_whatever_the_upstream_does(upstream, megabytes, abort):
    async def scenario(gateway, url):
        for _ in range(2):  # one after the other: there is one place
            client = await connect(url, open_timeout=60, close_timeout=0, max_size=None, compression=None)
            for _ in range(megabytes * 10):
                client.transport.write(Frame(Opcode.TEXT, b"x" * 100_000).serialize(mask=True))
            if abort:
                client.transport.abort()
            else:
                client.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="realtime") == 2)

    limited(scenario, upstream, client_timeout_s=3600.0)


async def send_for_ever(client):
    with contextlib.suppress(ConnectionClosed):
        while True:
            await client.send(os.urandom(1_000_000))


def test_an_upstream_that_does_not_read_is_given_up():
    async def scenario(gateway, url):
        async with connect(url, compression=None) as client:
            sending = spawn(send_for_ever(client), name="client")
            with pytest.raises(ConnectionClosed) as caught:
                await client.recv()
            assert caught.value.rcvd.code == 1011
            await asyncio.wait([sending])
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="realtime", ending="timeout") == 1)

    limited(scenario, hung, client_timeout_s=1.0)


def test_what_a_client_sent_before_it_left_is_delivered():
    seen = []
    done = asyncio.Event()

    async def slow(connection):
        async for message in connection:
            await asyncio.sleep(0)
            seen.append(message)
        done.set()

    async def scenario(gateway, url):
        async with connect(url) as client:
            for number in range(100):
                await client.send(f"{number} " + "x" * 5_000)
        await done.wait()
        assert [int(message.split()[0]) for message in seen] == list(range(100))

    limited(scenario, slow)


@pytest.mark.parametrize("limits", [Limits(), Limits(max_concurrency=1)])
@pytest.mark.parametrize("header", ["x-gaugeway-tags: odd", "x-gaugeway-odd: 1", "x-gaugeway-capture: maybe"])
def test_a_handshake_with_a_malformed_header_is_a_400(limits, header):
    async def main():
        upstreams = (Upstream(base_url="http://127.0.0.1:9/v1"),)
        async with running_gateway("", config=Config(upstreams=upstreams, limits=limits)) as gateway:
            name, value = header.split(": ")
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime", additional_headers={name: value})
            assert caught.value.response.status_code == 400
            assert name in caught.value.response.body.decode()

    asyncio.run(main())
