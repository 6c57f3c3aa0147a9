"""A client that does not read its answer keeps its place, and the upstream's connection, for a limited time only."""

import asyncio
import contextlib

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from gateway.config import Config, Limits, Upstream
from gateway.config import Gateway as GatewayTable
from tests.gateway.proxy.test_passthrough import CHAT, exchange, post, reply, request
from tests.support.running import read_request, running_gateway, tcp_server

LARGE = 24_000_000
PIECE = b"x" * 60_000


async def large(reader, writer):
    """Answer with more than all buffers on the way take; a stream if it is asked for."""
    try:
        while True:
            _, body = await read_request(reader)
            if b"small" in body:
                writer.write(reply())
                continue
            if b'"stream"' in body:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE)
            for _ in range(LARGE // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def stalled(port, body):
    """Ask, and read nothing of the answer but its beginning."""
    reader, writer = await request(port, post(body))
    await reader.readexactly(100)
    writer.transport.pause_reading()
    return writer


def config(port, client_timeout_s=0.3, **tables):
    upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1"),)
    return Config(gateway=GatewayTable(client_timeout_s=client_timeout_s), upstreams=upstreams, **tables)


@pytest.mark.parametrize("body", [CHAT, CHAT[:-1] + b',"stream":true}'], ids=["plain", "streamed"])
def test_a_client_that_does_not_read_loses_its_place(body):
    async def main():
        async with (
            tcp_server(large) as port,
            running_gateway("", config=config(port, limits=Limits(max_concurrency=1, queue_s=15))) as gateway,
            asyncio.timeout(60),
        ):
            writer = await stalled(gateway.port, body)
            # It waits for the only place until the other one is given up.
            head, _, _ = await exchange(gateway.port, post(CHAT[:-1] + b',"x":"small"}'))
            assert head.split()[1] == b"200"
            assert gateway.counter("gaugeway_write_stalls_total") == 1
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("body", [CHAT, CHAT[:-1] + b',"stream":true}'], ids=["plain", "streamed"])
def test_the_fast_path_gives_it_up_too(body):
    async def main():
        async with (
            tcp_server(large) as port,
            running_gateway("", config=config(port)) as gateway,
            asyncio.timeout(60),
        ):
            await exchange(gateway.port, post(CHAT[:-1] + b',"x":"small"}'))  # now there is a connection to reuse
            writer = await stalled(gateway.port, body)
            await gateway.until(lambda: gateway.counter("gaugeway_write_stalls_total") == 1, within_s=60.0)
            cancelled = {"ending": "client_cancelled"}
            await gateway.until(lambda: gateway.total("gaugeway_requests_total", **cancelled) == 1, within_s=60.0)
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", [False, True])
def test_a_client_that_reads_slowly_but_steadily_gets_its_whole_answer(fast_path):
    async def main():
        async with (
            tcp_server(large) as port,
            running_gateway("", config=config(port, 2.0), fast_path=fast_path) as gateway,
            asyncio.timeout(60),
        ):
            reader, writer = await request(gateway.port, post())
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(LARGE // 1_000_000):
                await reader.readexactly(1_000_000)
                await asyncio.sleep(0.1)  # longer than the limit in all
            assert gateway.counter("gaugeway_write_stalls_total") == 0
            writer.close()

    asyncio.run(main())


def test_a_websocket_that_is_not_read_loses_its_place():
    async def flood(socket):
        with contextlib.suppress(ConnectionClosed):
            await socket.send(PIECE)
            while "flood" in socket.request.path:
                await socket.send(PIECE)
                await asyncio.sleep(0)

    async def main():
        async with serve(flood, "127.0.0.1", 0) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            limits = Limits(max_concurrency=1, queue_s=15)
            async with running_gateway("", config=config(port, limits=limits)) as gateway, asyncio.timeout(60):
                url = f"ws://127.0.0.1:{gateway.port}/v1/realtime"
                first = await connect(f"{url}?flood=1", max_queue=1, compression=None)
                async with connect(url) as second:
                    assert await second.recv() == PIECE
                assert gateway.counter("gaugeway_write_stalls_total") == 1
                first.transport.abort()

    asyncio.run(main())
