"""What a client gets of an ASGI app that fails."""

import asyncio

import pytest

from tests.support.running import serving


async def broken(scope, receive, send):
    raise RuntimeError("a defect")


async def half(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"ab"})


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_an_app_that_fails_before_its_answer_is_answered_for(method, caplog):
    async with serving(broken) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(method + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"\r\ncontent-length: 21\r\n" in head
    assert b"\r\nconnection: close" in head
    assert body == (b"" if method == b"HEAD" else b"Internal Server Error")
    assert "a defect" in caplog.text


async def test_an_answer_that_is_shorter_than_announced_is_cut_off(caplog):
    async with serving(half) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.partition(b"\r\n\r\n")[2] in (b"", b"ab")
    assert "shorter than Content-Length" in caplog.text
