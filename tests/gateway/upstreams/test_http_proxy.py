"""An upstream behind an HTTP proxy: plain requests are forwarded, TLS goes through a tunnel."""

import asyncio
import contextlib
import json
import ssl

import httpx
import pytest
import trustme

from gateway.config import Config, Upstream
from tests.support.running import header_lines, read_request, running_gateway

ANSWER = json.dumps({"id": "c", "choices": [{"message": {"content": "A."}, "finish_reason": "stop"}]}).encode()
SECRET = "cHJveHk6c2VjcmV0"  # proxy:secret


@contextlib.asynccontextmanager
async def closing(writer):
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        try:
            yield
        finally:
            writer.close()
            await writer.wait_closed()


async def answering(reader, writer):
    """An upstream that says which request line it got."""
    async with closing(writer):
        while True:
            head, _ = await read_request(reader)
            line = head.split(b"\r\n")[0]
            fields = b"content-length: %d\r\ncontent-type: application/json\r\nx-got: %b" % (len(ANSWER), line)
            writer.write(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n" + ANSWER)


class ForwardProxy:
    """A proxy as RFC 9110 describes it: absolute targets are forwarded, CONNECT becomes a tunnel."""

    def __init__(self):
        self.lines = []
        self.credentials = []

    async def __call__(self, reader, writer):
        async with closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            line = head.split(b"\r\n")[0].decode()
            self.lines.append(line)
            self.credentials.append(header_lines(head).get("proxy-authorization"))
            method, target, _ = line.split(" ")
            authority = target.split("//")[-1].split("/")[0]
            host, _, port = authority.partition(":")
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = target.split(authority, 1)[1]
                up_writer.write(head.replace(target.encode(), path.encode(), 1))
            await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))


async def pump(reader, writer):
    async with closing(writer):
        while data := await reader.read(65536):
            writer.write(data)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_requests_take_the_way_over_the_proxy(tmp_path, tls):
    authority = trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))

    async def main():

        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1").configure_cert(context)
        forward = ForwardProxy()
        upstream = await asyncio.start_server(answering, "127.0.0.1", 0, ssl=context)
        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        port, proxy_port = (server.sockets[0].getsockname()[1] for server in (upstream, proxy))
        one = Upstream(
            base_url=f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1",
            ca_file=str(ca_file) if tls else None,
            proxy=f"http://proxy:secret@127.0.0.1:{proxy_port}",
        )
        async with running_gateway("", config=Config(upstreams=(one,))) as gateway, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions?a=%2Fb"
            response = await client.post(url, json={"model": "m", "messages": []})
            assert (response.status_code, response.content) == (200, ANSWER)
            assert response.headers["x-got"] == "POST /v1/chat/completions?a=%2Fb HTTP/1.1"
            assert "proxy-authorization" not in response.request.headers
        for server in (upstream, proxy):
            server.close()
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*handlers)
        return forward, port

    forward, port = asyncio.run(main())
    wanted = f"CONNECT 127.0.0.1:{port} " if tls else f"POST http://127.0.0.1:{port}/v1/chat/completions?a=%2Fb "
    assert forward.lines[0].startswith(wanted)
    assert forward.credentials[0] == f"Basic {SECRET}"


def test_a_proxy_that_is_not_there_is_an_upstream_error_without_its_password():
    async def main():
        one = Upstream(base_url="http://127.0.0.1:1/v1", proxy="http://proxy:secret@127.0.0.1:9")
        async with running_gateway("", config=Config(upstreams=(one,))) as gateway, httpx.AsyncClient() as client:
            response = await client.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", json={})
            assert response.status_code == 502
            assert response.json()["error"]["code"] == "upstream_unreachable"
            assert "secret" not in response.text

    asyncio.run(main())
