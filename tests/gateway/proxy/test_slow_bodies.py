"""A body that hardly comes ends with 408 on both HTTP paths, is counted, and keeps nobody else out."""

import asyncio
import contextlib

import httpx
import pytest

from gateway.config import Config, Upstream
from gateway.config import Gateway as GatewayTable
from gaugeway.runtime.http_bounds import BODY_RATE
from tests.support.llm_server import LLMServer
from tests.support.running import running_gateway

pytestmark = pytest.mark.full

LIMIT_S = 0.3
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Q"}]}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def slow(port, head, start=b""):
    """Send a head and the beginning of a body, then a byte now and then; what comes back, and after how long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = asyncio.get_running_loop().time()
    writer.write(head + b"\r\n" + start)

    async def dribble():
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(LIMIT_S / 10)
                writer.write(b" ")

    dribbling = asyncio.ensure_future(dribble())
    said = b""
    with contextlib.suppress(ConnectionError):
        said = await reader.read()
    dribbling.cancel()
    writer.close()
    return said, asyncio.get_running_loop().time() - began


async def hold(port, size, *, route="/v1/chat/completions", kept_back=1):
    """Send all of a body but `kept_back` bytes as fast as it is taken, then nothing: what comes back, and when."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = HEAD.replace(b"/v1/chat/completions", route.encode())
    said, began = b"", asyncio.get_running_loop().time()
    try:
        writer.write(head + b"Content-Length: %d\r\n\r\n" % size)
        for start in range(0, size - kept_back, 65536):
            writer.write(b" " * min(65536, size - kept_back - start))
            await writer.drain()
        began = asyncio.get_running_loop().time()
        said = await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return said, asyncio.get_running_loop().time() - began


@contextlib.asynccontextmanager
async def gateway_with(fast_path, **settings):
    with LLMServer() as model:
        config = Config(gateway=GatewayTable(**settings), upstreams=(Upstream(base_url=model.url),))
        async with running_gateway(model.url, config=config, fast_path=fast_path) as running, asyncio.timeout(60):
            yield running


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/files", "/gaugeway/v1/feedback"])
@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_a_fast_beginning_earns_no_time(fast_path, route, size):
    async def main():
        async with gateway_with(fast_path, client_timeout_s=LIMIT_S) as running:
            for said, seconds in await asyncio.gather(*(hold(running.port, size, route=route) for _ in range(3))):
                assert not said or said.startswith(b"HTTP/1.1 408")
                assert seconds < size / BODY_RATE / 10  # it used to earn a second with each 1000 bytes
            assert running.total("gaugeway_slow_bodies_total", reason="stalled") == 3
            assert running.gateway.protocol.pending.size == 0

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", [False, True])
def test_a_held_body_has_an_end_whatever_its_pace_and_a_streamed_one_goes_on(fast_path):
    async def steadily(port, route, until_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = HEAD.replace(b"/v1/chat/completions", route)
        if route == b"/v1/files":
            head = head.replace(b"application/json", b"multipart/form-data")
        writer.write(head + b"Content-Length: 10000000\r\n\r\n")
        reading = asyncio.ensure_future(reader.read())
        began = asyncio.get_running_loop().time()
        while not reading.done() and asyncio.get_running_loop().time() - began < until_s:
            writer.write(b" " * 2000)
            await asyncio.sleep(0.02)
        ended = reading.done()
        reading.cancel()
        writer.close()
        return ended

    async def main():
        async with gateway_with(fast_path, client_timeout_s=1.0) as running:
            running.gateway.protocol.body_total_s = 1.2
            assert await steadily(running.port, b"/v1/chat/completions", 20)
            assert running.total("gaugeway_slow_bodies_total", reason="too_long") == 1
            assert not await steadily(running.port, b"/v1/files", 2.5)

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", [False, True])
def test_unfinished_bodies_share_a_limit_in_memory_and_others_are_served(fast_path):
    async def main():
        limits = {"max_body_bytes": 300_000, "max_pending_body_bytes": 1_000_000, "client_timeout_s": 10.0}
        async with gateway_with(fast_path, **limits) as running, httpx.AsyncClient(trust_env=False) as client:
            pending = running.gateway.protocol.pending
            assert pending.max_bytes == 1_000_000
            holding = [asyncio.ensure_future(hold(running.port, 250_000)) for _ in range(10)]
            done, _ = await asyncio.wait(holding, timeout=5)
            assert pending.size <= 1_000_000
            assert 6 <= len(done) < 10
            assert all(not one.result()[0] or one.result()[0].startswith(b"HTTP/1.1 503") for one in done)
            url = f"http://127.0.0.1:{running.port}/v1/chat/completions"
            assert (await client.post(url, content=BODY)).status_code == 200
            assert running.total("gaugeway_slow_bodies_total", reason="no_room") == len(done)
            for one in holding:
                one.cancel()
            await asyncio.wait(holding)
            await running.until(lambda: pending.size == 0)

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/files", "/gaugeway/v1/feedback"])
def test_a_slow_body_ends_and_the_next_request_is_served(fast_path, route):
    async def main():
        with LLMServer() as model:
            settings = GatewayTable(client_timeout_s=LIMIT_S)
            config = Config(gateway=settings, upstreams=(Upstream(base_url=model.url),))
            async with (
                running_gateway(model.url, config=config, fast_path=fast_path) as running,
                httpx.AsyncClient(trust_env=False) as client,
                asyncio.timeout(60),
            ):
                url = f"http://127.0.0.1:{running.port}/v1/chat/completions"
                await client.post(url, content=BODY)  # an idle connection for the short way
                head = HEAD.replace(b"/v1/chat/completions", route.encode()) + b"Content-Length: 5000\r\n"
                said, seconds = await slow(running.port, head, BODY[:20])
                assert not said or said.startswith(b"HTTP/1.1 408")
                assert seconds > LIMIT_S * 0.9
                assert (await client.post(url, content=BODY)).status_code == 200
                if route == "/v1/chat/completions":
                    await running.until(
                        lambda: running.total("gaugeway_requests_total", ending="client_cancelled") == 1
                    )
            assert len(model.requests) == 2

    asyncio.run(main())
