"""A malformed head is answered with 400, which the client can read, in whatever pieces the head comes."""

import asyncio

import pytest

from tests.support.running import running_gateway


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/models"])
@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: b\r\n", b"Host: a\r\nHost: a\r\n"])
def test_a_request_without_exactly_one_host_is_refused(fast_path, route, hosts):
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1", fast_path=fast_path) as gateway, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(b"POST %b HTTP/1.1\r\n%bContent-Length: 2\r\n\r\n{}" % (route.encode(), hosts))
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()

    asyncio.run(main())


def test_the_answer_to_a_malformed_head_in_pieces_is_not_lost_to_a_reset():
    async def main():
        async with running_gateway("http://127.0.0.1:9/v1") as gateway, asyncio.timeout(60):
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                for piece in (b"GET /v1/models HT", b"TP/9.z\r\nHo", b"st: a\r\n", b"x" * 1_000_000):
                    writer.write(piece)
                    await asyncio.sleep(0)
                    await writer.drain()
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")  # a reset raises
                writer.close()

    asyncio.run(main())
