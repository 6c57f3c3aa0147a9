"""Paths that could leave the base URL, and methods that could show the provider's key, stop at the gateway."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import Config, Upstream
from gateway.http.errors import Rejection
from gateway.http.url import MAX_ESCAPED_PATH_BYTES, MOST_DECODINGS, check_target
from tests.gateway.proxy.test_passthrough import CHAT, ScriptedUpstream, exchange, post, reply, request
from tests.support.running import running_gateway, tcp_server

LEAVING = [
    "/v1/../../tenant-b",
    "/v1/%2e%2e/tenant-b",
    "/v1/%2E%2e/tenant-b",
    "/v1/.%2e/tenant-b",
    "/v1/..%2f..%2Ftenant-b",
    "/v1/..%5c..%5Ctenant-b",
    "/v1/\\..\\..\\tenant-b",
    "/openai/../../tenant-b",
    "/openai/deployments/%2e%2e/%2e%2e/x",
    "/v1/%252e%252e/tenant-b",
    "/v1/%25252e%25252e%25252ftenant-b",
    "/v1/%%32%65%%32%65/tenant-b",
    "/v1/%u002e%u002e/tenant-b",
    "/v1/..;a=b/tenant-b",
    "/v1/..%3b/tenant-b",
    "/v1/..%00/tenant-b",
    "/v1/..%20/tenant-b",
    "/v1/.%0d./tenant-b",
    "/v1/%c0%ae%c0%ae/tenant-b",
    "/v1/x%c0%afy",
    "/v1/./chat/completions",
    "/v1/models/..",
    "/v1/models/.",
]
STAYING = [
    "/v1/models/org%2Fname",
    "/v1/models/ft:gpt-4o:org::a1",
    "/v1/models/a%25b",
    "/v1/models/m@v1;x=1",
    "/v1/models/%C3%A9",
    "/v1/files/report..final.pdf",
    "/v1/files/.hidden",
    "/v1/files/...",
    "/v1/files/a%20b%5Bc%5D...",
    "/v1/chat/completions?x=/../../y&z=%2e%2e",
]


def run(scenario, fast_path):
    async def main():
        upstream = ScriptedUpstream(*[reply() for _ in range(len(LEAVING + STAYING) + 10)])
        async with tcp_server(upstream) as port:
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/tenant-a/v1", api_key="sk-provider"),)
            config = Config(upstreams=upstreams)
            async with running_gateway("", config=config, fast_path=fast_path) as gateway, asyncio.timeout(60):
                await scenario(gateway, upstream)

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", [False, True])
def test_a_path_with_dot_segments_in_any_encoding_is_400_and_never_reaches_the_upstream(fast_path):
    async def scenario(gateway, upstream):
        for path in LEAVING:
            head, _, body = await exchange(gateway.port, post(CHAT, path))
            assert head.split()[1] == b"400", path
            assert json.loads(body)["error"]["code"] == "invalid_path"
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://127.0.0.1:{gateway.port}{path.replace(chr(92), '%5c')}")
            assert caught.value.response.status_code == 400
        assert upstream.requests == []

    run(scenario, fast_path)


@pytest.mark.parametrize("fast_path", [False, True])
def test_an_encoded_path_without_dot_segments_passes_byte_for_byte(fast_path):
    async def scenario(gateway, upstream):
        for path in STAYING:
            assert (await exchange(gateway.port, post(CHAT, path)))[0].split()[1] == b"200", path
        sent = [head.split()[1].decode() for head, _ in upstream.requests]
        assert sent == [f"/tenant-a{path}" for path in STAYING]

    run(scenario, fast_path)


@pytest.mark.parametrize("fast_path", [False, True])
def test_trace_and_connect_are_405_and_never_reach_the_upstream(fast_path):
    async def scenario(gateway, upstream):
        for method in ("TRACE", "CONNECT"):
            reader, writer = await request(gateway.port, f"{method} /v1/models HTTP/1.1\r\nHost: g\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == b"405"
            assert b"allow: GET" in head
            body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
            assert json.loads(body)["error"]["message"] == f"{method} is not supported."
            writer.close()
        assert upstream.requests == []

    run(scenario, fast_path)


@given(st.lists(st.sampled_from(["a", ".", "..", "..."]), min_size=1, max_size=5), st.integers(0, MOST_DECODINGS - 2))
def test_a_path_is_refused_exactly_if_a_segment_is_dots_however_often_it_is_encoded(segments, times):
    path = ("/v1/" + "/".join(segments)).encode()
    for _ in range(times):
        path = b"/v1/" + b"".join(b"%%%02x" % byte for byte in path[4:])
    if {".", ".."} & set(segments):
        with pytest.raises(Rejection):
            check_target("GET", path)
    else:
        check_target("GET", path)


def test_an_escaped_path_is_decoded_up_to_a_length_and_a_number_of_layers():
    check_target("GET", b"/v1/" + b"a" * 10 * MAX_ESCAPED_PATH_BYTES)
    with pytest.raises(Rejection) as caught:
        check_target("GET", b"/v1/" + b"%41" * MAX_ESCAPED_PATH_BYTES)
    assert caught.value.status == 414
    with pytest.raises(Rejection) as caught:
        check_target("GET", b"/v1/%" + b"25" * 20 + b"41")
    assert caught.value.status == 400
    assert caught.value.message == "The path contains a dot segment ('..') or is percent-encoded too often."
