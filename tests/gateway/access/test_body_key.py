"""The body key in hostile bodies, through a running gateway: it is cut or refused, and nobody else waits for it."""

import asyncio
import contextlib

import httpx
import pytest

from gateway.config import Config, Upstream
from gateway.http import json_member as splice
from gateway.proxy.exchange import LARGE_BYTES
from gateway.proxy.handler import MOST_SCANS
from gaugeway.runtime.tasks import spawn
from tests.support.running import read_request, running_gateway, tcp_server

pytestmark = pytest.mark.full

PATHS = [False, True]
KEY = b'"gaugeway":{"app":"shop"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def run(scenario, fast_path):
    """Call `scenario(gateway, client, sent)`; `sent` are the bodies that reached the upstream."""
    sent = []

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                sent.append((await read_request(reader))[1])
                writer.write(ANSWER)
        writer.close()

    async def main():
        async with tcp_server(answer) as port:
            config = Config(upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),))
            async with (
                running_gateway("", config=config, fast_path=fast_path) as gateway,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60) as client,
            ):
                await post(client, b"{}")  # so that there is a connection to reuse
                sent.clear()
                await scenario(gateway, client, sent)

    asyncio.run(main())


async def post(client, body):
    return await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize(
    ("body", "without"),
    [
        (b"\xef\xbb\xbf{" + KEY + b',"model":"m"}', b'\xef\xbb\xbf{"model":"m"}'),
        (b'{"model":"m","g\\u0061ugeway":{"app":"shop"}}', b'{"model":"m"}'),
        (b'{"seed":' + b"1" * 5000 + b"," + KEY + b"}", b'{"seed":' + b"1" * 5000 + b"}"),
        (b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"," + KEY + b"}", b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"),
        (b'{"a":"\xff",' + KEY + b"}", b'{"a":"\xff"}'),
    ],
    ids=["BOM", "escaped", "digits", "depth", "no UTF-8"],
)
def test_the_key_is_cut_from_what_only_some_parsers_read(fast_path, body, without):
    async def scenario(gateway, client, sent):
        assert (await post(client, body)).status_code == 200
        assert sent == [without]
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", app="shop") == 1)

    run(scenario, fast_path)


@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        '{"gaugeway":{"app":"shop"}}'.encode("utf-16"),
        b'{"model":"m","gaugeway":{"app":"shop"}',
        b'{"model":"m,"gaugeway":{"app":"shop"}}',
        b"{" + b'"gaugeway":1,' * (splice.MOST_MENTIONS + 1) + b'"model":"m"}',
    ],
    ids=["UTF-16", "cut off", "unclosed", "many"],
)
def test_a_key_that_cannot_be_cut_stays_here(fast_path, body):
    async def scenario(_, client, sent):
        answer = await post(client, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "gaugeway")
        assert error["message"].startswith("Invalid 'gaugeway': ")
        assert not sent

    run(scenario, fast_path)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_the_key_is_cut_on_other_routes_however_the_type_is_written(kind):
    async def scenario(_, client, sent):
        await client.post("/v1/embeddings", content=b"{" + KEY + b',"input":"x"}', headers={"content-type": kind})
        assert sent == [b'{"input":"x"}']

    run(scenario, "asgi")


@pytest.mark.parametrize("fast_path", PATHS)
def test_beyond_the_limits_the_answer_is_413_and_names_the_key(fast_path, monkeypatch):
    monkeypatch.setattr(splice, "MAX_BODY_BYTES", 2 * LARGE_BYTES)
    monkeypatch.setattr(splice, "MAX_VALUE_BYTES", LARGE_BYTES)
    filling = b'{"a":"' + b"x" * 2 * LARGE_BYTES + b'"'

    async def scenario(_, client, sent):
        for body in (filling + b"," + KEY + b"}", b'{"gaugeway":{"app":"' + b"x" * LARGE_BYTES + b'"}}'):
            answer = await post(client, body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (413, "request_too_large", "gaugeway")
            assert "x-gaugeway-* headers" in error["message"]
        assert not sent
        assert (await post(client, filling + b"}")).status_code == 200
        assert sent == [filling + b"}"]

    run(scenario, fast_path)


@pytest.mark.parametrize("fast_path", PATHS)
def test_while_large_bodies_are_scanned_other_requests_are_served(fast_path, monkeypatch):
    """Counted, not timed: between two slices of a scan, the event loop gets to everything else that is ready."""
    order = []
    steps = splice.cutting_key

    def noted(body):
        scan = steps(body)
        while True:
            try:
                next(scan)
            except StopIteration as stop:
                return stop.value
            order.append("slice")
            yield

    monkeypatch.setattr(splice, "cutting_key", noted)
    body = b'{"a":[' + b"[]," * 300_000 + b"1]," + KEY + b"}"

    async def scenario(_, client, sent):
        async def small():
            while True:
                await post(client, b'{"model":"m"}')
                order.append("small")

        task = spawn(small(), name="small requests")
        answers = await asyncio.gather(*(post(client, body) for _ in range(MOST_SCANS + 1)))
        task.cancel()
        assert [answer.status_code for answer in answers] == [200] * (MOST_SCANS + 1)
        assert [len(one) for one in sent if len(one) > LARGE_BYTES] == [len(body) - len(KEY) - 1] * (MOST_SCANS + 1)
        first, last = order.index("slice"), len(order) - order[::-1].index("slice")
        assert order[first:last].count("small") > 3

    run(scenario, fast_path)
