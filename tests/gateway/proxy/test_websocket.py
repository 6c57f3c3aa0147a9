"""Realtime WebSockets through a running gateway, against a real WebSocket server."""

import asyncio

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

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


@pytest.mark.parametrize("path", ["asgi", "protocol"])
@pytest.mark.parametrize(
    "head", ["POST {} HTTP/1.1\r\nContent-Length: 2\r\n", "GET {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"]
)
def test_a_handshake_with_a_body_is_refused_at_once(path, head):
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1", http_path=path) as gateway, asyncio.timeout(15):
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
