"""Bodies made to exhaust a reader: nested without end, or packed a thousandfold. Traffic goes on, nothing stalls."""

import asyncio
import gzip
import json
import time
import tracemalloc
import zlib

import brotli
import httpx
import pytest
import zstandard

from gateway.config import Capture, Config, Upstream
from gateway.http import encoding
from gaugeway.exchange import Request, Response
from gaugeway.prompts import UserTemplate
from gaugeway.prompts.user_patterns import PatternExtractor
from gaugeway.redaction import Redactor
from gaugeway.settings import ConfigError, convert, read
from tests.support.running import read_request, running_gateway, tcp_server

pytestmark = pytest.mark.full

MEGABYTE = 1_000_000
OPEN = b"[" * MEGABYTE
NESTED = OPEN + b"]" * MEGABYTE
OBJECTS = b'{"a":' * (MEGABYTE // 5)
ORDINARY = b'{"choices":[{"message":{"content":"An answer."},"finish_reason":"stop"}]}'
FEW_S = 2.0
ENDLESS_S = 30.0
"""A thousandth of what such a pattern takes that nothing stops."""
BODIES = {
    "arrays without end": OPEN,
    "nested arrays": NESTED,
    "objects without end": OBJECTS,
    "in messages": b'{"model":"m","messages":' + NESTED + b"}",
    "in an unknown field": b'{"model":"m","messages":[],"x":' + NESTED + b"}",
    "behind a stream": b'{"model":"m","stream":true,"messages":[],"x":' + NESTED + b"}",
    "in our key": b'{"model":"m","messages":[],"gaugeway":' + NESTED + b"}",
    "in our key's contexts": b'{"model":"m","messages":[],"gaugeway":{"contexts":' + NESTED + b"}}",
    "in a text": json.dumps({"model": "m", "messages": [{"role": "tool", "content": OPEN.decode()}]}).encode(),
    "in a tool's JSON": json.dumps({"model": "m", "messages": [{"role": "tool", "content": NESTED.decode()}]}).encode(),
}


def answering(body, *fields):
    async def handler(reader, writer):
        await read_request(reader)
        head = b"".join(field + b"\r\n" for field in fields) or b"content-type: application/json\r\n"
        writer.write(
            b"HTTP/1.1 200 OK\r\n" + head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()

    return handler


def run(scenario, body=ORDINARY, *fields, **capture):
    async def main():
        async with tcp_server(answering(body, *fields)) as port:
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1"),)
            async with (
                running_gateway("", config=Config(upstreams=upstreams, capture=Capture(**capture))) as gateway,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=20) as client,
            ):
                await scenario(gateway, client)

    asyncio.run(main())


@pytest.mark.parametrize("name", BODIES)
def test_a_nested_body_is_the_upstreams_to_judge_and_stalls_nobody(name):
    run(nested(BODIES[name]))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in BODIES
        if name not in ("arrays without end", "nested arrays") and "tool" not in name and "text" not in name.split()
    ],
)
def test_it_is_so_where_streams_are_asked_for_their_usage(name):
    run(nested(BODIES[name]), include_usage=True)


def nested(body):
    async def scenario(gateway, client):
        began = time.process_time()
        json_type = {"content-type": "application/json"}
        answer = await client.post("/v1/chat/completions", content=body, headers=json_type)
        assert answer.status_code in (200, 400), answer.text
        assert answer.status_code == 200 or answer.json()["error"]["type"] == "invalid_request_error"
        assert (await client.get("/healthz")).status_code == 200
        later = await client.post("/v1/chat/completions", json={"model": "m", "messages": []})
        assert later.status_code == 200
        assert time.process_time() - began < FEW_S
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total") >= 1 + (answer.status_code == 200))

    return scenario


@pytest.mark.parametrize("route", ["chat/completions", "completions", "responses", "messages"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/json", NESTED),
        (b"application/json", b'{"choices":' + OPEN),
        (b"text/event-stream", b"data: " + NESTED + b"\n\n"),
        (b"text/event-stream", b'data: {"choices":[],"usage":' + NESTED + b"}\n\ndata: [DONE]\n\n"),
    ],
)
def test_a_nested_answer_passes_and_the_next_exchange_is_captured(route, kind, body):
    async def scenario(gateway, client):
        answer = await client.post(f"/v1/{route}", json={"model": "m", "stream": kind.startswith(b"text")})
        assert answer.content == body
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total") == 1)
        await client.post(f"/v1/{route}", json={"model": "m"})
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total") == 2)

    run(scenario, body, b"content-type: " + kind, include_usage=False)


@pytest.mark.parametrize("path", ["contexts", "feedback"])
@pytest.mark.parametrize(
    "body",
    [
        OPEN,
        NESTED,
        b'{"key":"k","contexts":' + NESTED + b"}",
        b'{"key":"k","comment":' + NESTED + b"}",
        OBJECTS,
    ],
    ids=["open", "nested", "contexts", "text", "objects"],
)
def test_a_nested_supplement_is_refused(path, body):
    async def scenario(gateway, client):
        answer = await client.post(f"/gaugeway/v1/{path}", content=body)
        assert answer.status_code == 400, answer.text
        assert len(answer.content) < 1000
        assert (await client.get("/healthz")).status_code == 200

    run(scenario)


BOMBS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data)),
}


@pytest.mark.parametrize("coding", BOMBS)
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(coding):
    packed = BOMBS[coding](b"\0" * 40 * MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(encoding.EncodingError, match="more than"):
            encoding.decode(packed, coding, 4 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * MEGABYTE


@pytest.mark.parametrize("side", ["request", "response"])
def test_codings_named_without_end_are_counted_and_stop_nothing(side):
    many = ",".join(["zstd"] * 10_000)

    async def scenario(gateway, client):
        headers = {"content-encoding": many} if side == "request" else {}
        answer = await client.send(
            client.build_request("POST", "/v1/chat/completions", json={}, headers=headers), stream=True
        )
        await answer.aclose()
        await gateway.until(lambda: gateway.total("gaugeway_unreadable_total", reason="too_many_codings") == 1)
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", outcome="error") == 1)

    codings = [b"content-encoding: " + many.encode()] if side == "response" else []
    run(scenario, ORDINARY, b"content-type: application/json", *codings)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_bomb_passes_packed_and_is_counted_once(coding):
    bomb = BOMBS[coding](b"{" + b" " * 20 * MEGABYTE + b"}")

    async def scenario(gateway, client):
        async with client.stream("POST", "/v1/chat/completions", json={"model": "m", "messages": []}) as answer:
            assert b"".join([chunk async for chunk in answer.aiter_raw()]) == bomb
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", outcome="error") == 1)

    run(scenario, bomb, b"content-type: application/json", b"content-encoding: " + coding.encode())


def test_patterns_of_ones_own_end_in_time_whatever_the_text():
    text = "a" * 200_000 + "\0"
    redactor = Redactor((), [("own", r"(a+)+b")], "salt")
    began = time.thread_time()
    assert redactor.redact(text).startswith("[WITHHELD_")
    assert time.thread_time() - began < ENDLESS_S
    extractor = PatternExtractor([UserTemplate(name="own", pattern=r"Q(?P<contexts>[^Z]{1,200}x?)Z")])
    request = Request(
        route="chat_completions",
        headers={},
        body={"messages": [{"role": "user", "content": "Q" * 500_000}]},
        explicit=None,
    )
    began = time.thread_time()
    extractor.extract(request, Response(status=200, body={}))
    assert time.thread_time() - began < ENDLESS_S


def test_a_nested_configuration_is_an_error_and_no_crash(tmp_path):
    path = tmp_path / "gaugeway.toml"
    for text in ("a = " + "[" * 100_000, "a = " + "{b=" * 100_000, "a." * 2000 + "b = 1", "[" + "a." * 2000 + "b]"):
        path.write_text(text)
        with pytest.raises(ConfigError):
            convert(read(path), Config)
