"""A body that hardly comes ends with 408 on both HTTP paths, is counted, and keeps nobody else out."""

import asyncio
import contextlib

import httpx
import pytest

from gateway.config import Config, Upstream
from gateway.config import Gateway as GatewayTable
from tests.support.llm_server import LLMServer
from tests.support.running import running_gateway

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


@pytest.mark.parametrize("http_path", ["asgi", "protocol"])
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/files", "/gaugeway/v1/feedback"])
def test_a_slow_body_ends_and_the_next_request_is_served(http_path, route):
    async def main():
        with LLMServer() as model:
            settings = GatewayTable(http_path=http_path, body_timeout_s=LIMIT_S)
            config = Config(gateway=settings, upstreams=(Upstream(base_url=model.url),))
            async with (
                running_gateway(model.url, config=config) as running,
                httpx.AsyncClient(trust_env=False) as client,
                asyncio.timeout(30),
            ):
                url = f"http://127.0.0.1:{running.port}/v1/chat/completions"
                await client.post(url, content=BODY)  # an idle connection for the short way
                head = HEAD.replace(b"/v1/chat/completions", route.encode()) + b"Content-Length: 5000\r\n"
                said, seconds = await slow(running.port, head, BODY[:20])
                assert not said or said.startswith(b"HTTP/1.1 408")
                assert LIMIT_S * 0.9 < seconds < 10 * LIMIT_S
                assert (await client.post(url, content=BODY)).status_code == 200
                if route == "/v1/chat/completions":
                    await running.until(
                        lambda: running.total("gaugeway_requests_total", ending="client_cancelled") == 1
                    )
            assert len(model.requests) == 2

    asyncio.run(main())
