"""Keys, limits, costs and the cache, through a running gateway."""

import asyncio
import json
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import AppLimits, Cache, Capture, Config, Keys, Limits, Price, Upstream
from gaugeway.storage.keys import open_keys
from tests.gateway.proxy.test_passthrough import CHAT, ScriptedUpstream, exchange, post, reply, request, whole_response
from tests.support.running import running_gateway, tcp_server

PAID = json.dumps(
    {
        "id": "c",
        "choices": [{"message": {"content": "A."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 500_000},
    }
).encode()


def run(scenario, *replies, keys_file=None, fast_path=True, **tables):
    async def main():
        upstream = ScriptedUpstream(*replies)
        async with tcp_server(upstream) as port:
            base_url = f"http://127.0.0.1:{port}/v1"
            config = Config(upstreams=(Upstream(base_url=base_url, api_key="sk-upstream"),), **tables)
            async with running_gateway("", config=config, keys_file=keys_file, fast_path=fast_path) as gateway:
                async with asyncio.timeout(60):
                    await scenario(gateway, upstream)

    asyncio.run(main())


def keyed(key):
    return post(CHAT, "/v1/chat/completions", f"Authorization: Bearer {key}", "x-gaugeway-app: pretender")


def test_a_virtual_key_is_asked_for_checked_and_never_forwarded(tmp_path):
    async def create():
        store = open_keys(None, tmp_path)
        shop = await store.create(app="shop", now=time.time())
        narrow = await store.create(app="narrow", now=time.time(), models=("other-*",))
        await store.aclose()
        return shop.secret, narrow.secret

    shop, narrow = asyncio.run(create())

    async def scenario(gateway, upstream):
        for raw, status, code in (
            (post(), b"401", "invalid_api_key"),
            (keyed("gw-" + "x" * 43), b"401", "invalid_api_key"),
            (keyed(narrow), b"403", "model_not_allowed"),
        ):
            head, _, body = await exchange(gateway.port, raw)
            assert head.split()[1] == status
            assert json.loads(body)["error"]["code"] == code
        assert upstream.requests == []
        head, _, _ = await exchange(gateway.port, keyed(shop))
        assert head.startswith(b"HTTP/1.1 200")
        sent = upstream.requests[0][0]
        assert b"authorization: Bearer sk-upstream\r\n" in sent
        assert shop.encode() not in sent
        assert [sample.app for sample in await gateway.samples(1)] == ["shop"]
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total", outcome="rejected") == 3)
        url = f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=m"
        with pytest.raises(InvalidStatus) as caught:
            await connect(url)
        assert caught.value.response.status_code == 401

    run(scenario, reply(), keys_file=tmp_path / "keys.db", keys=Keys(enabled=True))


@pytest.mark.parametrize("junk", [b"\t\t", b"\x80\xff", b"\xe2\x80\xae", b"%0d%0aX: y", b"\\n{}%s"])
def test_odd_characters_in_a_key_reach_no_log_and_no_answer(tmp_path, caplog, junk):
    async def scenario(gateway, upstream):
        raw = post(CHAT, "/v1/chat/completions").replace(
            b"Host: gw", b"Host: gw\r\nAuthorization: Bearer gw-canary" + junk
        )
        head, _, body = await exchange(gateway.port, raw)
        assert head.split()[1] == b"401"
        assert b"canary" not in head + body
        assert upstream.requests == []

    run(scenario, keys_file=tmp_path / "keys.db", keys=Keys(enabled=True))
    assert "canary" not in caplog.text


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("framing", ["Content-Length: 0", "x: y"])
def test_a_request_without_a_body_is_told_so(fast_path, framing):
    async def scenario(gateway, upstream):
        for path in ("/v1/chat/completions", "/v1/messages", "/gaugeway/v1/contexts"):
            raw = f"POST {path} HTTP/1.1\r\nHost: g\r\n{framing}\r\n\r\n".encode()
            head, _, body = await exchange(gateway.port, raw)
            assert head.split()[1] == b"400"
            assert "has no body" in json.loads(body)["error"]["message"]
        assert upstream.requests == []

    run(scenario, fast_path=fast_path)


def test_over_the_limit_the_answer_is_a_429_with_the_time_to_come_again():
    async def scenario(gateway, upstream):
        statuses = [(await exchange(gateway.port, post()))[0].split()[1] for _ in range(2)]
        head, headers, body = await exchange(gateway.port, post())
        assert [*statuses, head.split()[1]] == [b"200", b"200", b"429"]
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        assert int(headers["retry-after"]) > 0
        assert int(headers["retry-after-ms"]) > 0
        other = post(CHAT, "/v1/chat/completions", "x-gaugeway-app: vip")
        assert (await exchange(gateway.port, other))[0].split()[1] == b"200"

    limits = Limits(requests_per_min=2, apps={"vip": AppLimits(requests_per_min=100)})
    run(scenario, reply(), reply(), reply(), limits=limits)


def test_requests_beyond_those_at_once_wait_their_turn():
    release = asyncio.Event()

    async def held(reader, writer):
        await release.wait()
        writer.write(reply())
        await writer.drain()

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        while not upstream.requests:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(exchange(gateway.port, post()))
        await asyncio.sleep(0.2)
        assert len(upstream.requests) == 1
        release.set()
        assert (await whole_response(reader))[0].split()[1] == b"200"
        writer.close()
        assert (await second)[0].split()[1] == b"200"

    run(scenario, held, reply(), limits=Limits(max_concurrency=1, queue_s=10))


def test_what_answers_cost_is_counted_and_limits_the_day():
    async def scenario(gateway, upstream):
        await exchange(gateway.port, post())
        total = lambda kind: gateway.total("gaugeway_cost_usd_total", model="m", type=kind)  # noqa: E731
        await gateway.until(lambda: (total("input"), total("output")) == (2.0, 4.0))
        head, _, body = await exchange(gateway.port, post())
        assert head.split()[1] == b"429"
        assert "budget" in json.loads(body)["error"]["message"]

    run(scenario, reply(PAID), prices={"m": Price(input=2, output=8)}, limits=Limits(usd_per_day=5))


def test_a_cached_answer_is_the_same_bytes_for_the_same_app_only_and_is_not_scored_again():
    async def scenario(gateway, upstream):
        shop = post(CHAT, "/v1/chat/completions", "x-gaugeway-app: shop")
        first, second = [await exchange(gateway.port, shop) for _ in range(2)]
        assert (first[1]["x-gaugeway-cache"], second[1]["x-gaugeway-cache"]) == ("miss", "hit")
        assert first[2] == second[2]
        assert first[1]["x-gaugeway-exchange-id"] != second[1]["x-gaugeway-exchange-id"]
        assert len(upstream.requests) == 1
        for other in (
            post(CHAT, "/v1/chat/completions", "x-gaugeway-app: club"),
            post(CHAT, "/v1/chat/completions", "x-gaugeway-app: shop", "Authorization: Bearer other"),
            post(CHAT.replace(b"1.50", b"1.51"), "/v1/chat/completions", "x-gaugeway-app: shop"),
        ):
            assert (await exchange(gateway.port, other))[1]["x-gaugeway-cache"] == "miss"
        _, headers, _ = await exchange(gateway.port, post())
        assert "x-gaugeway-cache" not in headers
        skips = sorted(str(sample.skip_reason) for sample in await gateway.samples(6))
        assert skips == ["None", "None", "None", "None", "None", "cache_hit"]

    run(scenario, *[reply()] * 5, cache=Cache(apps=("shop", "club")))


def test_a_stream_from_the_cache_is_a_stream_again():
    events = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(3)]

    async def stream(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")

    async def scenario(gateway, upstream):
        first, second = [await exchange(gateway.port, post()) for _ in range(2)]
        assert first[2] == second[2] == b"".join(events)
        assert second[1]["x-gaugeway-cache"] == "hit"
        assert second[1]["content-type"] == "text/event-stream"

    run(scenario, stream, cache=Cache(apps=("*",)))


def test_an_answer_that_did_not_come_whole_is_not_kept():
    async def die(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async def scenario(gateway, upstream):
        reader, writer = await request(gateway.port, post())
        await reader.read()
        writer.close()
        upstream.replies.append(reply())
        assert (await exchange(gateway.port, post()))[1]["x-gaugeway-cache"] == "miss"

    run(scenario, die, cache=Cache(apps=("*",)))


def test_a_key_for_one_model_does_not_open_another_through_an_azure_path(tmp_path):
    async def create():
        store = open_keys(None, tmp_path)
        made = await store.create(app="narrow", now=time.time(), models=("m",))
        await store.aclose()
        return made.secret

    secret = asyncio.run(create())

    async def scenario(gateway, upstream):
        for path, status in (
            ("/v1/chat/completions", b"200"),
            ("/openai/deployments/m/chat/completions", b"200"),
            ("/openai/deployments/o3/chat/completions", b"403"),
        ):
            head, _, _ = await exchange(gateway.port, post(CHAT, path, f"api-key: {secret}"))
            assert head.split()[1] == status

    run(scenario, reply(), reply(), keys_file=tmp_path / "keys.db", keys=Keys(enabled=True))


def test_a_cached_answer_to_a_question_of_ours_about_usage_is_not_given_to_a_client_that_asks_itself():
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(usage), usage)
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked

    async def scenario(gateway, upstream):
        plain = b'{"stream_options":{"include_usage":true},"stream": true}'
        assert (await exchange(gateway.port, post(b'{"stream": true}')))[2] == b""
        assert upstream.requests[0][1] == plain
        _, headers, body = await exchange(gateway.port, post(plain))
        assert (headers["x-gaugeway-cache"], body) == ("miss", usage)

    run(scenario, stream, stream, cache=Cache(apps=("*",)), capture=Capture(include_usage=True))
